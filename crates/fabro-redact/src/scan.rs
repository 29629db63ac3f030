//! One pass over bytes that may come in pieces: what is secret, and what can be let out already.

use aho_corasick::automaton::StateID;

use crate::rules::{Pattern, Rules};
use crate::shapes::{CONTEXT, Candidate, Step, begins_word};

/// Where a scan is. Positions count from the first byte of all, however many pieces came since.
#[derive(Debug)]
pub(crate) struct Scan {
    state: StateID,
    /// The next byte to read.
    at: usize,
    /// Shapes that have begun.
    open: Vec<Candidate>,
    /// What was found and not let out, in order, not overlapping.
    found: Vec<Found>,
    /// The next byte to let out.
    out: usize,
    /// Bytes before this one are secret and have a mark already, if they are not out.
    covered: usize,
    /// The value that ended first.
    value: Option<usize>,
}

#[derive(Debug)]
struct Found {
    start: usize,
    end: usize,
    value: Option<usize>,
}

impl Scan {
    pub(crate) fn new(rules: &Rules) -> Self {
        let (open, found) = (Vec::new(), Vec::new());
        Self { state: rules.start, at: 0, open, found, out: 0, covered: 0, value: None }
    }

    /// The value that ended first.
    pub(crate) fn value(&self) -> Option<usize> {
        self.value
    }

    /// Whether nothing was found that is not out.
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

    /// There are no more bytes.
    pub(crate) fn finish(&mut self) {
        let at = self.at;
        for mut candidate in std::mem::take(&mut self.open) {
            candidate.finish();
            if candidate.is_secret {
                self.add(Found { start: candidate.start, end: at, value: None });
            }
        }
    }

    /// Up to where no later byte changes anything.
    pub(crate) fn settled(&self, rules: &Rules) -> usize {
        let undecided = self.open.iter().filter(|candidate| !candidate.is_secret);
        let settled = self.at - rules.depth(self.state);
        undecided.map(|candidate| candidate.start).fold(settled, usize::min)
    }

    /// The position of the first byte that is needed for what can come yet.
    pub(crate) fn needed(&self) -> usize {
        self.out.saturating_sub(CONTEXT)
    }

    /// Lets out all there is, after [`finish`](Self::finish).
    pub(crate) fn emit(&mut self, rules: &Rules, bytes: &[u8], base: usize, out: &mut Vec<u8>) {
        self.emit_to(self.at, rules, bytes, base, out);
    }

    /// Lets out what comes before the position `to`.
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

    /// What the byte that was just read means for the shapes that have begun.
    fn step_open(&mut self, byte: u8) {
        let mut open = std::mem::take(&mut self.open);
        open.retain_mut(|candidate| {
            let step = candidate.step(byte);
            if candidate.is_secret {
                let end = if step == Step::Ended { self.at - 1 } else { self.at };
                self.add(Found { start: candidate.start, end, value: None });
            }
            step == Step::Goes
        });
        // What begins inside of a secret of the same alphabet ends with it. Following the first one
        // only keeps a row of prefixes from being read once for each.
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
        let mut longest: Option<Found> = None;
        for (pattern, length) in rules.matches(self.state) {
            let start = self.at - length;
            match pattern {
                Pattern::Value(value) => {
                    if longest.as_ref().is_none_or(|longest| start < longest.start) {
                        longest = Some(Found { start, end: self.at, value: Some(value) });
                    }
                }
                Pattern::Shape(shape) => {
                    let before = &bytes[..start - base];
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

    /// Adds what ends no earlier than all that was found before. What overlaps becomes one, under
    /// the name of what begins first; a value's name comes before that of a shape.
    fn add(&mut self, mut new: Found) {
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
