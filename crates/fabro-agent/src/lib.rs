//! An agent session: turns of a model and tools, durable, compacted, steered.
//!
//! A [`Session`] takes a message and runs turns until the model answers without calling a tool.
//! What happens goes to a [`Journal`] as notes: an answer together with the calls it asks for, each
//! result when its call has ended. Nothing continues before its record is made, so a session that
//! was interrupted anywhere is read back from its notes as a [`Transcript`] and resumes at the last
//! complete turn: no recorded answer is requested again, and a call without a recorded result is
//! shown to the model as interrupted. Its subagents resume with it, and it waits again where it
//! waited for them.
//!
//! ```
//! use std::sync::Arc;
//! use fabro_agent::{MemoryJournal, Parts, Session, Settings, Transcript};
//! use fabro_llm::{Script, TurnCounts};
//! use fabro_tools::{ToolContext, ToolSet};
//! use tokio_util::sync::CancellationToken;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = r#"{"plan": [{"text": "", "tool_calls": [{"name": "look"}]}, {"text": "Done."}]}"#;
//! let model = Arc::new(Script::from_json(script)?.model("plan", &TurnCounts::new()));
//! let journal = Arc::new(MemoryJournal::default());
//! let parts = || Parts {
//!     id: "plan@1".into(),
//!     parent: None,
//!     model: model.clone(),
//!     tools: ToolSet::default(), // without `look`: the call has an error as its result
//!     journal: journal.clone(),
//!     settings: Settings::default(),
//!     context: ToolContext::default(),
//! };
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let cancel = CancellationToken::new();
//! let mut session = Session::new(parts());
//! let answer = session.send("Make a plan".to_owned(), &cancel).await?;
//! assert_eq!((answer.text.as_str(), answer.turns), ("Done.", 2));
//!
//! // After a crash: the answer is there already, and there is no request.
//! let transcript = Transcript::from_notes(&journal.notes(), |blob| {
//!     Err(std::io::Error::other(format!("no such blob: {blob}")))
//! })?;
//! let mut again = Session::new(parts());
//! again.restore(transcript);
//! assert_eq!(again.resume(&cancel).await?, answer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Session::steering`] sends messages between two turns; [`Session::correct`] asks for a better
//!   answer; [`Session::recall`] continues the thread of earlier stages.
//! - The conversation is compacted to fit the model's window as [`Settings::compaction`] says;
//!   [`Session::compact`] does so on request.
//! - [`Settings::subagent_depth`] gives the model tools for subagents: `spawn_agent`,
//!   `send_input`, `wait`, `close_agent`. Their notes name both sessions, what they use and touch
//!   counts as the first one's, and they end with its answer.
//! - [`system_prompt`], [`project_docs`], [`read_skills`] and [`use_skill`] build the system prompt
//!   of an agent.
//!
//! A journal that survives the program stores the notes of each record as JSON: the example `journal` keeps
//! them in a file.
//!
//! An implementor of [`Journal`] may rely on this: records of one session come one after the other,
//! but those of the agents it began come in between; a record is not taken back when the session is
//! canceled; values are whole, however large.
//!
//! # Limits
//!
//! - Text only: no images.
//! - Eight calls that only read run at the same time; all others run one after the other.
//! - A subagent resumes with its session after a crash, unless a tool that it had is gone: then it
//!   is lost, and calls to it say so.
//! - Sessions need a tokio runtime with its clock.

mod calls;
mod conversation;
mod documents;
mod error;
mod journal;
mod ledger;
mod message;
mod prefix;
mod prompt;
mod repeats;
mod session;
mod settings;
mod shorten;
mod skills;
mod steering;
mod subagent_calls;
mod transcript;
mod turn;
mod written_calls;

pub use documents::{DOCUMENT_BYTES, ProjectDocs, project_docs};
pub use error::SessionError;
pub use fabro_compaction::{Overrides, Policy};
pub use journal::{Journal, JournalError, MemoryJournal, Record};
pub use prompt::{SystemInfo, system_prompt};
pub use session::{Answer, Session};
pub use settings::{Live, LiveAnswer, MayAsk, Parts, Price, Settings};
pub use skills::{SKILL_BYTES, Skill, SkillError, read_skills, use_skill};
pub use steering::{Steer, Steering};
pub use subagent_calls::SUBAGENT_TOOLS;
pub use transcript::{CUT_OFF_WARNING, Transcript, TranscriptError, recorded_purpose};

#[cfg(test)]
mod tests;
