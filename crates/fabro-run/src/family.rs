//! The family of a run: the run and the runs of its sub-workflows, driven and canceled together.

use std::collections::BTreeMap;

use crate::Bundle;
use fabro_engine::{Phase, RunState, cancel};
use fabro_events::{Event, EventBody};
use fabro_handlers::read_all;
use fabro_redact::Redactor;
use fabro_sandbox::end_leftovers;
use fabro_store::{Batch, Lease, RunStore, Store, StoreError};
use fabro_types::{BranchPath, RunId};

use crate::RunError;
use crate::run_id::RUN_ID_VARIABLE;
use crate::services::ServiceBuilder;

/// A run, or the run of a sub-workflow whose stage is running.
#[derive(Clone, Debug)]
pub struct Member {
    /// The run.
    pub run: RunId,
    /// The stages that contain it, as `[BRANCH/]NODE@VISIT`, outermost first; empty for the
    /// run itself.
    pub within: Within,
    /// Its log.
    pub events: Vec<Event>,
}

/// A run and those of its sub-workflows whose stages are running, with their logs. A sub-workflow
/// that was paused when its stage was canceled is not among them.
pub async fn running_members(store: &dyn Store, run: RunId) -> Result<Vec<Member>, StoreError> {
    let mut logs = Vec::new();
    let mut states = Vec::new();
    for id in store.family(run).await? {
        let events = read_all(store, id).await?;
        states.push(RunState::replay(id, &events));
        logs.push(events);
    }
    let within = holding_stages(run, &states.iter().collect::<Vec<_>>());
    let members = states.into_iter().zip(within).zip(logs);
    let member = |((state, within), events): ((RunState, Option<_>), _)| {
        Some(Member { run: state.run_id, within: within?, events })
    };
    Ok(members.filter_map(member).collect())
}

/// The stages that contain the run of a sub-workflow, as `[BRANCH/]NODE@VISIT`, outermost first.
pub type Within = Vec<String>;

/// For each state of a family, in its order, the stages that hold its run; none for `run` itself. `None` for a sub-workflow whose stage is not running.
pub fn holding_stages(run: RunId, states: &[&RunState]) -> Vec<Option<Within>> {
    let mut found: Vec<Option<Within>> = Vec::new();
    for state in states {
        let parent = state.created.as_ref().and_then(|created| created.parent.as_ref());
        let above = parent.and_then(|parent| {
            let at = states.iter().position(|it| it.run_id == parent.run_id)?;
            // Each run is listed after the one that it is part of.
            let above = found.get(at)?.as_ref()?;
            let is_running = states[at].active().any(|(line, stage)| {
                let branch = (!line.is_empty()).then_some(&**line);
                let is_attempt = parent.attempt == 0 || parent.attempt == stage.attempt;
                is_attempt && parent.is(branch, &stage.node, stage.visit)
            });
            let own = BranchPath::new(parent.branch.as_deref().unwrap_or_default());
            let own = own.stage(&parent.node_id, parent.visit);
            is_running.then(|| above.iter().cloned().chain([own]).collect())
        });
        found.push(above.or_else(|| (state.run_id == run).then(Vec::new)));
    }
    found
}

/// The stages that contain the run of a sub-workflow; empty for a root run.
pub(crate) fn holding_stages_of(events: &[Event], holding: &BTreeMap<RunId, Within>) -> Within {
    let Some(EventBody::RunCreated(created)) = events.first().map(|event| &event.entry.body) else {
        return Vec::new();
    };
    let Some(parent) = &created.parent else { return Vec::new() };
    let branch = BranchPath::new(parent.branch.as_deref().unwrap_or_default());
    let own = branch.stage(&parent.node_id, parent.visit);
    holding.get(&parent.run_id).into_iter().flatten().cloned().chain([own]).collect()
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
            let mut event = cancel(member, last, now_ms, reason.to_owned(), None);
            event.entry.clock_set_total_ms = state.clock_set_total(0);
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
    let bundle = Bundle::load(store, &created)?;
    Ok(ServiceBuilder::new(&bundle.settings).recorded_redactor())
}
