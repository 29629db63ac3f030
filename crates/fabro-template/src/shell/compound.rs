//! Loops, `case`, `if` and `[[ … ]]`.

use super::commands::leads;
use super::flow::ARGUMENTS;
use super::lists::LOOP_NAME;
use super::scanner::{End, Flow, Scan, Scanner};
use super::word::{Syntax, Word, is_name, unclear};
use crate::misplaced::{Advice, Misplaced};

const COMPARISON: Misplaced = Misplaced::new(
    "in a numeric or `-v` test inside `[[ … ]]`, which shells evaluate",
    Advice::Number,
);

impl Scanner<'_> {
    pub(super) fn compound(&mut self, word: &str) -> Scan<()> {
        match word {
            "{" => drop(self.list(End::Words(&["}"]))?),
            "if" => {
                self.list(End::Words(&["then"]))?;
                loop {
                    match self.list(End::Words(&["elif", "else", "fi"]))? {
                        "elif" => drop(self.list(End::Words(&["then"]))?),
                        "else" => {
                            self.list(End::Words(&["fi"]))?;
                            break;
                        }
                        _ => break,
                    }
                }
            }
            "while" | "until" => {
                self.list(End::Words(&["do"]))?;
                self.list(End::Words(&["done"]))?;
            }
            "for" | "select" => self.for_loop()?,
            "case" => self.case()?,
            "[[" => self.conditional()?,
            "function" => {
                self.whitespace()?;
                let name = self.word(Syntax::Argument)?;
                self.refuse(name.values, &LOOP_NAME);
                self.whitespace()?;
                if self.is("()") {
                    self.at += 2;
                }
                self.function_body(name.text)?;
            }
            _ => return Err(unclear("after a word of the shell in an unexpected place")),
        }
        Ok(())
    }

    fn for_loop(&mut self) -> Scan<()> {
        self.whitespace()?;
        if self.is("((") {
            self.at += 2;
            self.arithmetic(true)?;
        } else {
            let name = self.word(Syntax::Argument)?;
            self.refuse(name.values.clone(), &LOOP_NAME);
            if !is_name(&name.text) {
                return Err(unclear("after a loop that cannot be followed"));
            }
            self.whitespace_and_lines()?;
            if self.reserved() == Some("in") {
                self.at += 2;
                self.loop_words(&name.text)?;
            } else {
                let start = self.reads.len();
                // Without words, the loop iterates over the arguments.
                self.assigned.push(Flow {
                    name: Some(ARGUMENTS.to_owned()),
                    to: name.text.clone(),
                    reads: start..start,
                    leads: true,
                    ..Flow::default()
                });
            }
        }
        loop {
            self.whitespace_and_lines()?;
            if self.peek() != Some(b';') {
                break;
            }
            self.at += 1;
        }
        let close: &'static [&'static str] =
            if self.expect(&["do", "{"])? == "do" { &["done"] } else { &["}"] };
        self.list(End::Words(close)).map(drop)
    }

    fn loop_words(&mut self, name: &str) -> Scan<()> {
        loop {
            self.whitespace()?;
            if matches!(self.peek(), None | Some(b'\n' | b';' | b'#')) {
                return Ok(());
            }
            let word = self.some_word(Syntax::Argument)?;
            self.accept(&word);
            let leads = leads(&word);
            self.names_file(name, &word, None);
            if let Some(flow) = self.flows(&word, name) {
                flow.leads = leads;
            }
        }
    }

    fn case(&mut self) -> Scan<()> {
        self.whitespace_and_lines()?;
        let word = self.some_word(Syntax::Argument)?;
        self.accept(&word);
        self.whitespace_and_lines()?;
        self.expect(&["in"])?;
        loop {
            self.whitespace_and_lines()?;
            if self.reserved() == Some("esac") {
                self.at += 4;
                return Ok(());
            }
            if self.peek() == Some(b'(') {
                self.at += 1;
            }
            loop {
                self.whitespace()?;
                let pattern = self.some_word(Syntax::Argument)?;
                self.accept(&pattern);
                self.whitespace()?;
                match self.peek() {
                    Some(b'|') => self.at += 1,
                    Some(b')') => break,
                    _ => return Err(unclear("after a pattern that cannot be followed")),
                }
            }
            self.at += 1;
            if self.list(End::CaseItem)? == "esac" {
                return Ok(());
            }
        }
    }

    /// `[[ … ]]`, clause by clause.
    fn conditional(&mut self) -> Scan<()> {
        let mut clause: Vec<Word> = Vec::new();
        loop {
            self.whitespace_and_lines()?;
            let is_end = self.is("]]");
            if is_end || matches!(self.peek(), Some(b'(' | b')')) || self.is("&&") || self.is("||")
            {
                self.at += if matches!(self.peek(), Some(b'(' | b')')) { 1 } else { 2 };
                self.decide_clause(&std::mem::take(&mut clause));
                if is_end {
                    return Ok(());
                }
                continue;
            }
            if matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) != Some(b'(') {
                self.at += 1;
                continue;
            }
            let is_regex = clause.last().is_some_and(|word| word.is_plain && word.text == "=~");
            let syntax = if is_regex { Syntax::Regex } else { Syntax::Argument };
            clause.push(self.some_word(syntax)?);
        }
    }

    fn decide_clause(&mut self, clause: &[Word]) {
        const EVALUATING: [&str; 10] =
            ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R", "-o", "-t"];
        let evaluates = clause.iter().any(|word| EVALUATING.contains(&&*word.text));
        for word in clause {
            if evaluates {
                self.refuse_all(word.values.clone(), word.heredocs.clone(), &COMPARISON);
                self.evaluate(word.span.clone());
            } else {
                self.accept(word);
                // What `=~` matched is kept in an array.
                self.flows(word, "BASH_REMATCH");
            }
        }
    }
}
