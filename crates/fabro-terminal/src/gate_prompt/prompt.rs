//! The state of a question at the terminal: the effect of each key.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use fabro_events::{GateOption, QuestionType};
use fabro_gate::{GateAnswer, NoMatch, Question, match_answer};
use fabro_types::clean;

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
    /// How long the gate still waits, when it has a limit.
    pub(super) time_left: Option<Duration>,
    /// The number of other questions that wait for the terminal.
    pub(super) queued: usize,
}

/// The input of the answer.
#[derive(Debug)]
pub(super) enum Input {
    /// A text field.
    Text {
        chars: Vec<char>,
        /// The cursor: the index at which the next character is inserted.
        at: usize,
        /// The key of the free-text edge was entered: what is typed now is its text.
        is_for_edge: bool,
    },
    /// A list of options.
    List(OptionList),
}

/// The state of a list of options.
#[derive(Debug)]
pub(super) struct OptionList {
    /// The option under the highlight.
    pub(super) at: usize,
    /// The marked options, where several can be chosen.
    pub(super) marked: Option<BTreeSet<usize>>,
    /// The characters typed to find an option.
    typed: String,
    /// What was typed fits no option: nothing is highlighted, and Enter chooses nothing.
    pub(super) is_lost: bool,
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
            Input::Text { chars: Vec::new(), at: 0, is_for_edge: false }
        } else {
            let is_available = |option: &GateOption| option.unavailable.is_none();
            let at = question.options.iter().position(is_available).unwrap_or_default();
            let marked = is_multi.then(BTreeSet::new);
            Input::List(OptionList { at, marked, typed: String::new(), is_lost: false })
        };
        Self { question, input, note: None, time_left: None, queued: 0 }
    }

    pub(super) fn key(&mut self, key: Key) -> Step {
        match (key, &mut self.input) {
            (Key::Interrupt, _) => return Step::Interrupted,
            (Key::Esc, Input::Text { is_for_edge, .. }) if *is_for_edge => {
                *is_for_edge = false;
                self.note = None;
            }
            (Key::Esc, _) => return Step::Postponed,
            (Key::Enter, _) => return self.enter(),
            (key, Input::Text { chars, at, .. }) => self.note = edit(chars, at, key),
            (key, Input::List(list)) => match list.key(&self.question, key) {
                Change::None => {}
                Change::Done => self.note = None,
                Change::Refused(note) => self.note = Some(note),
            },
        }
        Step::Unfinished
    }

    fn enter(&mut self) -> Step {
        let entered = match &mut self.input {
            Input::Text { chars, at, is_for_edge } => {
                let text: String = chars.iter().collect();
                match (is_for_edge, &self.question.text_option) {
                    (true, Some(edge)) if text.trim().is_empty() => {
                        let name = format!("[{}] {}", edge.key, edge.label);
                        Err(format!("write the text for {name}, or press Esc to choose again"))
                    }
                    (true, Some(edge)) => Ok(format!("[{}] {text}", edge.key)),
                    (is_for_edge, _) => match self.question.read(&text) {
                        Ok(GateAnswer::Text(text)) if text.is_empty() => {
                            chars.clear();
                            *at = 0;
                            *is_for_edge = true;
                            self.note = None;
                            return Step::Unfinished;
                        }
                        Ok(_) => Ok(text),
                        Err(error) => Err(error.to_string()),
                    },
                }
            }
            Input::List(list) if list.is_lost => {
                // What is typed next is a new search.
                list.typed.clear();
                return Step::Unfinished;
            }
            Input::List(list) => {
                list.typed.clear();
                list.chosen(&self.question)
            }
        };
        match entered {
            Ok(text) => Step::Answered(text),
            Err(note) => {
                self.note = Some(note);
                Step::Unfinished
            }
        }
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

/// Whether a character is safe to print: control characters would move the cursor, and those that set
/// the direction of writing would show another text than the one that is answered.
pub(super) fn is_printable(c: char) -> bool {
    let is_joiner = matches!(c, '\u{200c}' | '\u{200d}');
    is_joiner || matches!(clean(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_))
}

/// What a key does to a list.
enum Change {
    /// Nothing: an error stays.
    None,
    /// The list is ready for Enter.
    Done,
    /// The key is refused, for this reason.
    Refused(String),
}

impl OptionList {
    fn key(&mut self, question: &Question, key: Key) -> Change {
        let last = question.options.len().saturating_sub(1);
        match key {
            Key::Char(c) if c.is_whitespace() && self.is_lost => return Change::None,
            Key::Char(' ') if self.marked.is_some() => return self.mark(question),
            Key::Char(c) if c.is_whitespace() && self.typed.is_empty() => return Change::None,
            Key::Char(c) => return self.search(question, &c.to_string()),
            Key::Paste(text) => return self.search(question, text.trim()),
            Key::Backspace => {
                self.typed.pop();
                if !self.typed.is_empty() {
                    return self.search(question, "");
                }
            }
            Key::EraseLine | Key::EraseWord => {}
            Key::Up => self.at = self.at.checked_sub(1).unwrap_or(last),
            Key::Down => self.at = if self.at < last { self.at + 1 } else { 0 },
            Key::Home => self.at = 0,
            Key::End => self.at = last,
            _ => return Change::None,
        }
        self.typed.clear();
        self.is_lost = false;
        Change::Done
    }

    fn mark(&mut self, question: &Question) -> Change {
        self.typed.clear();
        if let Some(refusal) = refusal(question, self.at) {
            return Change::Refused(refusal);
        }
        if let Some(marked) = &mut self.marked
            && !marked.remove(&self.at)
        {
            marked.insert(self.at);
        }
        Change::Done
    }

    /// Looks for what was typed, with this behind it. One key after another is another choice.
    fn search(&mut self, question: &Question, text: &str) -> Change {
        let left = MAX_ANSWER_CHARS.saturating_sub(self.typed.len());
        let longer: String = self.typed.chars().chain(text.chars().take(left)).collect();
        let mut found = find(question, &longer);
        let is_other_key = found.is_none()
            && !self.is_lost
            && [self.typed.as_str(), text].iter().all(|typed| is_letter_key(question, typed));
        if is_other_key {
            self.typed.clear();
            found = find(question, text);
            self.typed.push_str(text);
        } else {
            self.typed = longer;
        }
        self.is_lost = found.is_none();
        if let Some(found) = found {
            self.at = found;
            return Change::Done;
        }
        let mut shown: String =
            self.typed.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect();
        if self.typed.chars().count() > MAX_SHOWN_CHARS {
            shown.push('…');
        }
        Change::Refused(format!("no option for \"{shown}\": Backspace erases it, or use ↑↓"))
    }

    /// The answer at Enter, or why there is none.
    fn chosen(&self, question: &Question) -> Result<String, String> {
        let key = |index: &usize| question.options.get(*index).map(|option| option.key.as_str());
        match &self.marked {
            Some(marked) if marked.is_empty() => {
                Err("choose at least one: the space bar marks it".to_owned())
            }
            Some(marked) => Ok(marked.iter().filter_map(key).collect::<Vec<_>>().join(",")),
            None => match refusal(question, self.at) {
                Some(refusal) => Err(refusal),
                None => Ok(key(&self.at).unwrap_or_default().to_owned()),
            },
        }
    }
}

/// Why the option at this place cannot be chosen, if it cannot.
fn refusal(question: &Question, at: usize) -> Option<String> {
    let option = question.options.get(at)?;
    let reason = option.unavailable.as_ref()?;
    Some(format!("[{}] {} cannot be chosen: {reason}", option.key, option.label))
}

fn is_letter_key(question: &Question, text: &str) -> bool {
    let text = text.to_lowercase();
    text.chars().all(char::is_alphabetic)
        && question.options.iter().any(|option| option.key.to_lowercase() == text)
}

/// The option that matches a text, else the first one that begins with it.
fn find(question: &Question, text: &str) -> Option<usize> {
    let question_type = match question.question_type {
        QuestionType::MultiSelect => QuestionType::MultipleChoice,
        other => other,
    };
    let text = text.trim();
    match match_answer(&question.options, false, None, question_type, text) {
        Ok(GateAnswer::Option(index)) | Err(NoMatch { refused: Some(index), .. }) => {
            return Some(index);
        }
        _ if text.is_empty() => return None,
        _ => {}
    }
    let text = text.to_lowercase();
    let begins = |option: &GateOption| {
        [&option.key, &option.label].iter().any(|it| it.to_lowercase().starts_with(&text))
    };
    question.options.iter().position(begins)
}
