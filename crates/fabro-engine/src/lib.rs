//! The workflow engine: a pure state machine over an append-only log, and the driver that runs it.
//!
//! A run is a fold over its events ([`RunState::apply`]); [`Machine::handle`] is the only place
//! that decides what happens next; [`drive`] runs the stages that the state says are running,
//! commits each decision in one durable append and only then reports it. A crash between any
//! two instructions loses no committed stage: [`RunState::replay`] comes to the same state, and
//! the driver starts what was running again. The rules are in `docs/workflow-language.md`, the
//! design in `docs/architecture.md`.
//!
//! ```
//! use std::sync::Arc;
//! use fabro_engine::{Input, Machine, NewRun, Plan, RunState, begin};
//! use fabro_graph::Workflow;
//! use fabro_types::{RunId, RunStatus};
//!
//! let source = r#"digraph hello { start -> exit }"#;
//! let workflow = Workflow::from_source("hello", source).unwrap();
//! let plan = Arc::new(Plan::compile(workflow).unwrap());
//!
//! let run_id = RunId::from_parts(1_700_000_000_000, 1);
//! let created = begin(run_id, 0, &plan, NewRun::default());
//! let state = RunState::replay(run_id, [&created.events[0]]);
//!
//! let mut machine = Machine::new(plan, state);
//! machine.handle(5, Input::Start);
//! assert_eq!(machine.state().status(false), RunStatus::Succeeded);
//! ```
//!
//! To run stages, implement [`Handler`] (one function from a [`Stage`] to a [`StageEnd`]):
//!
//! ```
//! use fabro_engine::{Handler, Stage, StageEnd, run_in_memory};
//! use fabro_types::{ContextPatch, Outcome};
//!
//! struct Greet;
//!
//! #[async_trait::async_trait]
//! impl Handler for Greet {
//!     async fn execute(&self, stage: Stage) -> StageEnd {
//!         let label = stage.node().attrs.get("label").map(|attr| attr.value.as_text());
//!         let greeting = format!("{} from {}", label.unwrap_or_default(), stage.at.node);
//!         Outcome::succeeded().with_update("greeting", greeting).into()
//!     }
//! }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let source = r#"digraph { start -> greet -> exit; greet [label="good day"] }"#;
//! let (_, state) = run_in_memory(source, Greet, ContextPatch::new()).await.unwrap();
//! assert_eq!(state.main().unwrap().context.text("greeting"), "good day from greet");
//! # });
//! ```
//!
//! [`Stage::node`] is the node as written, with attributes of your own; [`Stage::spec`] has those of the
//! language, with their types and defaults. [`run_in_memory`] keeps no log. It returns how the run ended and its last state, which has the
//! context. A failure that may be retried calls the handler again with a higher `stage.at.attempt`;
//! `examples/own_handler.rs` shows both. With a log, give the handler to [`drive`] in a [`World`],
//! as `examples/with_a_log.rs` does, where a run is stopped and resumed. A unit test of a handler makes its stage by [`Stage::builder`].
//! An implementor may rely on this:
//!
//! - An attempt runs at least once and, once its end is recorded, never again: a driver that dies
//!   in between starts it again. Work that must not happen twice needs a trace of its own outside.
//! - Timeouts, retries, fan-outs and edges are the engine's. A handler ends soon after
//!   [`Stage::cancel`] fires, and leaves nothing behind when its future is dropped.
//! - [`Stage::context`] is the line's own: branches of a fan-out do not see each other's writes.
//! - What a handler reports through [`Stage::reporter`] is on stable storage when that returns.
//! - A handler that waits for an answer that may take days returns [`StageEnd::Suspended`]; the
//!   stage runs again when there is one.
//!
//! # Limits
//!
//! Fan-outs nest 16 deep. A context value over 100 KB becomes a blob, which conditions read back
//! up to 16 MB. A run has one driver at a time, which the store enforces.

mod active_stage;
mod assumed;
mod attempt;
mod begin;
mod budget;
pub mod checkpoint;
mod clock;
mod cursor;
mod deadlines;
mod drive;
mod exit;
mod fanout;
mod for_each;
mod handler;
mod in_flight;
mod in_memory;
mod inbox;
mod inconsistent;
mod input;
mod join;
mod key;
mod limits;
mod line;
mod list_text;
mod machine;
mod offload;
mod open_failures;
mod pause_rule;
mod random;
mod retry;
mod retry_plan;
mod run_vars;
mod select;
mod stage_builder;
mod state;
mod transition;
mod turns;
mod unavailable;
mod unhandled;
mod worktrees;

pub use active_stage::{ActiveStage, RecordedAnswer};
pub use begin::{NewRun, RULES, begin, cancel, last_state_event, read_all};
pub use budget::{LimitReached, Reservation, StageBudget};
pub use clock::Clock;
pub use cursor::{Cursor, EnteredBy, LastStage, NodeEnd, Position, StageRecord};
pub use drive::{DriveError, RunEnd, World, drive, drive_sub_workflow, read_needs};
pub use fabro_blob::{
    BlobError, BlobStore, NewBlob, OFFLOAD_LIMIT, READ_LIMIT, ReadError, as_file, bytes_as_file,
    offload_value, read_blob, read_inner, reference,
};
pub use fabro_condition::{Condition, find as find_value};
pub use fabro_context::{Context, keys};
pub use fabro_plan::{
    AgentSpec, Backend, CommandSpec, Constants, ContextTool, EdgeSpec, ExitSpec, ForEachSpec,
    GraphDefaults, GraphSpec, HumanSpec, InputSpec, Isolation, JoinPolicy, Language, LlmSpec,
    ManagerSpec, Merge, Mode, NodeBody, NodeSpec, OutputSpec, ParallelSpec, Plan, PlanError,
    RenderError, RetryTargets, ShowSpec, TextTemplate, Vars,
};
pub use fabro_store::{Batch, InboxId, Message, Store, StoreError};
pub use fanout::{Branch, BranchEnd, FanOut};
pub use handler::{Handler, ReportError, Reporter, Stage, StageEnd, stage_dir};
pub use in_memory::{RunError, run_in_memory};
pub use inconsistent::Inconsistent;
pub use input::{Commit, Finished, Idle, Input};
pub use limits::unlimited_nodes;
pub use line::MAIN;
pub use machine::Machine;
pub use offload::offload_patch;
pub use open_failures::{OpenFailure, OpenFailures};
pub use pause_rule::pauses as pauses_when_unavailable;
pub use retry_plan::retry_plan;
pub use select::{LookupError, Reading};
pub use stage_builder::StageBuilder;
pub use state::{Phase, RunState};
pub use worktrees::{
    BRANCH_WORKTREES, LineWorktree, Worktrees, branch_worktree_top, git_branch, git_branches,
    worktree_top,
};

#[cfg(test)]
mod tests;
