//! Runs and the runs of their sub-workflows.

use std::iter::successors;
use std::sync::Arc;

use fabro_engine::{Phase, RunState, cancel};
use fabro_events::Event;
use fabro_handlers::read_all;
use fabro_sandbox::end_leftovers;
use fabro_store::{Batch, Runs, Store, StoreError};
use fabro_types::RunId;

/// No chain of sub-workflows is longer.
const MAX_DEPTH: usize = 64;

/// A run and the runs of its sub-workflows, those further up first.
pub async fn family(store: &(impl Runs + ?Sized), run: RunId) -> Result<Vec<RunId>, StoreError> {
    let mut members = vec![run];
    let runs = store.list().await?;
    // Sub-workflows may nest; each round finds those one deeper.
    loop {
        let before = members.len();
        for summary in runs.iter().rev() {
            let is_child = summary.parent.is_some_and(|parent| members.contains(&parent));
            if is_child && !members.contains(&summary.id) {
                members.push(summary.id);
            }
        }
        if members.len() == before {
            return Ok(members);
        }
    }
}

/// The run that is driven when this one is: the one that it is a sub-workflow of, however deep; else
/// itself.
pub async fn root(store: &(impl Runs + ?Sized), run: RunId) -> Result<RunId, StoreError> {
    let runs = store.list().await?;
    let parent = |run: &RunId| runs.iter().find(|summary| summary.id == *run)?.parent;
    Ok(successors(Some(run), parent).take(MAX_DEPTH).last().unwrap_or(run))
}

/// A run, or the run of a sub-workflow whose stage is at work.
#[derive(Clone, Debug)]
pub struct Member {
    /// The run.
    pub run: RunId,
    /// The stages that hold it, as node and visit, outermost first; none for the run itself.
    pub within: Vec<(Arc<str>, u32)>,
    /// Its log.
    pub events: Vec<Event>,
}

/// A run and those of its sub-workflows that it still waits for, with their logs. A sub-workflow
/// that was paused when its stage was called off is not among them.
pub async fn at_work(store: &impl Store, run: RunId) -> Result<Vec<Member>, StoreError> {
    let mut members: Vec<(Member, RunState)> = Vec::new();
    for id in family(store, run).await? {
        let events = read_all(store, id).await?;
        let state = RunState::replay(id, &events);
        let parent = state.created.as_ref().and_then(|created| created.parent.clone());
        let holder = parent.as_ref().and_then(|parent| {
            let (holder, above) = members.iter().find(|(it, _)| it.run == parent.run_id)?;
            let mut active = above.active().map(|(_, at)| (&at.node, at.visit));
            active.any(|at| at == (&parent.node_id, parent.visit)).then_some(holder)
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

/// Ends the logs of a run and of its sub-workflows that are not over. The caller has the run's lock.
pub async fn end_family(
    store: &impl Store,
    run: RunId,
    now_ms: i64,
    reason: &str,
) -> Result<(), StoreError> {
    for member in family(store, run).await? {
        let state = RunState::replay(member, &read_all(store, member).await?);
        if !matches!(state.phase, Phase::Ended(..)) {
            let last = store.last_seq(member).await?;
            let event = cancel(member, last, now_ms, reason.to_owned());
            store.append(member, last, &Batch::of(&[event])).await?;
        }
    }
    Ok(())
}

/// Ends what a driver that died left running, sub-workflows' scripts too, and tells how many
/// processes these were.
pub async fn end_stages_left_behind(store: &impl Store, run: RunId) -> Result<usize, StoreError> {
    let family = family(store, run).await?;
    let leftovers =
        move || family.iter().map(|id| end_leftovers(("FABRO_RUN_ID", &id.to_string()))).sum();
    match tokio::task::spawn_blocking(leftovers).await {
        Ok(ended) => Ok(ended),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
