//! Positions in a log: what a rewind takes back, and where a fork starts.

use std::sync::Arc;

use fabro_events::{Entry, Event, EventBody, ForkPoint, RetryPoint};
use fabro_types::{ContextPatch, NodeKind, RunId};

pub use fabro_events::stage_name::{StageName, meant, split};

/// The events that count: those that a later rewind of the same log took back are left out.
pub fn effective<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<&'a Event> {
    let mut kept: Vec<&Event> = Vec::new();
    for event in events {
        if let EventBody::CheckpointForked(point) = &event.entry.body
            && point.in_place
        {
            if point.retry.is_some() {
                kept.retain(|earlier| !takes_back(point, earlier));
                kept.push(event);
                continue;
            }
            let end = kept.partition_point(|earlier| earlier.seq <= point.from_seq);
            kept.truncate(end);
        }
        kept.push(event);
    }
    kept
}

/// Whether a rewind or a retry discards an earlier event of the same log.
pub fn takes_back(point: &ForkPoint, event: &Event) -> bool {
    let Some(retry) = point.retry.as_ref().filter(|_| point.in_place) else {
        return point.in_place && event.seq > point.from_seq;
    };
    match event.entry.body {
        EventBody::RunCompleted { .. }
        | EventBody::RunFailed { .. }
        | EventBody::RunCanceled { .. } => true,
        // A raised spending limit stays in effect.
        EventBody::RunResumed { .. } => false,
        _ => retry.takes_back(event.seq, event.entry.branch.as_deref()),
    }
}

/// Where a stage ended: the place in the log, and its name as `NODE@VISIT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The event that recorded the end.
    pub seq: u64,
    /// `NODE@VISIT`.
    pub stage: String,
}

/// Finds the end of a stage among the events that count, by its [name](StageName), or without one
/// the last of the main line. Of several that the name means it is the one that ended last. Nothing
/// follows an exit, so its end is never found. `None` when there is none.
pub fn find(events: &[&Event], stage: Option<&str>) -> Option<Checkpoint> {
    let name = stage.map(StageName::parse);
    events.iter().enumerate().rev().find_map(|(index, event)| {
        let is_end =
            matches!(event.entry.body, EventBody::StageCompleted(_) | EventBody::StageFailed(_));
        let id = event.entry.node_id.as_deref()?;
        let at = event.entry.visit.unwrap_or(1);
        let wanted = match name {
            Some(name) => name.is_of(&event.entry),
            None => event.entry.branch.is_none(),
        };
        let found = is_end && wanted && !is_exit(&events[..index], event);
        found.then(|| Checkpoint { seq: event.seq, stage: format!("{id}@{at}") })
    })
}

/// The log of a new run that begins where a stage of another ended: its events up to there, with
/// the new run's id, and one that says where they come from and what was changed. The outgoing edge
/// of the stage is chosen again.
///
/// Large values of `set` have been replaced by [`offload_patch`](crate::offload_patch), and the
/// blobs go into the commit.
pub fn fork(
    events: &[&Event],
    at: &Checkpoint,
    run_id: RunId,
    now_ms: i64,
    set: ContextPatch,
) -> Vec<Event> {
    let prefix = events.iter().take_while(|event| event.seq <= at.seq);
    let mut copied: Vec<Event> =
        prefix.zip(1..).map(|(event, seq)| Event { run_id, seq, ..Event::clone(event) }).collect();
    if let Some(first) = events.first() {
        let point = fork_point(first.run_id, at, false, set);
        copied.push(Event { run_id, seq: copied.len() as u64 + 1, ts_ms: now_ms, entry: point });
    }
    copied
}

/// The event that takes a run back to where a stage ended. `last_seq` is the last of its log. `set` is
/// as for [`fork`].
pub fn rewind(
    run_id: RunId,
    at: &Checkpoint,
    last_seq: u64,
    now_ms: i64,
    set: ContextPatch,
) -> Event {
    let entry = fork_point(run_id, at, true, set);
    Event { run_id, seq: last_seq + 1, ts_ms: now_ms, entry }
}

/// The event that retries the failed stages of a run. `last_seq` is the last sequence number of its
/// log.
pub fn retry(run_id: RunId, point: RetryPoint, last_seq: u64, now_ms: i64) -> Event {
    let from_seq = point.lines.values().copied().min().unwrap_or(last_seq);
    let stage = point.stages.first().cloned();
    let set = ContextPatch::new();
    let point =
        ForkPoint { from_run: run_id, from_seq, in_place: true, stage, set, retry: Some(point) };
    let entry = Entry::new(EventBody::CheckpointForked(Box::new(point)));
    Event { run_id, seq: last_seq + 1, ts_ms: now_ms, entry }
}

/// By how much the clock was set in all, by the last of these events that says so. What a rewind took back
/// counts, for the clock stays as it was set; what was copied by a fork does not.
pub fn clock_set_total(events: &[Event]) -> Option<i64> {
    let is_fork = |event: &&Event| match &event.entry.body {
        EventBody::CheckpointForked(point) => !point.in_place,
        _ => false,
    };
    let own = events.iter().rev().take_while(|event| !is_fork(event));
    own.into_iter().find_map(|event| event.entry.clock_set_total_ms)
}

fn fork_point(from_run: RunId, at: &Checkpoint, in_place: bool, set: ContextPatch) -> Entry {
    let stage = Some(Arc::from(at.stage.as_str()));
    let point = ForkPoint { from_run, from_seq: at.seq, in_place, stage, set, retry: None };
    Entry::new(EventBody::CheckpointForked(Box::new(point)))
}

fn is_exit(before: &[&Event], end: &Event) -> bool {
    let started = before.iter().rev().find_map(|event| match &event.entry.body {
        EventBody::StageStarted { handler, .. } if event.entry.node_id == end.entry.node_id => {
            Some(*handler)
        }
        _ => None,
    });
    started == Some(NodeKind::Exit)
}
