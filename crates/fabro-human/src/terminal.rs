use std::io::{IsTerminal, Write};
use std::sync::Arc;

use async_trait::async_trait;
use fabro_events::{GateOption, QuestionType};
use inquire::validator::{ErrorMessage, Validation};
use inquire::{InquireError, MultiSelect, Select, Text};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::Mutex;

use crate::{AskError, Interviewer, Question, Reply, match_answer};

/// Asks at the terminal, on standard error. The source is `terminal`.
///
/// Options are chosen with the arrow keys, or by typing a key, a number or a part of the label.
/// Where free text is taken, all is typed, and refused until it means something. Where standard
/// input or standard error is no terminal, nobody is there to answer.
///
/// An open prompt keeps a thread of the tokio runtime. A program that ends while one is open should
/// end its runtime with `shutdown_background`.
#[derive(Clone, Debug, Default)]
pub struct TerminalInterviewer {
    /// Two prompts at once would draw over each other and share the keys.
    one_at_a_time: Arc<Mutex<()>>,
}

impl TerminalInterviewer {
    /// Asks at the terminal of this process.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Interviewer for TerminalInterviewer {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Ok(Reply::Unavailable);
        }
        let turn = self.one_at_a_time.clone().lock_owned().await;
        let question = displayable(question);
        let mut saved = SavedTerminal::new();
        let prompt = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            prompt(&question)
        });
        let answered = prompt.await;
        saved.keep();
        match answered {
            Ok(Ok(text)) => Ok(Reply::Answer { text, source: "terminal" }),
            Ok(Err(InquireError::NotTTY)) => Ok(Reply::Unavailable),
            Ok(Err(InquireError::OperationCanceled | InquireError::OperationInterrupted)) => {
                Err(AskError::Interrupted)
            }
            Ok(Err(error)) => Err(AskError::Terminal { reason: error.to_string() }),
            Err(error) => Err(AskError::Terminal { reason: error.to_string() }),
        }
    }
}

/// What an open prompt has changed besides the terminal's settings: it has pasted text marked, and
/// may have hidden the cursor.
const PASTE_OFF_CURSOR_ON: &[u8] = b"\x1b[?2004l\x1b[?25h\r\n";

/// Puts the terminal back as it was when a question is called off with its prompt still open.
struct SavedTerminal(Option<Termios>);

impl SavedTerminal {
    fn new() -> Self {
        Self(tcgetattr(std::io::stdin()).ok())
    }

    /// The prompt has put the terminal back itself.
    fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for SavedTerminal {
    fn drop(&mut self) {
        if let Some(settings) = &self.0 {
            // A terminal that is gone needs no settings.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, settings);
            let _ = std::io::stderr().write_all(PASTE_OFF_CURSOR_ON);
        }
    }
}

fn prompt(question: &Question) -> Result<String, InquireError> {
    if let Some(preview) = &question.preview {
        writeln!(std::io::stderr(), "{}", preview.trim_end())?;
    }
    let items: Vec<_> = question.options.iter().map(item).collect();
    let typed = question.freeform
        || question.question_type == QuestionType::Freeform
        || question.options.is_empty();
    if typed {
        return type_answer(question, &items);
    }
    let filter =
        |input: &str, _: &String, _: &str, index: usize| score(input, &question.options, index);
    let key = |index: usize| question.options.get(index).map(|option| option.key.clone());
    if question.question_type == QuestionType::MultiSelect {
        let chosen = MultiSelect::new(&question.text, items)
            .with_scorer(&filter)
            .with_validator(|chosen: &[inquire::list_option::ListOption<&String>]| {
                Ok(if chosen.is_empty() {
                    Validation::Invalid(ErrorMessage::Custom("choose at least one".to_owned()))
                } else {
                    Validation::Valid
                })
            })
            .raw_prompt()?;
        let keys: Vec<_> = chosen.iter().filter_map(|chosen| key(chosen.index)).collect();
        return Ok(keys.join(","));
    }
    let chosen = Select::new(&question.text, items).with_scorer(&filter).raw_prompt()?;
    Ok(key(chosen.index).unwrap_or_default())
}

fn type_answer(question: &Question, items: &[String]) -> Result<String, InquireError> {
    let means_something = {
        let question = question.clone();
        move |text: &str| {
            let Question { options, freeform, question_type, .. } = &question;
            Ok(match match_answer(options, *freeform, *question_type, text) {
                Ok(_) => Validation::Valid,
                Err(error) => Validation::Invalid(ErrorMessage::Custom(error.to_string())),
            })
        }
    };
    let help = items.join("  ") + if items.is_empty() { "" } else { "  or your own words" };
    let prompt = Text::new(&question.text).with_validator(means_something);
    if items.is_empty() { prompt.prompt() } else { prompt.with_help_message(&help).prompt() }
}

fn item(option: &GateOption) -> String {
    format!("[{}] {}", option.key, option.label)
}

/// Keeps the options that what was typed can mean: the one with this key or number, else those with
/// this in their label; in the order they came.
fn score(input: &str, options: &[GateOption], index: usize) -> Option<i64> {
    let place = -i64::try_from(index).unwrap_or(i64::MAX);
    let input = input.trim().to_lowercase();
    let exact = options
        .iter()
        .position(|option| option.key.to_lowercase() == input)
        .or_else(|| input.parse::<usize>().ok()?.checked_sub(1))
        .filter(|&exact| exact < options.len());
    let kept = match exact {
        Some(exact) => exact == index,
        None => options.get(index)?.label.to_lowercase().contains(&input),
    };
    kept.then_some(place)
}

/// The question without what would steer the terminal: its texts can come from a model.
fn displayable(question: &Question) -> Question {
    let mut question = question.clone();
    question.text = plain(&question.text);
    question.preview = question.preview.as_deref().map(plain);
    for option in &mut question.options {
        option.label = plain(&option.label);
    }
    question
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    #[track_caller]
    fn check(input: &str, expected: &[usize]) {
        let options = options([("[A] Approve", "a"), ("[R] Revise", "b"), ("[S] Save all", "c")]);
        let kept: Vec<_> =
            (0..options.len()).filter(|&index| score(input, &options, index).is_some()).collect();
        assert_eq!(kept, expected, "{input:?}");
    }

    #[test]
    fn typing_narrows_the_options() {
        check("", &[0, 1, 2]);
        check("a", &[0]);
        check("2", &[1]);
        check("s", &[2]);
        check("se", &[1]);
        check("v", &[0, 1, 2]);
        check("x", &[]);
        check("4", &[]);
        check("0", &[]);
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\r\n\tc\u{9b}d\u{7}"), "a[2Jb\n\tcd");
        let question = Question {
            text: "\u{1b}x".to_owned(),
            preview: Some("\u{7}y".to_owned()),
            options: options([("z\u{1b}", "z")]),
            ..Question::default()
        };
        let shown = displayable(&question);
        assert_eq!((shown.text.as_str(), shown.preview.as_deref()), ("x", Some("y")));
        assert_eq!(shown.options[0].label, "z");
    }
}
