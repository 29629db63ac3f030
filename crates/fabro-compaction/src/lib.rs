//! Keeps long conversations within a model's context window: policy, plan, summary, report.
//!
//! When a conversation has grown too long, its old messages are replaced by one system message,
//! the summary, and the last ones stay as they are. This crate decides when ([`should_compact`])
//! and what ([`plan`]), has a model write the summary or writes one itself ([`compact`],
//! [`compact_deterministic`]), and reports what came of it. It works on any type of message that
//! is a [`Turn`], calls no model of its own accord and needs no async runtime.
//!
//! ```
//! use std::borrow::Cow;
//!
//! use fabro_compaction::{
//!     Files, Meter, Moment, Outcome, Policy, Request, Role, Turn, WindowUse,
//!     compact_deterministic, should_compact,
//! };
//!
//! struct Message(Role, String);
//!
//! impl Turn for Message {
//!     fn role(&self) -> Role {
//!         self.0
//!     }
//!
//!     fn text(&self) -> Cow<'_, str> {
//!         Cow::Borrowed(&self.1)
//!     }
//! }
//!
//! let mut messages = vec![Message(Role::User, "Add a /health endpoint".into())];
//! for number in 0..40 {
//!     let role = if number % 2 == 0 { Role::Assistant } else { Role::User };
//!     messages.push(Message(role, format!("{number}: {}", "a long message ".repeat(20))));
//! }
//!
//! let policy = Policy::fabro();
//! let window = Some(3_500);
//! let mut meter = Meter::default();
//! meter.set_system_prompt("You write code.");
//! meter.track(&messages);
//! let usage = WindowUse { estimated_tokens: meter.tokens(), context_window_size: window };
//! let reason = should_compact(&policy, Moment::AfterAnswer, usage).expect("over 80 % are taken");
//!
//! let files = Files { read: ["src/api.rs".into()].into(), ..Files::default() };
//! let request = Request::new(&policy, reason, window, &files);
//! let outcome = compact_deterministic(&messages, &mut meter, &request);
//! let Outcome::Compacted(compaction) = outcome else { panic!("there is nothing to gain") };
//! compaction.apply(&mut messages, &mut meter, |text| Message(Role::System, text));
//!
//! assert_eq!(messages.len(), 7);
//! assert!(messages[0].1.starts_with("[Context Summary]\n## Goal\nAdd a /health endpoint\n"));
//! assert!(messages[0].1.ends_with("## File Operations\nRead:\n- src/api.rs"));
//! assert!(meter.tokens() < usage.estimated_tokens / 2);
//! ```
//!
//! With a model, implement [`Summarize`] for it and await [`compact`] instead. Where a session
//! asks is the caller's: [`Moment::BeforeCall`] before each call of the model,
//! [`Moment::AfterAnswer`] after each answer, [`Moment::Overflow`] when the model refused the
//! conversation as too long, after which it is sent once more. [`Policy::fabro`],
//! [`Policy::harness`] and [`Policy::strict`] are ready-made answers; [`Overrides`] change them for
//! a user or a single call.
//!
//! What holds for every compaction:
//!
//! - A call and its results stay together, and calls that are still at work stay. What is kept
//!   never begins with a result whose call is gone.
//! - The files that were read and modified are a section of their own, from the caller and from
//!   earlier summaries, never in the model's words.
//! - Where the recent messages are themselves too much, fewer stay, down to the last call with its
//!   results; where that is too much, results are cut to their beginning and their end, of types
//!   that can ([`Turn::with_result`]). After it the conversation is below the window if that can be.
//! - A second summary takes the place of the first and carries it on.
//! - When the model fails, or the summary would be no smaller than what it replaces, nothing
//!   changes. Nothing changes before [`Compaction::apply`] either, so a caller can record the
//!   report first; [`Plan`] can be applied again from the record.
//!
//! # Limits
//!
//! - Only results of tools are cut: the arguments of the last call, and the last message of a user,
//!   stay whole however large they are.
//! - Kept messages may begin with one of the assistant. A provider that wants the user first needs
//!   a message of the user's from whoever sends them.
//! - The estimate knows nothing of what a provider adds to messages, and counts pictures only when
//!   [`Turn::tokens`] is told to.
//! - A summary lists 1,000 files at most, in at most 32,000 characters, and fewer in a small
//!   window; how many more there are is said.
//! - A summary without a model recognises decisions and next steps by English words.

mod compact;
mod cuts;
mod deterministic;
mod files;
mod meter;
mod open;
mod plan;
mod policy;
mod render;
mod sections;
mod summarize;
mod text;
mod turn;

pub use compact::{
    CompactError, Compaction, Outcome, Report, Request, compact, compact_deterministic,
};
pub use cuts::Cut;
pub use deterministic::deterministic_summary;
pub use files::Files;
pub use meter::Meter;
pub use plan::{Plan, plan};
pub use policy::{
    DEFAULT_RESERVE_TOKENS, Moment, Overrides, Policy, Reason, Trigger, WARNING_PERCENT, WindowUse,
    WindowWarning, should_compact,
};
pub use render::{CUT_CHARS, render_old};
pub use summarize::{Summarize, SummarizeError, SummarizeWith, SummaryRequest};
pub use turn::{Arguments, CallRef, ResultRef, Role, SUMMARY_TAG, Turn, is_summary};

#[cfg(test)]
mod tests;
