//! Simple commands, redirections and here-documents.

use super::commands::{self, Verdict};
use super::lists::{Heredoc, LOOP_NAME, RESERVED, Scan, Scanner};
use super::words::{ARITHMETIC, Syntax, Word, unclear, unclosed};
use super::{HeredocEnd, Place, VALUE};
use crate::misplaced::{Advice, Misplaced};

const HEREDOC: Misplaced =
    Misplaced::new("in a here-document that the shell expands", Advice::QuotedEnd);
const HEREDOC_LINE: Misplaced =
    Misplaced::new("in a line that begins like the end of the here-document", Advice::Variable);
const HEREDOC_END: Misplaced = Misplaced::new("as the end of a here-document", Advice::Fixed);
const SPECIAL: Misplaced = Misplaced::new("in a variable that the shell evaluates", Advice::Number);
const ARRAY: Misplaced =
    Misplaced::new("in an array with attributes or computed subscripts", Advice::Variable);

/// A simple command as it is read.
#[derive(Default)]
struct Command {
    words: Vec<Word>,
    /// The targets of redirections.
    inputs: Vec<Word>,
    heredocs: Vec<usize>,
    /// There was `&>`, which ends the command in shells that are not bash.
    is_split: bool,
    has_assignments: bool,
}

impl Scanner<'_> {
    /// A simple command, or the definition of a function.
    pub(super) fn simple(&mut self) -> Scan<Option<String>> {
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
        self.decide(command)
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
        self.functions.extend(command.words.iter().map(|word| word.text.clone()));
        self.whitespace_and_lines()?;
        self.command()?;
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
                self.note_assigned(&word, name.assigns.as_deref().unwrap_or_default(), false);
            }
        }
        self.at += 1;
        if name.has_values() {
            self.refuse(start..self.next, &ARITHMETIC);
        }
        Ok(())
    }

    fn decide_assignment(&mut self, word: &Word) {
        let name = word.assigns.as_deref().unwrap_or_default();
        if commands::is_special_variable(name) {
            self.refuse_all(word.values.clone(), word.heredocs.clone(), &SPECIAL);
        } else {
            self.accept(word);
            self.note_assigned(word, name, false);
        }
    }

    fn decide(&mut self, command: Command) -> Scan<Option<String>> {
        let Command { words, inputs, heredocs, is_split, has_assignments } = command;
        if words.is_empty() && inputs.is_empty() && !has_assignments {
            return Err(unclear("after an empty command"));
        }
        let verdict = if words.is_empty() { Verdict::default() } else { commands::judge(&words) };
        if let Some(unclear) = verdict.unclear {
            return Err(unclear);
        }
        for (index, word) in words.iter().enumerate() {
            let reason = verdict.refused.iter().find(|(range, _)| range.contains(&index));
            let split = is_split.then(|| unclear("after `&>`"));
            match reason.map(|(_, why)| why).or(split.as_ref()) {
                None => {
                    self.accept(word);
                    if let (true, Some(name)) = (word.has_values(), words[0].fixed()) {
                        self.arguments.push((word.values.clone(), name.to_owned()));
                    }
                    if let (true, Some(name)) = (index > 0, &word.assigns) {
                        self.note_assigned(word, name, verdict.declares);
                    }
                }
                Some(why) => {
                    self.refuse_all(word.values.clone(), word.heredocs.clone(), why);
                    self.note_evaluated(word, why);
                }
            }
        }
        let sink = words.iter().chain(&inputs).any(|word| word.has_sink);
        let runs_input = verdict.runs_input.or_else(|| sink.then(|| ">(…)".to_owned()));
        if sink {
            let why = unclear("in a command with `>(…)`");
            for word in &words {
                self.refuse_all(word.values.clone(), word.heredocs.clone(), &why);
            }
        }
        self.attributed.extend(verdict.attributed);
        self.arrays.extend(verdict.arrays);
        self.is_any_attributed |= verdict.any_attributed;
        if words.first().and_then(Word::fixed) == Some("read") {
            for (name, input) in
                words[1..].iter().flat_map(|name| inputs.iter().map(move |it| (name, it)))
            {
                self.note_assigned(input, &name.text, false);
            }
        }
        let why = runs_input.as_ref().map(|name| {
            Misplaced::of(format!("in the input of `{name}`, which runs it"), Advice::InnerScript)
        });
        for word in &inputs {
            match &why {
                Some(why) => self.refuse_all(word.values.clone(), word.heredocs.clone(), why),
                None => self.accept(word),
            }
        }
        for heredoc in heredocs {
            let heredoc = &mut self.heredocs[heredoc];
            heredoc.is_accepted = true;
            if let Some(why) = &why {
                heredoc.refused.get_or_insert_with(|| why.clone());
            }
        }
        Ok(runs_input)
    }

    /// A word that is evaluated: so are the variables in it.
    fn note_evaluated(&mut self, word: &Word, why: &Misplaced) {
        match why.advice {
            Advice::Number => self.evaluate(word.span.clone()),
            Advice::InnerScript => {
                for at in word.reads.clone() {
                    self.evaluated.insert(self.text[self.reads[at].clone()].to_owned());
                }
            }
            _ => {}
        }
    }

    /// Redirections after a compound command.
    pub(super) fn redirections(&mut self) -> Scan<()> {
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
        for word in &command.inputs {
            self.accept(word);
        }
        for heredoc in command.heredocs {
            self.heredocs[heredoc].is_accepted = true;
        }
        Ok(())
    }

    fn redirection(&mut self, command: &mut Command) -> Scan<()> {
        const SIGNS: [&str; 10] = ["<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">"];
        let sign = SIGNS.into_iter().find(|sign| self.is(sign)).unwrap_or_default();
        self.at += sign.len();
        self.whitespace()?;
        let word = self.some_word(Syntax::Argument)?;
        if !matches!(sign, "<<" | "<<-") {
            command.inputs.push(word);
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
        });
        Ok(())
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
        loop {
            if self.at >= self.text.len() {
                return Err(unclosed("<<"));
            }
            let rest = &self.text[self.at..];
            let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
            let bare = if tabs { line.trim_start_matches('\t') } else { line };
            let after = (self.at + line.len() + 1).min(self.text.len());
            let values = memchr::memchr_iter(VALUE as u8, line.as_bytes()).count();
            let values = self.next..self.next + values;
            self.next = values.end;
            self.at = after;
            if bare == word {
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
