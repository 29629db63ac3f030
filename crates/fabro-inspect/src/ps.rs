use fabro_events::{Event, EventBody, ForkPoint, timestamp};
use fabro_store::RunSummary;
use fabro_types::{Failure, RunId, RunStatus};
use serde::Serialize;

use crate::{Cause, Pause};

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PsRow {
    /// The run.
    pub id: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Where it stands.
    pub status: RunStatus,
    /// When it was created, RFC 3339.
    pub started_at: String,
    /// When it ended; `None` while it has not.
    pub ended_at: Option<String>,
    /// The goal; empty when there is none.
    pub goal: String,
    /// The run whose sub-workflow it is; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Nothing is executed; left out for other runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What it waits for, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// The answers that were sent to its gates and that no driver has taken yet; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The first cause of its failure, of its partial success, or of its pause because no model or
    /// agent was available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Where it was forked or rewound; `None` once it was resumed.
    #[serde(skip)]
    pub forked: Option<ForkPoint>,
    /// It is a fork of another run, resumed or not.
    #[serde(skip)]
    pub is_fork: bool,
    /// When it was created or forked, in milliseconds since 1970.
    #[serde(skip)]
    pub started_ms: i64,
    /// When something was last recorded, in milliseconds since 1970.
    #[serde(skip)]
    pub last_event_ms: Option<i64>,
    /// By how much the clock was set from the start to that event, in milliseconds.
    #[serde(skip)]
    pub clock_set_ms: i64,
}

impl PsRow {
    /// From the start to the last event, in milliseconds, pauses included; to now while a process drives the run.
    /// A clock that a driver saw being set changes nothing. `None` when nothing is known of its events.
    pub fn took_ms(&self, now_ms: i64) -> Option<u64> {
        let last_ms = self.last_event_ms?;
        let recorded_ms = last_ms.saturating_sub(self.started_ms).saturating_sub(self.clock_set_ms);
        let is_driven = self.status == RunStatus::Running;
        let since_ms = if is_driven { now_ms.saturating_sub(last_ms).max(0) } else { 0 };
        Some(u64::try_from(recorded_ms.saturating_add(since_ms)).unwrap_or_default())
    }

    /// Adds what the first event of its log says, and the last one but for compactions: see
    /// [`fabro_engine::last_state_event`].
    pub fn describe(&mut self, first: Option<&Event>, last: Option<&Event>) {
        if let Some(EventBody::RunCreated(created)) = first.map(|event| &event.entry.body) {
            self.dry_run = created.dry_run;
        }
        // The log of a fork begins with the events of the run that it copies; it starts when it is forked.
        self.is_fork = first.is_some_and(|event| event.ts_ms != self.started_ms);
        let Some(last) = last else { return };
        self.last_event_ms = Some(last.ts_ms);
        self.clock_set_ms = last.entry.clock_set_total_ms.unwrap_or(0);
        self.cause = Cause::of(&last.entry.body);
        match &last.entry.body {
            EventBody::RunFailed { failure, .. } => self.failure = Some(failure.clone()),
            EventBody::RunPaused { reason, message, .. } if self.status == RunStatus::Paused => {
                self.pause = Some(Pause { reason: *reason, message: message.clone() });
            }
            EventBody::CheckpointForked(point) => self.forked = Some(ForkPoint::clone(point)),
            _ => {}
        }
    }
}

/// The list of runs, in the order they are given; those of sub-workflows only if `all`. What only
/// their logs say is added by [`PsRow::describe`].
pub fn ps(runs: Vec<RunSummary>, all: bool) -> Vec<PsRow> {
    let shown = runs.into_iter().filter(|run| all || run.parent.is_none());
    shown
        .map(|run| PsRow {
            id: run.id,
            workflow: run.workflow,
            status: run.status,
            started_at: timestamp(run.started_at_ms),
            ended_at: run.ended_at_ms.map(timestamp),
            goal: run.goal,
            parent: run.parent,
            dry_run: false,
            pause: None,
            answers: Vec::new(),
            failure: None,
            cause: None,
            forked: None,
            is_fork: false,
            started_ms: run.started_at_ms,
            last_event_ms: None,
            clock_set_ms: 0,
        })
        .collect()
}
