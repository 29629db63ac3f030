//! Retries of ended runs: failed stages run again, in the run and in its sub-workflows.

use fabro_engine::{Phase, RunState, checkpoint, read_all, retry_plan};
use fabro_handlers::sub_workflow_id;
use fabro_store::{Batch, Lease, RunAt, RunStore};
use fabro_types::{BranchPath, NodeKind, RunId, RunStatus};

use crate::control::pending_cancellations;
use crate::family::end_leftover_processes;
use crate::lease::with_lease;
use crate::run_services::now_ms;
use crate::{RunError, SetupError};

/// Reopens a run that ended failed or partially succeeded at its failed stages, failed list elements,
/// and failed or canceled branches, including those of sub-workflows. Driving it runs these again, and
/// what follows them.
///
/// Returns the full names of the stages that run again first; empty for a run that has not ended, which
/// can be resumed without a retry.
///
/// # Errors
///
/// The run has no failed stage, is a sub-workflow or is being driven; or its log does not end at `at`.
pub async fn retry(
    store: &dyn RunStore,
    run: RunId,
    at: Option<u64>,
) -> Result<Vec<String>, RunError> {
    let root = store.root(run).await?;
    if root != run {
        return Err(RunError::SubWorkflow { run, root });
    }
    with_lease(store, run, async |lease| {
        if let Some(seq) = at {
            RunAt { run, seq }.check(store.last_seq(run).await?)?;
        }
        end_leftover_processes(store, run).await?;
        retry_member(store, lease, run).await
    })
    .await
}

/// Retries sub-workflows first, so that a retry that is killed halfway can be repeated.
async fn retry_member(
    store: &dyn RunStore,
    lease: Lease,
    run: RunId,
) -> Result<Vec<String>, RunError> {
    let mut events = read_all(store, run).await?;
    let Phase::Ended(status, _) = RunState::replay(run, &events).phase else {
        return Ok(Vec::new());
    };
    let is_root = run == lease.run;
    let is_retried = match status {
        RunStatus::Failed | RunStatus::PartiallySucceeded => true,
        RunStatus::Canceled => !is_root,
        _ => false,
    };
    let plan = retry_plan(&checkpoint::effective(&events)).filter(|_| is_retried);
    let Some(point) = plan else {
        if !is_root {
            return Ok(Vec::new());
        }
        let message = format!("run {run} ended {status} and has no failed stage to retry");
        let remedy = "rewind it to the stage that it should continue after";
        return Err(SetupError::new(message, remedy).into());
    };
    let last = events.last().map_or(0, |event| event.seq);
    let mut stages: Vec<String> = point.stages.iter().map(ToString::to_string).collect();
    let mut event = checkpoint::retry(run, point, last, now_ms());
    event.entry.clock_set_total_ms = checkpoint::clock_set_total(&events);
    events.push(event.clone());
    let state = RunState::try_replay(run, &events)?;
    drop(events);
    for (line, at) in state.active().filter(|(_, at)| at.handler == NodeKind::ManagerLoop) {
        let child = sub_workflow_id(run, line, at);
        let inner = Box::pin(retry_member(store, lease, child)).await?;
        let name = BranchPath::new(line).stage(&at.node, at.visit);
        if !inner.is_empty() {
            stages.retain(|stage| *stage != name);
            stages.extend(inner.iter().map(|stage| format!("{name}/{stage}")));
        }
    }
    let consumed = pending_cancellations(store, run).await?;
    let batch = Batch { consumed: &consumed, ..Batch::of(std::slice::from_ref(&event)) };
    store.append_leased(lease, run, last, &batch).await?;
    Ok(stages)
}
