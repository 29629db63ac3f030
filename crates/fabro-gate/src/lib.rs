//! Human gates: the options of a question, matching an answer to them, and interviewers.
//!
//! [`options`] makes the options of a gate from its outgoing edges, each with an accelerator key.
//! [`match_answer`] finds the option that a text means. An [`Interviewer`] gets a [`Question`] and
//! replies with such a text, or with [`Reply::Unavailable`]: [`QueueInterviewer`] reads canned
//! answers, [`AutoApprove`] takes the default, [`Unavailable`] never answers, and [`Chain`] falls
//! back to a second one. Prompts at a terminal are in `fabro-terminal`.
//!
//! ```
//! use fabro_events::QuestionType;
//! use fabro_gate::{GateAnswer, match_answer, options};
//!
//! let options = options([("[A] Approve", "ship"), ("Revise", "plan"), ("", "archive")]);
//! let keys: Vec<_> = options.iter().map(|option| option.key.as_str()).collect();
//! assert_eq!(keys, ["A", "R", "C"]);
//!
//! let choose = |text| match_answer(&options, false, None, QuestionType::MultipleChoice, text);
//! assert_eq!(choose("a"), Ok(GateAnswer::Option(0)));
//! assert_eq!(choose("revise"), Ok(GateAnswer::Option(1)));
//! assert_eq!(choose("3"), Ok(GateAnswer::Option(2)));
//! assert_eq!(
//!     choose("perhaps").unwrap_err().to_string(),
//!     r#""perhaps" is not an answer: choose [A] Approve, [R] Revise or [C] archive"#
//! );
//! ```
//!
//! # Limits
//!
//! - Answers are text; who gave them is not recorded here.

mod answer;
mod interviewer;
mod queue;
mod shown;

pub use answer::{GateAnswer, NoMatch, match_answer};
pub use fabro_events::{default_option, gate_options as options};
pub use fabro_types::{accelerator, strip_accelerator};
pub use interviewer::{AskError, AutoApprove, Chain, Interviewer, Question, Reply, Unavailable};
pub use queue::{AnswersError, GateVisit, QueueInterviewer};
pub use shown::shown_lines;
