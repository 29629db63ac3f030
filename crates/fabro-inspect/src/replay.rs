//! Replays the recorded run of a workflow without executing anything, and reports where the replay
//! differs from the record.
//!
//! The engine and the handlers of prompts and gates work as in any run, so edges are chosen, prompts
//! put together and retries decided anew. What came from outside is taken from the log: answers of
//! models and people, results of tools, and the outcomes of scripts, waits, sub-workflows and other
//! programs. With the run's own workflow the replay is the same. With a changed one
//! ([`Replay::workflow`]) it shows the effect of the change: on prompts, and on edges.
//!
//! ```
//! use std::sync::Arc;
//! use fabro_engine::{Input, Machine, NewRun, RunState, begin};
//! use fabro_run::{Bundle, RunSettings};
//! use fabro_inspect::replay::{Replay, replay};
//! use fabro_store::{Batch, MemoryStore, RunLog};
//! use fabro_types::RunId;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let workflow = |source: &str| Bundle {
//!     name: "hello".into(),
//!     file: "hello.fabro".into(),
//!     base: String::new(),
//!     source: source.into(),
//!     files: Default::default(),
//!     settings: RunSettings::default(),
//!     constants: None,
//! };
//! // A run of a workflow in which nothing has to be executed.
//! let bundle = workflow("digraph { start -> exit }");
//! let (run, plan, store) = (RunId::from_parts(1, 1), Arc::new(bundle.plan()?), MemoryStore::default());
//! let mut commit = begin(run, 0, &plan, NewRun { bundle: bundle.to_bytes(), ..NewRun::default() });
//! let state = RunState::replay(run, &commit.events);
//! store.append(run, 0, &Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] }).await?;
//! let mut machine = Machine::new(plan, state);
//! machine.handle(5, Input::Start);
//! commit = machine.take_commit();
//! store.append(run, 1, &Batch::of(&commit.events)).await?;
//!
//! let mut what = Replay::new(Arc::new(store), run);
//! assert!(replay(what.clone()).await?.is_same());
//!
//! what.workflow = Some(workflow("digraph { start -> done; done [shape=Msquare] }"));
//! let report = replay(what).await?;
//! assert_eq!(report.differences[0].recorded.as_deref(), Some("start@1 → exit"));
//! assert_eq!(report.differences[0].replayed.as_deref(), Some("start@1 → done"));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # How it is compared
//!
//! Line by line: the main line of the run and each branch of a fan-out have their own order. On each,
//! the stages, their prompts and outcomes, the edges taken, the questions of gates and the messages of
//! conversations are compared. Ids, times, durations and costs are left aside, and so are the results
//! of tools, which are the recorded ones anyway.
//!
//! A run that was interrupted, paused or canceled is replayed up to its last event. A run that was
//! resumed is resumed at the same places. One that was rewound, or that is a copy of another, is
//! replayed from there on.
//!
//! Of a stage that is the same in both workflows the outcome is the recorded one, so it need not
//! follow from files that are no longer what they were. Of a stage that was changed it follows from
//! the recorded answer, and where that has no directives from those of the recorded outcome.
//!
//! # Limits
//!
//! - Nothing is executed and no person is asked; the run's store is only read. Files that the handlers
//!   write go to a temporary directory. What a prompt takes from the working directory (passages found
//!   by `rag`) is read as it is now.
//! - Sub-workflows are taken as they ended. Each has a run of its own, which can be replayed.
//! - Conversations are not shortened: a recorded answer does not depend on what the model was sent.
//! - The instructions of MCP servers are not known without them. A prompt that lacks nothing else
//!   counts as the same.
//! - The log and what differs are held in memory as a whole.

mod compare;
mod conversation;
mod error;
mod play;
mod player;
mod record;
mod report;
mod tools;

pub use error::ReplayError;
pub use play::{Replay, compare_runs, replay};
pub use report::{Aspect, Difference, Report};

#[cfg(test)]
mod tests;
