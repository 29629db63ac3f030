//! Keeps long conversations within a model's context window: policy, plan, summary, report.
//!
//! When a conversation has grown too long, its old messages are replaced by one system message,
//! the summary, and the last ones stay as they are. [`Compactor::compact`] does all of it: it
//! checks the threshold, plans, has a model write the summary, replaces the messages and reports.
//! It works on any type of message that is a [`Turn`], and needs no async runtime. JSON messages of
//! `OpenAI`'s chat completions (`serde_json::Value`) are turns already:
//!
//! ```
//! use fabro_compaction::{Compactor, Moment, Policy, SummaryRequest};
//!
//! # let list = include_str!("../examples/conversation.json");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let mut messages: Vec<serde_json::Value> = serde_json::from_str(list)?;
//! let model = async |request: SummaryRequest| Ok("## Goal\nA /health endpoint".to_owned());
//! let mut compactor = Compactor::new(Policy::fabro(), 3_500);
//! let report = compactor.compact(&mut messages, Moment::Manual, Some(&model)).await?;
//! # let report = report.ok_or("nothing was compacted")?;
//! assert_eq!(messages.len(), report.messages_after);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Without a model ([`None`]) the summary is deterministic. Call it with [`Moment::BeforeCall`]
//! before each call of the model, [`Moment::AfterAnswer`] after each answer, and
//! [`Moment::Overflow`] when the model refused the conversation as too long, before the retry.
//! [`Policy::fabro`], [`Policy::harness`] and [`Policy::strict`] are the usual policies;
//! [`Overrides`] change them for a user or a single call.
//!
//! What holds for every compaction:
//!
//! - A call and its results stay together, and calls that are still running stay. What is kept
//!   never begins with a result whose call is gone.
//! - The files that were read and modified are a section of their own, from the caller and from
//!   earlier summaries, never in the model's words.
//! - Where the recent messages are themselves too much, fewer stay, down to the last call with its
//!   results; where that is too much, results are cut to their beginning and their end, of types
//!   that can ([`Turn::with_result`]). After it the conversation is below the window if that can be.
//! - A second summary replaces the first and includes it.
//! - When the model fails, or the summary would be no smaller than what it replaces, nothing
//!   changes. A caller that records the report first uses [`Compactor::prepare`], after which
//!   nothing changes before [`Compaction::apply`]; [`Plan`] can be applied again from the record.
//!
//! # Limits
//!
//! - Only results of tools are cut: the arguments of the last call, and the last message of a user,
//!   stay whole however large they are.
//! - Kept messages may begin with one of the assistant. A provider that wants the user first needs
//!   a user message from the caller.
//! - The estimate knows nothing of what a provider adds to messages, and counts images only when
//!   [`Turn::tokens`] does.
//! - A summary lists 1,000 files at most, in at most 32,000 characters, and fewer in a small
//!   window, with the number of those left out.
//! - A summary without a model recognises decisions and next steps by English words.

mod compactor;
mod cuts;
mod deterministic;
mod draft;
mod files;
mod meter;
mod open;
mod openai;
mod plan;
mod policy;
mod render;
mod sections;
mod summarize;
mod text;
mod turn;

pub use compactor::{CompactError, Compaction, CompactionOutcome, Compactor, Report};
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
pub use summarize::{Summarize, SummarizeError, SummaryRequest};
pub use turn::{Arguments, CallRef, ResultRef, Role, SUMMARY_TAG, Turn, is_summary};

#[cfg(test)]
mod tests;
