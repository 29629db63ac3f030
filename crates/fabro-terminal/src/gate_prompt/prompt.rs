//! The state of a question at the terminal: the effect of each key.

use std::collections::BTreeSet;

use fabro_events::{GateOption, QuestionType};
use fabro_gate::{GateAnswer, Question, match_answer};

use super::keys::Key;

/// The length limit of a typed answer, in characters.
const MAX_ANSWER_CHARS: usize = 100_000;

/// How much of a text that matches no option a message shows, in characters.
const MAX_SHOWN_CHARS: usize = 40;

/// A question with its unfinished answer.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) question: Question,
    pub(super) input: Input,
    /// Why the last key was refused.
    pub(super) note: Option<String>,
}

/// The input of the answer.
#[derive(Debug)]
pub(super) enum Input {
    /// A text field.
    Text {
        chars: Vec<char>,
        /// The cursor: the index at which the next character is inserted.
        at: usize,
    },
    /// A list of options.
    List {
        at: usize,
        /// The marked options, where several can be chosen.
        marked: Option<BTreeSet<usize>>,
        /// The characters typed to find an option.
        typed: String,
    },
}

/// The result of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Unfinished,
    Answered(String),
    /// Escape: to be answered later.
    Postponed,
    /// Ctrl-C.
    Interrupted,
}

impl Prompt {
    pub(super) fn new(question: Question) -> Self {
        let is_typed = question.freeform
            || question.question_type == QuestionType::Freeform
            || question.options.is_empty();
        let is_multi = question.question_type == QuestionType::MultiSelect;
        let input = if is_typed {
            Input::Text { chars: Vec::new(), at: 0 }
        } else {
            Input::List { at: 0, marked: is_multi.then(BTreeSet::new), typed: String::new() }
        };
        Self { question, input, note: None }
    }

    pub(super) fn key(&mut self, key: Key) -> Step {
        self.note = None;
        match key {
            Key::Esc => Step::Postponed,
            Key::Interrupt => Step::Interrupted,
            Key::Enter => self.enter(),
            key => {
                self.note = match &mut self.input {
                    Input::Text { chars, at } => edit(chars, at, key),
                    Input::List { at, marked, typed } => {
                        choose(&self.question, at, marked.as_mut(), typed, key)
                    }
                };
                Step::Unfinished
            }
        }
    }

    fn enter(&mut self) -> Step {
        let options = &self.question.options;
        let key = |index: &usize| options.get(*index).map(|option| option.key.as_str());
        match &self.input {
            Input::Text { chars, .. } => {
                let text: String = chars.iter().collect();
                let Question { options, freeform, question_type, .. } = &self.question;
                match match_answer(options, *freeform, *question_type, &text) {
                    Ok(_) => return Step::Answered(text),
                    Err(error) => self.note = Some(error.to_string()),
                }
            }
            Input::List { marked: Some(marked), .. } if marked.is_empty() => {
                self.note = Some("choose at least one: the space bar marks it".to_owned());
            }
            Input::List { marked: Some(marked), .. } => {
                return Step::Answered(marked.iter().filter_map(key).collect::<Vec<_>>().join(","));
            }
            Input::List { at, .. } => {
                return Step::Answered(key(at).unwrap_or_default().to_owned());
            }
        }
        Step::Unfinished
    }
}

fn edit(chars: &mut Vec<char>, at: &mut usize, key: Key) -> Option<String> {
    match key {
        Key::Char(c) => return insert(chars, at, &[c]),
        Key::Paste(text) => {
            let text = text.replace("\r\n", "\n").replace('\r', "\n");
            let text: Vec<_> = text.chars().filter(|&c| is_printable(c)).collect();
            return insert(chars, at, &text);
        }
        Key::Left => *at = at.saturating_sub(1),
        Key::Right => *at = chars.len().min(*at + 1),
        Key::Home | Key::Up => *at = 0,
        Key::End | Key::Down => *at = chars.len(),
        Key::Backspace if *at > 0 => {
            *at -= 1;
            chars.remove(*at);
        }
        Key::Delete if *at < chars.len() => {
            chars.remove(*at);
        }
        Key::EraseLine => {
            chars.drain(..*at);
            *at = 0;
        }
        Key::EraseWord => {
            let before = chars[..*at].iter();
            let word = before.rev().skip_while(|c| c.is_whitespace());
            let kept = word.skip_while(|c| !c.is_whitespace()).count();
            chars.drain(kept..*at);
            *at = kept;
        }
        _ => {}
    }
    None
}

fn insert(chars: &mut Vec<char>, at: &mut usize, text: &[char]) -> Option<String> {
    let fitting = text.len().min(MAX_ANSWER_CHARS.saturating_sub(chars.len()));
    chars.splice(*at..*at, text[..fitting].iter().copied());
    *at += fitting;
    (fitting < text.len()).then(|| format!("an answer has at most {MAX_ANSWER_CHARS} characters"))
}

/// Whether a character is safe to print: control characters would move the cursor.
pub(super) fn is_printable(c: char) -> bool {
    !c.is_control() || matches!(c, '\n' | '\t')
}

fn choose(
    question: &Question,
    at: &mut usize,
    marked: Option<&mut BTreeSet<usize>>,
    typed: &mut String,
    key: Key,
) -> Option<String> {
    let count = question.options.len();
    let text = match key {
        Key::Char(' ') if let Some(marked) = marked => {
            typed.clear();
            if !marked.remove(at) {
                marked.insert(*at);
            }
            return None;
        }
        Key::Char(c) => c.to_string(),
        Key::Paste(text) => text.trim().to_owned(),
        Key::Backspace => {
            typed.pop();
            return None;
        }
        moved => {
            typed.clear();
            match moved {
                Key::Up => *at = at.checked_sub(1).unwrap_or(count.saturating_sub(1)),
                Key::Down => *at = (*at + 1) % count.max(1),
                Key::Home => *at = 0,
                Key::End => *at = count.saturating_sub(1),
                _ => {}
            }
            return None;
        }
    };
    typed.push_str(&text);
    if find(question, typed).is_none() {
        // Start a new search.
        typed.clone_from(&text);
    }
    if let Some(found) = find(question, typed) {
        *at = found;
        return None;
    }
    let shown = std::mem::take(typed);
    let shown: String = shown.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect();
    Some(format!("no option for \"{shown}\""))
}

/// The option that matches a text, else the first one that begins with it.
fn find(question: &Question, text: &str) -> Option<usize> {
    let question_type = match question.question_type {
        QuestionType::MultiSelect => QuestionType::MultipleChoice,
        other => other,
    };
    let text = text.trim();
    match match_answer(&question.options, false, question_type, text) {
        Ok(GateAnswer::Option(index)) => return Some(index),
        _ if text.is_empty() => return None,
        _ => {}
    }
    let text = text.to_lowercase();
    let begins = |option: &GateOption| {
        [&option.key, &option.label].iter().any(|it| it.to_lowercase().starts_with(&text))
    };
    question.options.iter().position(begins)
}
