//! The workflow engine: a pure state machine over an append-only log, and the driver that runs it.
//!
//! A run is a fold over its events ([`RunState::apply`]); [`Machine::handle`] is the only place
//! that decides what happens next; [`drive`] runs the stages that the state says are at work,
//! commits each decision in one durable append and only then tells anybody. A crash between any
//! two instructions loses no committed stage: [`RunState::replay`] comes to the same state, and
//! the driver starts what was at work again. The rules are in `docs/workflow-language.md`, the
//! design in `docs/architecture.md`.
//!
//! ```
//! use std::sync::Arc;
//! use fabro_blob::MemoryBlobs;
//! use fabro_engine::{Input, Machine, NewRun, Plan, RunState, begin};
//! use fabro_graph::Workflow;
//! use fabro_types::{RunId, RunStatus};
//!
//! let source = r#"digraph hello { start -> exit }"#;
//! let (workflow, _) = Workflow::from_source("hello", source).unwrap();
//! let plan = Arc::new(Plan::compile(workflow).unwrap());
//!
//! let run_id = RunId::from_parts(1_700_000_000_000, 1);
//! let created = begin(run_id, 0, &plan, NewRun::default());
//! let state = RunState::replay(run_id, [&created.events[0]]);
//!
//! let mut machine = Machine::new(plan, state, Arc::new(MemoryBlobs::default()));
//! machine.handle(5, Input::Start);
//! assert_eq!(machine.state().status(false), RunStatus::Succeeded);
//! ```
//!
//! Limits: fan-outs nest 16 deep; a context value over 100 KB is a blob; one driver a run.

mod attempt;
mod begin;
pub mod checkpoint;
mod drive;
mod fanout;
mod handler;
mod machine;
mod offload;
mod plan;
mod random;
mod retry;
mod select;
mod state;
mod transition;

pub use begin::{NewRun, begin, cancel};
pub use drive::{Clock, DriveError, RunEnd, World, drive};
pub use fanout::{Branch, BranchEnd, FanOut};
pub use handler::{Handler, Letter, Mailbox, ReportError, Reporter, Stage, StageEnd, stage_dir};
pub use machine::{Commit, Finished, Input, Machine};
pub use offload::{LIMIT as OFFLOAD_LIMIT, NewBlob, READ_LIMIT, ReadError, read_blob};
pub use plan::{Plan, PlanError};
pub use select::Reading;
pub use state::{
    ActiveStage, Cursor, LastStage, MAIN, NodeEnd, Phase, Position, RunState, StageRecord,
};

#[cfg(test)]
mod tests;
