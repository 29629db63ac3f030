//! Keeps long conversations within a model's context window: policy, plan, summary, report.

mod compact;
mod deterministic;
mod files;
mod meter;
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
