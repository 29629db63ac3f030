//! One pass over bytes that may arrive in pieces: which are secret, and which can be returned already.

use aho_corasick::automaton::StateID;

use crate::rules::{Pattern, Rules};
use crate::shapes::{CONTEXT, Candidate, Step, begins_word};

/// The state of a scan. Positions count from the first byte of the input, over all pieces.
#[derive(Debug)]
pub(crate) struct Scan {
    state: StateID,
    /// The next byte to read.
    at: usize,
    /// Shapes that have begun.
    open: Vec<Candidate>,
    /// Secrets that are not returned yet, in order, not overlapping.
    found: Vec<Secret>,
    /// The next byte to return.
    out: usize,
    /// Bytes from `out` up to this one are secret and have a mark already.
    covered: usize,
    /// The value that ended first.
    value: Option<usize>,
}

/// The position of a secret, and its value; `None` for a shape.
#[derive(Debug)]
struct Secret {
    start: usize,
    end: usize,
    value: Option<usize>,
}

impl Scan {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            state: rules.start,
            at: 0,
            open: Vec::new(),
            found: Vec::new(),
            out: 0,
            covered: 0,
            value: None,
        }
    }

    /// The value that ended first.
    pub(crate) fn value(&self) -> Option<usize> {
        self.value
    }

    /// Whether there are no secrets left to return.
    pub(crate) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// Reads on to the end of `bytes`, the first of which is at the position `base`.
    pub(crate) fn advance(&mut self, rules: &Rules, bytes: &[u8], base: usize) {
        while let Some(rest) = bytes.get(self.at - base..).filter(|rest| !rest.is_empty()) {
            if self.open.is_empty() {
                let (state, read) = rules.run(self.state, rest);
                self.state = state;
                self.at += read;
            } else {
                self.state = rules.run(self.state, &rest[..1]).0;
                self.at += 1;
                self.step_open(rest[0]);
            }
            if rules.is_match(self.state) {
                self.take_matches(rules, bytes, base);
            }
        }
    }

    /// The input ends.
    pub(crate) fn finish(&mut self) {
        let at = self.at;
        for mut candidate in std::mem::take(&mut self.open) {
            candidate.finish();
            if candidate.is_secret {
                self.add(Secret { start: candidate.start, end: at, value: None });
            }
        }
    }

    /// The position up to which no later byte changes anything. `bytes` as in [`advance`](Self::advance).
    pub(crate) fn settled(&self, rules: &Rules, bytes: &[u8], base: usize) -> usize {
        let undecided = self.open.iter().filter(|candidate| !candidate.is_secret);
        let mut begun = rules.depth(self.state);
        // The last letter of a word is not held back for a shape that begins with a word.
        if begun == 1
            && let Some((last, before)) = bytes[..self.at - base].split_last()
            && !rules.begins_in_word(*last)
            && !begins_word(before)
        {
            begun = 0;
        }
        let settled = self.at - begun;
        undecided.map(|candidate| candidate.start).fold(settled, usize::min)
    }

    /// The position of the first byte that later steps need.
    pub(crate) fn needed(&self) -> usize {
        self.out.saturating_sub(CONTEXT)
    }

    /// Returns the rest, after [`finish`](Self::finish).
    pub(crate) fn emit(&mut self, rules: &Rules, bytes: &[u8], base: usize, out: &mut Vec<u8>) {
        self.emit_to(self.at, rules, bytes, base, out);
    }

    /// Returns what is before the position `to`.
    pub(crate) fn emit_to(
        &mut self,
        to: usize,
        rules: &Rules,
        bytes: &[u8],
        base: usize,
        out: &mut Vec<u8>,
    ) {
        let count = self.found.partition_point(|found| found.start < to);
        for found in self.found.drain(..count) {
            if found.start >= self.covered {
                let from = self.out.max(self.covered);
                out.extend_from_slice(bytes.get(from - base..found.start - base).unwrap_or(&[]));
                out.extend_from_slice(rules.mark(found.value).as_bytes());
                self.out = found.start;
            }
            self.covered = self.covered.max(found.end);
        }
        let from = self.out.max(self.covered);
        if from < to {
            out.extend_from_slice(bytes.get(from - base..to - base).unwrap_or(&[]));
        }
        self.out = self.out.max(to);
    }

    /// Updates the shapes that have begun with the byte that was just read.
    fn step_open(&mut self, byte: u8) {
        let mut open = std::mem::take(&mut self.open);
        open.retain_mut(|candidate| {
            let step = candidate.step(byte);
            if candidate.is_secret {
                let end = if step == Step::Ended { self.at - 1 } else { self.at };
                self.add(Secret { start: candidate.start, end, value: None });
            }
            step == Step::Continues
        });
        // A shape that begins inside a secret of the same alphabet ends with it. Following only the first
        // one keeps the time linear for a sequence of prefixes.
        let mut followed = Vec::new();
        open.retain(|candidate| {
            let alphabet = candidate.alphabet();
            let is_inside = alphabet.is_some() && followed.contains(&alphabet);
            if candidate.is_secret {
                followed.push(alphabet);
            }
            !is_inside
        });
        self.open = open;
    }

    fn take_matches(&mut self, rules: &Rules, bytes: &[u8], base: usize) {
        let mut longest: Option<Secret> = None;
        for (pattern, length) in rules.matches(self.state) {
            let start = self.at - length;
            match pattern {
                Pattern::Value(value) => {
                    if longest.as_ref().is_none_or(|longest| start < longest.start) {
                        longest = Some(Secret { start, end: self.at, value: Some(value) });
                    }
                }
                Pattern::Shape(shape) => {
                    let before = &bytes[..start - base];
                    let is_inside = self.open.iter().any(|candidate| candidate.contains(shape));
                    if is_inside {
                        continue;
                    }
                    if !shape.at_word || begins_word(before) {
                        let start = if shape.keeps_prefix { self.at } else { start };
                        self.open.push(Candidate::new(shape, start));
                    }
                }
            }
        }
        if let Some(found) = longest {
            self.value = self.value.or(found.value);
            self.add(found);
        }
    }

    /// Adds a secret that ends no earlier than the ones before. Overlapping ones become one, with the
    /// name of the one that begins first; a value has precedence over a shape.
    fn add(&mut self, mut new: Secret) {
        while let Some(last) = self.found.last_mut() {
            if new.start >= last.end {
                break;
            }
            new.end = new.end.max(last.end);
            if new.start > last.start {
                last.end = new.end;
                return;
            }
            if new.start == last.start {
                new.value = new.value.or(last.value);
            }
            self.found.pop();
        }
        self.found.push(new);
    }
}
