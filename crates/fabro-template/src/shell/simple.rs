//! Simple commands, redirections and here-documents.

use std::collections::BTreeSet;

use super::commands::{self, Verdict};
use super::flow::{self, ARGUMENTS};
use super::lists::{Input, LOOP_NAME, RESERVED};
use super::scanner::{Flow, Heredoc, Read, Scan, Scanner};
use super::word::{Syntax, Word, is_name, unclear, unclosed};
use super::words::ARITHMETIC;
use super::{HeredocEnd, Place, VALUE};
use crate::code_variables::is_code_variable;
use crate::misplaced::{Advice, Misplaced};

const HEREDOC: Misplaced =
    Misplaced::new("in a here-document that the shell expands", Advice::QuotedEnd);
const HEREDOC_LINE: Misplaced =
    Misplaced::new("in a line that begins like the end of the here-document", Advice::Variable);
const HEREDOC_END: Misplaced = Misplaced::new("as the end of a here-document", Advice::Fixed);
const SPECIAL: Misplaced = Misplaced::new("in a variable that the shell evaluates", Advice::Number);
const ARRAY: Misplaced =
    Misplaced::new("in an array with attributes or computed subscripts", Advice::Variable);

const DUPLICATED: Misplaced =
    Misplaced::new("after `>&` or `<&`, which bash evaluates twice", Advice::Fixed);

/// A simple command as it is read.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "what is known of a command is independent")]
struct Command {
    words: Vec<Word>,
    /// The targets of redirections.
    inputs: Vec<Word>,
    /// The files that are written.
    outputs: Vec<String>,
    /// The descriptors of [`Self::inputs`].
    descriptors: Vec<String>,
    /// It has an input of its own.
    has_stdin: bool,
    /// A redirection gives it a text that is made here: `<<<`, `<<`, `<(…)`.
    is_fed: bool,
    heredocs: Vec<usize>,
    /// There was `&>`, which ends the command in shells that are not bash.
    is_split: bool,
    has_assignments: bool,
}

impl Scanner<'_> {
    /// A simple command, or the definition of a function.
    pub(super) fn simple(&mut self) -> Scan<Option<String>> {
        let runners = self.input_runners.len();
        let from = (self.next, self.heredocs.len(), self.reads.len());
        let mut command = Command::default();
        loop {
            self.whitespace()?;
            match self.peek() {
                None | Some(b'\n' | b';' | b'|' | b')' | b'#') => break,
                Some(b'&') if self.peek_at(1) != Some(b'>') => break,
                Some(b'&') => {
                    command.is_split = true;
                    self.at += 1;
                    self.redirection(&mut command)?;
                }
                Some(b'<' | b'>') if self.peek_at(1) != Some(b'(') => {
                    self.redirection(&mut command)?;
                }
                Some(b'(') => return self.function(&command),
                _ => self.next_word(&mut command)?,
            }
        }
        self.uses(&command);
        for file in &command.outputs {
            self.flow_since(from, file);
        }
        self.copies(&command, from);
        self.decide(command, runners)
    }

    /// The files that its words may name, and the function that it may be.
    fn uses(&mut self, command: &Command) {
        if let Some(first) = command.words.first().filter(|word| word.fixed().is_some()) {
            self.reads.push(Read::Output(first.span.clone()));
        }
        for word in command.words.iter().skip(1).filter(|word| !commands::is_option(word)) {
            self.reads.push(Read::File(word.span.clone()));
        }
        for word in &command.inputs {
            self.reads.push(Read::File(word.span.clone()));
        }
        if commands::prints_state(&command.words) {
            self.reads.push(Read::State);
        }
    }

    /// A program that writes what its files or its input hold to another file.
    fn copies(&mut self, command: &Command, from: (usize, usize, usize)) {
        const TO_LAST: [&str; 6] = ["cp", "install", "ln", "mv", "rsync", "scp"];
        let Some(name) = command.words.first().and_then(commands::name_of) else { return };
        let words = command.words.iter().skip(1);
        if TO_LAST.contains(&name)
            && let Some(file) = words.clone().next_back().and_then(flow::file)
        {
            self.flow_since(from, &file);
        } else if name == "dd" {
            let is_output = |word: &&Word| word.assigns.as_deref() == Some("of");
            for file in words.filter(is_output).filter_map(flow::file) {
                self.flow_since(from, &file);
                self.input_names.push(file);
            }
        }
    }

    /// The body of a function: what it does with its input, those that call it do.
    pub(super) fn function_body(&mut self, name: String) -> Scan<()> {
        let names = self.input_names.len();
        self.functions.insert(name.clone());
        self.whitespace_and_lines()?;
        let from = (self.next, self.heredocs.len(), self.reads.len());
        let body = self.command()?;
        self.flow_since(from, &format!("output {name}"));
        let names: BTreeSet<String> = self.input_names.drain(names..).collect();
        if body.runs_input.is_some() || !names.is_empty() {
            self.readers.insert(name, (body.runs_input, names));
        }
        Ok(())
    }

    fn function(&mut self, command: &Command) -> Scan<Option<String>> {
        let is_name = command.words.len() == 1 && command.inputs.is_empty();
        for word in &command.words {
            self.refuse(word.values.clone(), &LOOP_NAME);
        }
        self.at += 1;
        self.whitespace()?;
        if !is_name || self.peek() != Some(b')') {
            return Err(unclear("after a bracket that cannot be followed"));
        }
        self.at += 1;
        let name = command.words.iter().map(|word| word.text.clone()).collect();
        self.function_body(name)?;
        Ok(None)
    }

    fn next_word(&mut self, command: &mut Command) -> Scan<()> {
        let is_declaration =
            command.words.first().and_then(Word::fixed).is_some_and(commands::is_declaration);
        let can_assign = command.words.is_empty() || is_declaration;
        let syntax = if can_assign { Syntax::Assignable } else { Syntax::Argument };
        let word = self.some_word(syntax)?;
        let is_joined = self.text[word.span.clone()].contains("\\\n");
        if is_joined && RESERVED.contains(&&*word.text) {
            return Err(unclear("after a word of the shell that is written on two lines"));
        }
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        let names_descriptor = word.text.starts_with('{') && word.text.ends_with('}');
        let is_descriptor = matches!(self.peek(), Some(b'<' | b'>'))
            && self.peek_at(1) != Some(b'(')
            && !word.has_values()
            && (is_number && word.is_plain || names_descriptor);
        if is_descriptor {
            return Ok(());
        }
        let is_assignment = can_assign && word.assigns.is_some();
        if is_assignment && word.text.ends_with('=') && self.peek() == Some(b'(') {
            self.array(&word, command, is_declaration)?;
        }
        if command.words.is_empty() && is_assignment {
            self.decide_assignment(&word);
            command.has_assignments = true;
        } else {
            command.words.push(word);
        }
        Ok(())
    }

    /// `NAME=(…)`.
    fn array(&mut self, name: &Word, command: &Command, is_declaration: bool) -> Scan<()> {
        self.at += 1;
        let start = self.next;
        let has_attributes = is_declaration && commands::attributes(&command.words).evaluates;
        self.arrays.extend(name.assigns.clone());
        let mut elements = Vec::new();
        loop {
            self.whitespace_and_lines()?;
            if self.peek() == Some(b')') {
                break;
            }
            let word = self.some_word(Syntax::Argument)?;
            let subscript = word.text.split("]=").next().unwrap_or_default();
            if word.text.starts_with('[') && subscript.contains('\0') || has_attributes {
                self.refuse_all(word.values.clone(), word.heredocs.clone(), &ARRAY);
            } else {
                self.accept(&word);
                elements.push(word);
            }
        }
        self.at += 1;
        // `"${NAME[@]}"` as a command has its first element as a name.
        let is_first = !name.text.ends_with("+=");
        let refused = if elements.is_empty() || !is_first {
            Vec::new()
        } else {
            commands::judge(&elements, self.depth).refused
        };
        for (at, word) in elements.iter().enumerate() {
            let leads = refused.iter().any(|(range, _)| range.contains(&at)) || is_first && at == 0;
            if let Some(flow) = self.flows(word, name.assigns.as_deref().unwrap_or_default()) {
                flow.leads = leads;
            }
        }
        if name.has_values() {
            self.refuse(start..self.next, &ARITHMETIC);
        }
        Ok(())
    }

    fn decide_assignment(&mut self, word: &Word) {
        let name = word.assigns.as_deref().unwrap_or_default();
        if is_code_variable(name) {
            self.refuse_all(word.values.clone(), word.heredocs.clone(), &SPECIAL);
            self.evaluate_reads(word.reads.clone());
            self.sinks.evaluated.extend(flow::file(word));
        } else {
            self.accept(word);
            let leads = commands::leads(word);
            self.names_file(name, word, None);
            if let Some(flow) = self.flows(word, name) {
                flow.leads = leads;
            }
        }
    }

    fn decide(&mut self, command: Command, runners: usize) -> Scan<Option<String>> {
        if command.words.is_empty() && command.inputs.is_empty() && !command.has_assignments {
            return Err(unclear("after an empty command"));
        }
        let verdict = if command.words.is_empty() {
            Verdict::default()
        } else {
            commands::judge(&command.words, self.depth)
        };
        if let Some(unclear) = verdict.unclear {
            return Err(unclear);
        }
        let sink = command.words.iter().chain(&command.inputs).any(|word| word.has_sink);
        if sink {
            let why = unclear("in a command with `>(…)`");
            for word in &command.words {
                self.refuse_all(word.values.clone(), word.heredocs.clone(), &why);
            }
        }
        for (index, word) in command.words.iter().enumerate() {
            self.decide_word(&command, &verdict, index, word);
        }
        self.attributed.extend(verdict.attributed);
        self.arrays.extend(verdict.arrays);
        self.is_any_attributed |= verdict.any_attributed;
        self.sinks.evaluated.extend(verdict.evaluated);
        let name = command.words.first().and_then(Word::fixed).unwrap_or_default().to_owned();
        let (function_runs, function_names) = self.readers.get(&name).cloned().unwrap_or_default();
        let inside = self.input_runners.get(runners).cloned();
        let runs_input = verdict
            .runs_input
            .or_else(|| sink.then(|| ">(…)".to_owned()))
            .or(function_runs)
            .or(inside);
        let names = self.input_names.len();
        self.input_names.extend(function_names);
        self.names_of_input(&name, &command.words);
        self.input_names.extend(command.outputs.iter().cloned());
        if self.reads_last_word
            && let Some(last) = command.words.last()
        {
            self.flows(last, "_");
        }
        self.decide_inputs(&command, runs_input.as_deref(), names);
        if name == "exec" && command.words.len() == 1 {
            self.redirected.extend(command.outputs.iter().cloned());
            for (word, descriptor) in command.inputs.iter().zip(&command.descriptors) {
                self.assigned.push(Flow {
                    name: flow::file(word),
                    to: format!("file {descriptor}"),
                    values: word.values.clone(),
                    reads: word.reads.clone(),
                    leads: true,
                    ..Flow::default()
                });
            }
            if sink {
                return Err(unclear("after `exec` with `>(…)`, which runs what it reads"));
            }
            if command.is_fed {
                let why = unclear("in the input of the rest of the script");
                for word in &command.inputs {
                    self.refuse(word.values.clone(), &why);
                    self.evaluate_reads(word.reads.clone());
                }
                for heredoc in command.heredocs {
                    self.heredocs[heredoc].refused.get_or_insert_with(|| why.clone());
                }
            }
        }
        if command.has_stdin {
            self.input_names.truncate(names);
        }
        Ok(runs_input.filter(|_| !command.has_stdin))
    }

    fn decide_word(&mut self, command: &Command, verdict: &Verdict, index: usize, word: &Word) {
        let words = &command.words;
        if verdict.names.contains(&index) {
            for at in word.reads.clone() {
                let name = self.read_name(at);
                self.sinks.commands.insert(name);
            }
        }
        let is_path = word.text.contains('/') || word.file.as_deref().is_some_and(|it| it != "$@");
        if index == 0 && is_path {
            self.sinks.evaluated.extend(flow::file(word));
        }
        let reason = verdict.refused.iter().find(|(range, _)| range.contains(&index));
        let split = command.is_split.then(|| unclear("after `&>`"));
        for file in &command.outputs {
            self.flows(word, file);
        }
        if let Some(why) = reason.map(|(_, why)| why).or(split.as_ref()) {
            self.refuse_all(word.values.clone(), word.heredocs.clone(), why);
            self.note_evaluated(word, why);
            if verdict.evaluates_reads {
                self.evaluate_reads(word.reads.clone());
            }
            return;
        }
        self.accept(word);
        if index == 0 {
            return;
        }
        if let Some(name) = &word.assigns {
            let leads = commands::leads(word);
            self.names_file(name, word, None);
            if let Some(flow) = self.flows(word, name) {
                flow.by_declaration = verdict.declares;
                flow.leads = leads;
            }
        }
        if let Some(name) = words[0].fixed() {
            let leads = word.has_values() && decides_what_runs(words, index, self.depth);
            self.names_file(ARGUMENTS, word, Some(name));
            if let Some(flow) = self.flows(word, ARGUMENTS) {
                flow.name = None;
                flow.command = Some(name.to_owned());
                flow.leads = leads;
            }
        }
    }

    /// The variables and files that this command makes of its input.
    fn names_of_input(&mut self, name: &str, words: &[Word]) {
        let texts = words.iter().skip(1);
        match name {
            "mapfile" | "read" | "readarray" => {
                self.input_names.push("REPLY".to_owned());
                self.input_names.push("MAPFILE".to_owned());
                if name != "read" && words.iter().any(|word| word.text.starts_with("-C")) {
                    // A function gets each line as an argument.
                    self.input_names.push(ARGUMENTS.to_owned());
                }
                let names = texts.filter(|word| is_name(&word.text)).map(|word| word.text.clone());
                self.input_names.extend(names);
            }
            "getopts" => self.assigned.push(Flow {
                name: Some(ARGUMENTS.to_owned()),
                to: "OPTARG".to_owned(),
                leads: true,
                ..Flow::default()
            }),
            "tee" | "sponge" => self.input_names.extend(texts.filter_map(flow::file)),
            _ => {}
        }
    }

    /// What the redirections of a command give to it.
    fn decide_inputs(&mut self, command: &Command, runs_input: Option<&str>, names: usize) {
        let why = runs_input.map(|name| {
            Misplaced::of(format!("in the input of `{name}`, which runs it"), Advice::InnerScript)
        });
        let names = names..self.input_names.len();
        for word in &command.inputs {
            match &why {
                Some(why) => {
                    self.refuse_all(word.values.clone(), word.heredocs.clone(), why);
                    self.evaluate_reads(word.reads.clone());
                    self.sinks.evaluated.extend(flow::file(word));
                }
                None => self.accept(word),
            }
            let input = Input {
                values: word.values.clone(),
                heredocs: word.heredocs.clone(),
                reads: word.reads.clone(),
            };
            self.input_flows(&input, names.clone());
            self.file_flows(word, names.clone());
            for file in &command.outputs {
                self.flows(word, file);
            }
        }
        for &heredoc in &command.heredocs {
            let document = &mut self.heredocs[heredoc];
            document.is_accepted = true;
            if let Some(why) = &why {
                document.refused.get_or_insert_with(|| why.clone());
            }
            let input = Input { values: 0..0, heredocs: heredoc..heredoc + 1, reads: 0..0 };
            self.input_flows(&input, names.clone());
            for file in &command.outputs {
                self.assigned.push(Flow {
                    heredocs: heredoc..heredoc + 1,
                    to: file.clone(),
                    ..Flow::default()
                });
            }
        }
    }

    /// What is read from the file that this word names may become any of these.
    fn file_flows(&mut self, word: &Word, names: std::ops::Range<usize>) {
        let Some(file) = flow::file(word) else { return };
        let names: BTreeSet<String> = self.input_names[names].iter().cloned().collect();
        for to in names.into_iter().filter(|to| *to != file) {
            let name = Some(file.clone());
            self.assigned.push(Flow { name, to, leads: true, ..Flow::default() });
        }
    }

    /// A word that is evaluated: so are the variables in it.
    fn note_evaluated(&mut self, word: &Word, why: &Misplaced) {
        match why.advice {
            Advice::Number => {
                self.evaluate(word.span.clone());
                self.evaluate_reads(word.reads.clone());
            }
            Advice::InnerScript => self.evaluate_reads(word.reads.clone()),
            _ => {}
        }
    }

    /// Redirections after a compound command.
    /// What it read and ran inside, from these places of [`Scanner::input_names`] and
    /// [`Scanner::input_runners`] on, it reads of them.
    pub(super) fn redirections(
        &mut self,
        from: (usize, usize, usize),
        names: usize,
        runners: usize,
    ) -> Scan<Option<String>> {
        let mut command = Command::default();
        loop {
            self.whitespace()?;
            let digits =
                self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            match self.peek_at(digits) {
                Some(b'<' | b'>') => {
                    self.at += digits;
                    self.redirection(&mut command)?;
                }
                Some(b'&') if digits == 0 && self.is("&>") => {
                    self.at += 1;
                    self.redirection(&mut command)?;
                }
                _ => break,
            }
        }
        let sink = command.inputs.iter().any(|word| word.has_sink);
        if sink {
            return Err(unclear("after `>(…)` with a program that runs what it reads"));
        }
        let runs_input = self.input_runners.get(runners).cloned();
        for file in &command.outputs {
            self.flow_since(from, file);
        }
        self.input_names.extend(command.outputs.iter().cloned());
        self.decide_inputs(&command, runs_input.as_deref(), names);
        if command.has_stdin {
            self.input_names.truncate(names);
        }
        Ok(runs_input.filter(|_| !command.has_stdin))
    }

    fn redirection(&mut self, command: &mut Command) -> Scan<()> {
        const SIGNS: [&str; 10] = ["<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">"];
        let sign = SIGNS.into_iter().find(|sign| self.is(sign)).unwrap_or_default();
        let descriptor = self.at.checked_sub(1).map(|at| self.bytes[at]);
        let name = self.descriptor();
        self.at += sign.len();
        self.whitespace()?;
        let word = self.some_word(Syntax::Argument)?;
        let is_input = sign.starts_with('<');
        let is_other = descriptor.is_some_and(|it| it.is_ascii_digit() && it != b'0');
        command.has_stdin |= is_input && !is_other;
        command.is_fed |= sign.starts_with("<<") || is_input && word.may_split && word.has_values();
        if matches!(sign, ">&" | "<&") {
            self.refuse(word.values.clone(), &DUPLICATED);
            self.evaluate_reads(word.reads.clone());
        }
        let is_descriptor = word.text == "-" || word.text.bytes().all(|it| it.is_ascii_digit());
        if matches!(sign, ">" | ">>" | ">|" | "<>") || sign == ">&" && !is_descriptor {
            command.outputs.extend(flow::file(&word));
        }
        if !matches!(sign, "<<" | "<<-") {
            command.inputs.push(word);
            command.descriptors.push(name);
            return Ok(());
        }
        if word.has_values() {
            self.refuse(word.values, &HEREDOC_END);
            return Err(HEREDOC_END);
        }
        let source = &self.text[word.span.clone()];
        if source.contains(['$', '`', '\n']) {
            return Err(unclear("after a here-document whose end cannot be followed"));
        }
        command.heredocs.push(self.heredocs.len());
        self.pending.push_back(self.heredocs.len());
        let is_quoted = source.contains(['\'', '"', '\\']);
        self.heredocs.push(Heredoc {
            end: HeredocEnd { word: word.text, tabs: sign == "<<-" },
            expands: !is_quoted,
            is_accepted: false,
            refused: None,
            reads: 0..0,
        });
        Ok(())
    }

    /// The descriptor that stands before the redirection here; 0 without one.
    fn descriptor(&self) -> String {
        let before = &self.text[..self.at];
        let digits = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let named = before.strip_suffix('}').and_then(|it| it.rsplit('{').next());
        match named.filter(|name| is_name(name)) {
            Some(name) => format!("${name}"),
            None if digits.len() < before.len() => before[digits.len()..].to_owned(),
            None => "0".to_owned(),
        }
    }

    pub(super) fn line_end(&mut self) -> Scan<()> {
        self.at += 1;
        while let Some(heredoc) = self.pending.pop_front() {
            self.document(heredoc)?;
        }
        Ok(())
    }

    /// The text of a here-document, line by line up to its end.
    fn document(&mut self, heredoc: usize) -> Scan<()> {
        let HeredocEnd { word, tabs } = self.heredocs[heredoc].end.clone();
        let expands = self.heredocs[heredoc].expands;
        let from = (self.at, self.reads.len());
        loop {
            if self.at >= self.text.len() {
                return Err(unclosed("<<"));
            }
            let line_start = self.at;
            let rest = &self.text[self.at..];
            let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
            let bare = if tabs { line.trim_start_matches('\t') } else { line };
            let after = (self.at + line.len() + 1).min(self.text.len());
            let values = memchr::memchr_iter(VALUE as u8, line.as_bytes()).count();
            let values = self.next..self.next + values;
            self.next = values.end;
            self.at = after;
            if bare == word {
                if expands && self.text[from.0..self.at].contains(['$', '`']) {
                    self.uses_any(from.0..self.at);
                } else if !expands {
                    self.may_be_script(from.0..line_start);
                }
                self.heredocs[heredoc].reads = from.1..self.reads.len();
                return Ok(());
            }
            let fixed = bare.split(VALUE).next().unwrap_or_default();
            if expands {
                self.refuse(values, &HEREDOC);
                if line.ends_with('\\') {
                    return Err(unclear("after a here-document with joined lines"));
                }
            } else if !word.is_empty() && fixed.starts_with(&word) {
                self.refuse(values, &HEREDOC_LINE);
            } else {
                for slot in &mut self.slots[values] {
                    slot.place = Some(Place::Heredoc(heredoc));
                    slot.heredoc = Some(heredoc);
                }
            }
        }
    }
}

/// `"$@"` as a command, with these arguments, after the name of a function, would run this one, or
/// hand it to a program that evaluates it.
fn decides_what_runs(words: &[Word], index: usize, depth: usize) -> bool {
    /// Functions such as `retry 5 COMMAND` have some words before the command.
    const MOST_BEFORE: usize = 4;
    let is_before = |word: &Word| {
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        is_number || commands::is_option(word)
    };
    if words[1..index].iter().all(is_before) {
        return true;
    }
    let last = index.min(MOST_BEFORE + 1);
    (1..last).any(|from| {
        let inner = Verdict::of_inner(words, from, depth);
        inner.refused.iter().any(|(range, _)| range.contains(&index))
    })
}
