//! Keeps long conversations within a model's context window: policy, plan, summary, report.
//!
//! When a conversation has grown too long, its old messages are replaced by one system message,
//! the summary, and the last ones stay as they are. [`Compactor::compact`] does all of it: it
//! checks the threshold, plans, has a model write the summary, replaces the messages and reports.
//! It works on any type of message that is a [`Turn`], and needs no async runtime. JSON messages of
//! `OpenAI`'s chat completions (`serde_json::Value`) are turns already:
//!
//! ```
//! use fabro_compaction::{CompactionResult, Compactor, Moment, Policy, SummaryRequest};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut messages = vec![json!({"role": "user", "content": "Add a /health endpoint"})];
//! for step in 1..=20 {
//!     let text = format!("Step {step}: {}", "I read one more file. ".repeat(20));
//!     messages.push(json!({"role": "assistant", "content": text}));
//! }
//! let model = async |_: SummaryRequest| Ok("## Goal\nA /health endpoint".to_owned());
//! let mut compactor = Compactor::new(Policy::fabro(), 3_500);
//! match compactor.compact(&mut messages, Moment::Manual, Some(&model)).await? {
//!     CompactionResult::Compacted(report) => assert_eq!(messages.len(), report.messages_after),
//!     unchanged => panic!("{unchanged:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Without a model ([`None`]) the summary is deterministic. Call it with [`Moment::BeforeCall`]
//! before each call of the model, [`Moment::AfterAnswer`] after each answer, and
//! [`Moment::Overflow`] when the model refused the conversation as too long, before the retry.
//! A policy compacts by size at one of the first two only; at the other the result is
//! [`NotDue::OtherMoment`]:
//!
//! | policy | by size | on overflow | messages kept |
//! | --- | --- | --- | --- |
//! | [`Policy::fabro`] | after an answer, when more than 80 % of the window is taken | yes | 6 |
//! | [`Policy::harness`] | before a call, when less than 4,096 tokens are free | yes | 20 |
//! | [`Policy::strict`] | never, until `enabled`; then as `harness` | as by size | 20 |
//!
//! [`Moment::Manual`] compacts with any of them. [`Overrides`] change a policy for a user or a
//! single call.
//!
//! What holds for every compaction:
//!
//! - A call and its results stay together, and calls that are still running stay. What is kept
//!   never begins with a result whose call is gone.
//! - The files that were read and modified are a section of their own, from the caller and from
//!   earlier summaries, never in the model's words.
//! - As many messages stay as the policy says, unless they are themselves too many: more than the
//!   threshold, or after an overflow more than the window. Then fewer stay, down to the last call
//!   with its results. Only where those do not fit into the window, they are cut to their beginning
//!   and their end, of types that can ([`Turn::with_result`]).
//! - A second summary replaces the first and includes it.
//! - When the model fails, or the summary would be no smaller than what it replaces, nothing
//!   changes, except after an overflow: there a deterministic summary takes its place, and
//!   [`Report::summary_error`] says so. A caller that records the report first uses [`Compactor::prepare`], after which
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

mod compaction;
mod compactor;
mod cuts;
mod deterministic;
mod draft;
mod files;
mod limits;
mod meter;
mod open;
mod openai;
mod plan;
mod policy;
mod render;
mod request;
mod sections;
mod summarize;
mod text;
mod turn;

pub use compaction::{Compaction, CompactionOutcome, Report};
pub use compactor::{CompactError, CompactionResult, Compactor};
pub use cuts::Cut;
pub use deterministic::deterministic_summary;
pub use files::Files;
pub use meter::Meter;
pub use plan::{Plan, plan};
pub use policy::{
    DEFAULT_RESERVE_TOKENS, Moment, NotDue, Overrides, Policy, Reason, Trigger, WARNING_PERCENT,
    WindowUse, WindowWarning, should_compact,
};
pub use render::{CUT_CHARS, render_old};
pub use summarize::{Summarize, SummarizeError, SummaryRequest};
pub use turn::{Arguments, CallRef, ResultRef, Role, SUMMARY_TAG, Turn, is_summary};

#[cfg(test)]
mod tests;
