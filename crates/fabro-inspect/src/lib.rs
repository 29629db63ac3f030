//! What a run did, as data: inspect, explain, context, lists.
//!
//! Everything here is a projection of a run's log: plain data out of events, with the shapes that
//! `--json` prints. Nothing is printed, and nothing is read but blobs; [`list_runs`], [`inspect_run`] and
//! their neighbors read a store. Given a whole log, as
//! `fabro_engine::read_all` reads it, [`inspect()`], [`stage()`], [`explain()`], [`context_at`] and
//! [`diff`] answer questions about it.
//!
//! ```
//! use fabro_events::{CreatedRun, Entry, Event, EventBody};
//! use fabro_types::{BlobRef, RunId, RunStatus};
//!
//! let created = CreatedRun {
//!     workflow: "hello".into(),
//!     goal: "Say hello".into(),
//!     inputs: Default::default(),
//!     seed: 1,
//!     work_dir: "/tmp".into(),
//!     bundle: BlobRef::of(b"{}"),
//!     context: Default::default(),
//!     max_cost: None,
//!     parent: None,
//!     dry_run: false,
//!     worktree: None,
//!     rules: 0,
//! };
//! let entry = Entry::new(EventBody::RunCreated(created.into()));
//! let log = [Event { run_id: RunId::from_parts(0, 7), seq: 1, ts_ms: 0, entry }];
//! let report = fabro_inspect::inspect(&log, false)?;
//! assert_eq!((report.goal.as_str(), report.status), ("Say hello", RunStatus::Interrupted));
//! # Ok::<(), fabro_inspect::ReportError>(())
//! ```
//!
//! Events that a rewind took back count for nothing.
//!
//! Limits: but for [`RunFold`], [`ArtifactFold`] and [`CostFold`] a log is held in memory as a whole, and every report costs time linear in it.

mod activity;
mod artifacts;
mod at;
mod blobs;
mod cause;
mod changes;
mod comparison;
mod context;
mod conversation;
mod cost;
mod driven_time;
pub mod dump;
mod error;
mod explain;
mod fold;
mod inspect;
mod logs;
mod ps;
mod read_back;
pub mod replay;
mod reports;
mod stage;
mod stages;

pub use activity::Activity;
pub use artifacts::{ArtifactFold, ArtifactRow, KeptArtifact, artifacts};
pub use at::{StageKey, check_stage};
pub use cause::Cause;
pub use changes::{Changes, StageChange, changes, discarded_at, patch_source};
pub use comparison::{
    ComparedRun, ComparedStage, RunComparison, RunDifference, StagePair, comparison,
};
pub use context::{context_at, diff};
pub use conversation::{ModelInputs, TranscriptMessage, conversation};
pub use cost::{CostFold, CostReport, CostSum, Kind, Kinds, ModelCost, RunCost, Spent, StageCost};
pub use error::{NoEdge, ReportError};
pub use explain::{
    Considered, Explain, GateAnswered, TieBreak, explain, explain_row, last_explained,
    other_branches,
};
pub use fold::{EdgeTaken, RunFold, find_left_stage, find_stage, inspect};
pub use inspect::{Inspect, Pause, StageRow};
pub use logs::{LogStream, StageSelection, Written, copy_recorded_text, recorded_output, written};
pub use ps::{PsRow, ps};
pub use read_back::{read_back, read_back_small};
pub use reports::{
    PatchError, RunPatch, describe, inspect_run, inspect_stage, list_artifacts, list_runs,
    patch_of, run_patch, sub_workflows, without_changes,
};
pub use stage::{FailedAttempt, StageReport, stage, stage_of_row};
pub use stages::Stages;

#[cfg(test)]
mod tests;
