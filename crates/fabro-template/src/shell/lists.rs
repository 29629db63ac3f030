//! Lists of commands: pipelines, compound commands, simple commands, redirections and here-documents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::flow;
use super::scanner::{End, Flow, MAX_DEPTH, Read, Scan, Scanner, Sinks, Slot};
use super::word::{Syntax, Word, unclear};
use super::{Reading, VALUE};
use crate::misplaced::{Advice, Misplaced};

const COMMENT: Misplaced = Misplaced::new("in a comment", Advice::Variable);
pub(super) const LOOP_NAME: Misplaced =
    Misplaced::new("as the name of a variable or a function", Advice::Fixed);

/// Words of the grammar, where a command may begin.
pub(super) const RESERVED: [&str; 20] = [
    "!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function",
    "if", "in", "select", "then", "until", "while", "{", "}",
];

/// Reads a script in which every NUL stands for a value.
pub(crate) fn read(text: &str) -> Reading {
    read_inner(text, 0)
}

/// Reads a script that stands in so many commands and scripts.
pub(super) fn read_inner(text: &str, depth: usize) -> Reading {
    let values = memchr::memchr_iter(VALUE as u8, text.as_bytes()).count();
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        next: 0,
        depth,
        heredocs: Vec::new(),
        pending: VecDeque::new(),
        reads: Vec::new(),
        reads_last_word: reads_last_word(text),
        redirected: Vec::new(),
        slots: vec![Slot::default(); values],
        decided: 0,
        sinks: Sinks::default(),
        assigned: Vec::new(),
        attributed: BTreeSet::new(),
        arrays: BTreeSet::new(),
        is_any_attributed: false,
        functions: BTreeSet::new(),
        readers: BTreeMap::new(),
        input_names: Vec::new(),
        input_runners: Vec::new(),
    };
    let unclear = scanner.list(End::Text).err();
    scanner.finish(unclear.as_ref())
}

/// `$_`, or `_` alone where a name may stand.
fn reads_last_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_name = |at: Option<&u8>| at.is_some_and(|it| it.is_ascii_alphanumeric() || *it == b'_');
    memchr::memchr_iter(b'_', bytes)
        .any(|at| !is_name(bytes.get(at + 1)) && !is_name(at.checked_sub(1).map(|at| &bytes[at])))
}

/// Values and variables that a command reads from its input.
pub(super) struct Input {
    pub(super) values: Range<usize>,
    pub(super) heredocs: Range<usize>,
    pub(super) reads: Range<usize>,
}

/// A command with everything in it.
pub(super) struct Unit {
    values: Range<usize>,
    heredocs: Range<usize>,
    reads: Range<usize>,
    /// What it makes of its input, in [`Scanner::input_names`].
    input_names: Range<usize>,
    /// It runs what it reads, under this name.
    pub(super) runs_input: Option<String>,
}

/// The most commands of a pipeline that are followed.
const MAX_PIPELINE: usize = 64;

impl Scanner<'_> {
    fn finish(mut self, unclear: Option<&Misplaced>) -> Reading {
        if let Some(unclear) = unclear {
            self.refuse(self.decided..self.slots.len(), unclear);
        }
        let reads_evaluated =
            self.input_names.iter().any(|name| self.sinks.evaluated.contains(name));
        let runs_input = reads_evaluated || !self.input_runners.is_empty();
        if runs_input {
            self.sinks.evaluated.insert("file 0".to_owned());
        }
        let redirected = std::mem::take(&mut self.redirected);
        if !redirected.is_empty() {
            self.flow_since((0, 0, 0), "output exec");
        }
        for to in redirected {
            let name = Some("output exec".to_owned());
            self.assigned.push(Flow { name, to, leads: true, ..Flow::default() });
        }
        for at in 0..self.heredocs.len() {
            if self.heredocs[at].refused.is_some() {
                self.evaluate_documents(at..at + 1);
            }
        }
        self.follow_flows(unclear);
        let unknown = Misplaced::new("in this place", Advice::Variable);
        let heredocs = &self.heredocs;
        let place = |slot: Slot| {
            let heredoc = slot.heredoc.map(|at| &heredocs[at]);
            let refused = slot.refused.or_else(|| heredoc?.refused.clone());
            match (refused, slot.place) {
                (None, Some(place)) if heredoc.is_none_or(|it| it.is_accepted) => Ok(place),
                (refused, _) => Err(refused.unwrap_or_else(|| unknown.clone())),
            }
        };
        self.sinks.evaluated.retain(|name| flow::script_number(name).is_none());
        self.sinks.commands.retain(|name| flow::script_number(name).is_none());
        Reading {
            places: std::mem::take(&mut self.slots).into_iter().map(place).collect(),
            heredocs: self.heredocs.into_iter().map(|it| it.end).collect(),
            evaluated: self.sinks.evaluated,
            commands: self.sinks.commands,
            runs_input,
            is_unclear: unclear.is_some(),
        }
    }

    /// What a text that is run evaluates, and what it has as names of commands.
    pub(super) fn follow_script(&self, name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
        let read = flow::script_number(name).and_then(|at| self.reads.get(at));
        let Some(Read::Script(span)) = read else {
            return (BTreeSet::new(), BTreeSet::new());
        };
        let text = self.text[span.clone()].replace("\\$", "$");
        let inner = read_inner(&text, self.depth + 1);
        let mut evaluated = inner.evaluated;
        if inner.is_unclear {
            evaluated.extend(flow::names(&text));
        }
        let mut commands = inner.commands;
        // Those of the text are not those of this script.
        evaluated.remove(flow::ARGUMENTS);
        commands.remove(flow::ARGUMENTS);
        (evaluated, commands)
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, by: usize) -> Option<u8> {
        self.bytes.get(self.at + by).copied()
    }

    pub(super) fn is(&self, sign: &str) -> bool {
        self.bytes[self.at..].starts_with(sign.as_bytes())
    }

    /// Takes the value here.
    pub(super) fn take(&mut self) -> usize {
        self.at += 1;
        self.next += 1;
        self.next - 1
    }

    /// One character, or one value, that nothing accepts.
    pub(super) fn skip(&mut self) {
        match self.text[self.at..].chars().next() {
            Some(VALUE) => drop(self.take()),
            Some(c) => self.at += c.len_utf8(),
            None => {}
        }
    }

    pub(super) fn deeper(&mut self) -> Scan<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(unclear("inside so many brackets and quotes"));
        }
        Ok(())
    }

    /// Refuses values, unless they are refused for a closer reason.
    pub(super) fn refuse(&mut self, values: Range<usize>, why: &Misplaced) {
        for slot in &mut self.slots[values] {
            slot.refused.get_or_insert_with(|| why.clone());
        }
    }

    pub(super) fn refuse_all(
        &mut self,
        values: Range<usize>,
        heredocs: Range<usize>,
        why: &Misplaced,
    ) {
        self.refuse(values, why);
        for heredoc in &mut self.heredocs[heredocs] {
            heredoc.refused.get_or_insert_with(|| why.clone());
        }
    }

    pub(super) fn accept(&mut self, word: &Word) {
        for (value, place) in &word.direct {
            self.slots[*value].place.get_or_insert_with(|| place.clone());
        }
    }

    /// This part of the script is evaluated: every name in it may be that of a variable.
    pub(super) fn evaluate(&mut self, part: Range<usize>) {
        self.sinks.evaluated.extend(flow::names(&self.text[part]));
    }

    /// Commands up to the end, which is not taken when it is `)`; the word that was the end.
    pub(super) fn list(&mut self, end: End) -> Scan<&'static str> {
        loop {
            self.separators()?;
            if matches!(end, End::Text) {
                self.decided = self.next;
            }
            let reserved = self.reserved();
            match (end, self.peek(), reserved) {
                (End::Text, None, _) | (End::Paren, Some(b')'), _) => return Ok(""),
                (End::CaseItem, Some(b';'), _) => {
                    self.at += if self.is(";;&") { 3 } else { 2 };
                    return Ok(";;");
                }
                (End::CaseItem, _, Some("esac")) => {
                    self.at += 4;
                    return Ok("esac");
                }
                (End::Words(words), _, Some(word)) if words.contains(&word) => {
                    self.at += word.len();
                    return Ok(word);
                }
                (_, None, _) => {
                    return Err(unclear("in a script whose brackets or loops are not closed"));
                }
                (_, Some(b')' | b';' | b'|'), _) => {
                    return Err(unclear("after an unexpected sign"));
                }
                _ => self.pipeline()?,
            }
        }
    }

    /// Whitespace, line ends, comments and what separates commands.
    pub(super) fn separators(&mut self) -> Scan<()> {
        loop {
            match self.peek() {
                Some(b'\n') => self.line_end()?,
                Some(b';') if !matches!(self.peek_at(1), Some(b';' | b'&')) => self.at += 1,
                Some(b'&') if self.peek_at(1) != Some(b'>') => self.at += 1,
                Some(b'|') if self.is("||") => self.at += 2,
                Some(b'#') => self.comment(),
                _ => {
                    let before = self.at;
                    self.whitespace()?;
                    if self.at == before {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Spaces, tabs and joined lines.
    pub(super) fn whitespace(&mut self) -> Scan<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => {
                    self.at += 2;
                    if self.peek() == Some(b'#') {
                        return Err(unclear("after a `#` that begins a joined line"));
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    pub(super) fn whitespace_and_lines(&mut self) -> Scan<()> {
        loop {
            self.whitespace()?;
            match self.peek() {
                Some(b'\n') => self.line_end()?,
                Some(b'#') => self.comment(),
                _ => return Ok(()),
            }
        }
    }

    pub(super) fn comment(&mut self) {
        let start = self.next;
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.skip();
        }
        self.refuse(start..self.next, &COMMENT);
    }

    /// The reserved word that stands here.
    pub(super) fn reserved(&self) -> Option<&'static str> {
        RESERVED.into_iter().find(|word| {
            let after = self.bytes.get(self.at + word.len());
            self.is(word) && after.is_none_or(|byte| b" \t\n;&|()<>".contains(byte))
        })
    }

    pub(super) fn expect(&mut self, words: &[&'static str]) -> Scan<&'static str> {
        match self.reserved().filter(|word| words.contains(word)) {
            Some(word) => {
                self.at += word.len();
                Ok(word)
            }
            None => Err(unclear("after a loop or `case` that cannot be followed")),
        }
    }

    pub(super) fn pipeline(&mut self) -> Scan<()> {
        let mut units = Vec::new();
        loop {
            self.whitespace_and_lines()?;
            self.pipeline_words()?;
            if units.len() == MAX_PIPELINE {
                return Err(unclear("after a pipeline of so many commands"));
            }
            units.push(self.command()?);
            self.whitespace()?;
            if self.peek() != Some(b'|') || self.is("||") {
                break;
            }
            self.at += if self.is("|&") { 2 } else { 1 };
        }
        self.follow_pipeline(&units);
        Ok(())
    }

    /// `!`, and `time` where it is a word of the shell.
    fn pipeline_words(&mut self) -> Scan<()> {
        loop {
            let rest = self.text[self.at..].trim_start_matches("time");
            let is_time = self.is("time") && rest.starts_with([' ', '\t', '\n']);
            let after = rest.trim_start_matches([' ', '\t']);
            let has_other_option = after.starts_with('-') && !after.starts_with("-p ");
            if self.reserved() == Some("!") {
                self.at += 1;
            } else if is_time && !has_other_option {
                self.at += "time".len();
                self.whitespace()?;
                self.at += if self.is("-p ") { 2 } else { 0 };
            } else {
                return Ok(());
            }
            self.whitespace()?;
        }
    }

    /// What each command of a pipeline gets from those before it.
    fn follow_pipeline(&mut self, units: &[Unit]) {
        let mut reader = None;
        for unit in units.iter().rev() {
            if let Some(name) = &reader {
                let place = format!("in what is piped to `{name}`, which runs it");
                let why = Misplaced::of(place, Advice::InnerScript);
                self.refuse_all(unit.values.clone(), unit.heredocs.clone(), &why);
                self.evaluate_reads(unit.reads.clone());
                self.evaluate_documents(unit.heredocs.clone());
            }
            reader = reader.or(unit.runs_input.clone());
        }
        let first = &units[0];
        for unit in &units[1..] {
            let before = Input {
                values: first.values.start..unit.values.start,
                heredocs: first.heredocs.start..unit.heredocs.start,
                reads: first.reads.start..unit.reads.start,
            };
            self.input_flows(&before, unit.input_names.clone());
        }
        self.input_runners.extend(first.runs_input.clone());
    }

    /// What is read from this input may become any of these.
    pub(super) fn input_flows(&mut self, input: &Input, names: Range<usize>) {
        if input.values.is_empty() && input.heredocs.is_empty() && input.reads.is_empty() {
            return;
        }
        let names: BTreeSet<String> = self.input_names[names].iter().cloned().collect();
        for to in names {
            self.assigned.push(Flow {
                values: input.values.clone(),
                heredocs: input.heredocs.clone(),
                reads: input.reads.clone(),
                to,
                leads: true,
                ..Flow::default()
            });
        }
    }

    pub(super) fn command(&mut self) -> Scan<Unit> {
        let from = (self.next, self.heredocs.len(), self.reads.len());
        let names = self.input_names.len();
        let runners = self.input_runners.len();
        let reserved = self.reserved();
        let runs_input = match (self.peek(), reserved) {
            (Some(b'('), _) => {
                if self.is("((") {
                    self.at += 2;
                    self.arithmetic(true)?;
                } else {
                    self.deeper()?;
                    self.at += 1;
                    self.list(End::Paren)?;
                    self.at += 1;
                    self.depth -= 1;
                }
                self.redirections(from, names, runners)?
            }
            (_, Some(word)) => {
                self.at += word.len();
                self.deeper()?;
                self.compound(word)?;
                self.depth -= 1;
                self.redirections(from, names, runners)?
            }
            _ => self.simple()?,
        };
        self.input_runners.truncate(runners);
        Ok(Unit {
            values: from.0..self.next,
            heredocs: from.1..self.heredocs.len(),
            reads: from.2..self.reads.len(),
            input_names: names..self.input_names.len(),
            runs_input,
        })
    }

    pub(super) fn some_word(&mut self, syntax: Syntax) -> Scan<Word> {
        let word = self.word(syntax)?;
        if word.span.is_empty() {
            return Err(unclear("after a sign in an unexpected place"));
        }
        Ok(word)
    }
}
