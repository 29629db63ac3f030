//! Questions to a person: what can be chosen, what an answer means, and who gives it.
//!
//! [`options`] makes the choices of a gate from its edges, each with a key to type. [`match_answer`]
//! finds out which of them a text means. An [`Interviewer`] gets a [`Question`] and brings back such
//! a text, or says that nobody can answer here: [`TerminalInterviewer`] asks at the terminal,
//! [`QueueInterviewer`] reads prepared answers, [`AutoApprove`] takes the default, [`Unavailable`]
//! never answers, and [`Chain`] tries one after the other.
//!
//! ```
//! use fabro_events::QuestionType;
//! use fabro_gate::{Answer, match_answer, options};
//!
//! let options = options([("[A] Approve", "ship"), ("Revise", "plan"), ("", "archive")]);
//! let keys: Vec<_> = options.iter().map(|option| option.key.as_str()).collect();
//! assert_eq!(keys, ["A", "R", "C"]);
//!
//! let choose = |text| match_answer(&options, false, QuestionType::MultipleChoice, text);
//! assert_eq!(choose("a"), Ok(Answer::Option(0)));
//! assert_eq!(choose("revise"), Ok(Answer::Option(1)));
//! assert_eq!(choose("3"), Ok(Answer::Option(2)));
//! assert_eq!(
//!     choose("perhaps").unwrap_err().to_string(),
//!     r#""perhaps" is no answer: choose [A] Approve, [R] Revise or [C] archive"#
//! );
//! ```
//!
//! # Limits
//!
//! - The terminal is asked one question at a time; others wait for their turn. One whose future is
//!   dropped disappears, and leaves the terminal as it was.
//! - An answer typed at the terminal has at most 100,000 characters, and keys that come before a
//!   question is shown count for it.
//! - Answers are text; nothing here writes down who gave them.

mod answer;
mod interviewer;
mod options;
mod queue;
mod terminal;

pub use answer::{Answer, NoMatch, match_answer};
pub use fabro_types::{accelerator, strip_accelerator};
pub use interviewer::{AskError, AutoApprove, Chain, Interviewer, Question, Reply, Unavailable};
pub use options::options;
pub use queue::{AnswersError, QueueInterviewer};
pub use terminal::TerminalInterviewer;
