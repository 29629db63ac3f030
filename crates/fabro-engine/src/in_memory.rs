//! A run without a disk, for tests and for programs that keep no log.

use std::sync::Arc;

use fabro_events::Event;
use fabro_graph::Workflow;
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::{ContextPatch, RunId};
use tokio_util::sync::CancellationToken;

use crate::{
    DriveError, Handler, Input, Machine, NewRun, Plan, PlanError, RunEnd, RunState, World, begin,
    drive, read_all,
};

/// Why a workflow cannot be run in memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The source is not a workflow.
    #[error("the workflow has a syntax error: {0}")]
    Syntax(String),
    /// It has errors.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Its events cannot be recorded.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Runs the source of a workflow with a handler for its stages and the context that it starts with;
/// gives how the run ended, and its state with the context. The log is in memory, the run's
/// directory that of temporary files. Needs a tokio runtime with time.
///
/// # Errors
/// Also for a workflow that names files or has a model stylesheet: see [`Plan::compile`].
pub async fn run_in_memory(
    source: &str,
    handler: impl Handler + 'static,
    context: ContextPatch,
) -> Result<(RunEnd, RunState), RunError> {
    let workflow = Workflow::from_source("workflow", source)
        .map_err(|finding| RunError::Syntax(finding.message))?;
    let plan = Arc::new(Plan::compile(workflow)?);
    let run_id = RunId::from_parts(0, 1);
    let created = begin(run_id, 0, &plan, NewRun { context, ..NewRun::default() });
    let store = Arc::new(MemoryStore::default());
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(run_id, 0, &batch).await.map_err(DriveError::from)?;
    let machine = Machine::new(plan, RunState::replay(run_id, &created.events));
    let world = World {
        store: Arc::clone(&store) as _,
        handler: Arc::new(handler),
        sink: Arc::new(|_: &Event| {}),
        clock: Arc::new(|| 0),
        run_dir: std::env::temp_dir(),
        stop: CancellationToken::new(),
    };
    let end = drive(machine, Input::Start, world).await?;
    let events = read_all(&*store, run_id).await.map_err(DriveError::from)?;
    Ok((end, RunState::replay(run_id, &events)))
}
