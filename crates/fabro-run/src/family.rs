//! The family of a run: the run and the runs of its sub-workflows, driven and canceled together.

use std::sync::Arc;

use crate::Bundle;
use fabro_engine::{Phase, RunState, cancel};
use fabro_events::{Event, EventBody};
use fabro_handlers::read_all;
use fabro_redact::Redactor;
use fabro_sandbox::end_leftovers;
use fabro_store::{Batch, Lease, RunStore, Store, StoreError};
use fabro_types::RunId;

use crate::RunError;
use crate::services::{RUN_ID_VARIABLE, ServiceBuilder};

/// A run, or the run of a sub-workflow whose stage is running.
#[derive(Clone, Debug)]
pub struct Member {
    /// The run.
    pub run: RunId,
    /// The stages that it is the sub-workflow of, as node and visit, outermost first; empty for the
    /// run itself.
    pub within: Vec<(Arc<str>, u32)>,
    /// Its log.
    pub events: Vec<Event>,
}

/// A run and those of its sub-workflows whose stages are running, with their logs. A sub-workflow
/// that was paused when its stage was canceled is not among them.
pub async fn running_members(store: &dyn Store, run: RunId) -> Result<Vec<Member>, StoreError> {
    let mut members: Vec<(Member, RunState)> = Vec::new();
    for id in store.family(run).await? {
        let events = read_all(store, id).await?;
        let state = RunState::replay(id, &events);
        let parent = state.created.as_ref().and_then(|created| created.parent.clone());
        let holder = parent.as_ref().and_then(|parent| {
            let (holder, above) = members.iter().find(|(it, _)| it.run == parent.run_id)?;
            let mut active = above.active();
            let is_running = active.any(|(line, at)| {
                let branch = (!line.is_empty()).then_some(&**line);
                let is_attempt = parent.attempt == 0 || parent.attempt == at.attempt;
                is_attempt && parent.is(branch, &at.node, at.visit)
            });
            is_running.then_some(holder)
        });
        let within = match (holder, parent) {
            (Some(holder), Some(parent)) => {
                holder.within.iter().cloned().chain([(parent.node_id, parent.visit)]).collect()
            }
            _ if id == run => Vec::new(),
            _ => continue,
        };
        members.push((Member { run: id, within, events }, state));
    }
    Ok(members.into_iter().map(|(member, _)| member).collect())
}

/// Cancels a run and its sub-workflows as far as they have not ended.
pub(crate) async fn cancel_family(
    store: &dyn RunStore,
    lease: Lease,
    run: RunId,
    now_ms: i64,
    reason: &str,
) -> Result<(), StoreError> {
    for member in store.family(run).await? {
        let state = RunState::replay(member, &read_all(store, member).await?);
        if !matches!(state.phase, Phase::Ended(..)) {
            let last = store.last_seq(member).await?;
            let event = cancel(member, last, now_ms, reason.to_owned(), None);
            store.append_leased(lease, member, last, &Batch::of(&[event])).await?;
        }
    }
    Ok(())
}

/// Ends the processes that a dead driver left running, those of sub-workflows too.
pub(crate) async fn end_leftover_processes(
    store: &dyn Store,
    run: RunId,
) -> Result<(), StoreError> {
    let members = store.family(run).await?;
    let end_all = move || {
        for member in members {
            end_leftovers((RUN_ID_VARIABLE, &member.to_string()));
        }
    };
    match tokio::task::spawn_blocking(end_all).await {
        Ok(()) => Ok(()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// The redactor of a recorded run, or of the run that it is a sub-workflow of.
pub async fn run_redactor(store: &dyn Store, run: RunId) -> Result<Redactor, RunError> {
    let first = store.read(store.root(run).await?, 0, 1).await?.pop();
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Err(RunError::NotCreated { run });
    };
    let bundle = Bundle::load(store, &created.bundle)?;
    Ok(ServiceBuilder::new(&bundle.settings).recorded_redactor())
}
