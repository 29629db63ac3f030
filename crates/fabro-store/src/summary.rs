use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_events::{CreatedRun, Event, EventBody};
use fabro_types::{RunId, RunStatus};

use crate::StoreError;

/// What a list of runs shows of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// The run whose sub-workflow this is.
    pub parent: Option<RunId>,
    /// The workflow's name; empty when the log does not say.
    pub workflow: String,
    /// The goal; empty when there is none.
    pub goal: String,
    /// What the log says, or `interrupted` for a run that has neither ended nor paused and that no
    /// process drives.
    pub status: RunStatus,
    /// When the run was created or forked, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// When it ended, in milliseconds since 1970.
    pub ended_at_ms: Option<i64>,
}

impl RunSummary {
    /// A run of which nothing is known but when its first event was decided.
    pub(crate) fn new(id: RunId, ts_ms: i64) -> Self {
        Self {
            id,
            parent: None,
            workflow: String::new(),
            goal: String::new(),
            status: RunStatus::Running,
            started_at_ms: ts_ms,
            ended_at_ms: None,
        }
    }

    /// Takes account of one more event.
    pub(crate) fn apply(&mut self, event: &Event) {
        let Some(change) = change(event) else { return };
        if let Some(created) = change.created {
            self.workflow.clone_from(&created.workflow);
            self.goal.clone_from(&created.goal);
            self.parent = created.parent.as_ref().map(|parent| parent.run_id);
        }
        self.status = change.status;
        self.started_at_ms = change.started_at_ms.unwrap_or(self.started_at_ms);
        self.ended_at_ms = change.ended_at_ms;
    }
}

/// What an event changes of its run's summary.
pub(crate) struct Change {
    pub(crate) created: Option<Arc<CreatedRun>>,
    pub(crate) status: RunStatus,
    /// Absent when the run has begun before.
    pub(crate) started_at_ms: Option<i64>,
    pub(crate) ended_at_ms: Option<i64>,
}

/// What this event changes of its run's summary, if anything.
pub(crate) fn change(event: &Event) -> Option<Change> {
    let running = Change {
        created: None,
        status: RunStatus::Running,
        started_at_ms: None,
        ended_at_ms: None,
    };
    let now = Some(event.ts_ms);
    Some(match &event.entry.body {
        EventBody::RunCreated(run) => {
            Change { created: Some(Arc::clone(run)), started_at_ms: now, ..running }
        }
        EventBody::CheckpointForked(point) if !point.in_place => {
            Change { started_at_ms: now, ..running }
        }
        EventBody::RunStarted {}
        | EventBody::RunResumed { .. }
        | EventBody::CheckpointForked(_) => running,
        EventBody::RunPaused { .. } => Change { status: RunStatus::Paused, ..running },
        EventBody::RunCompleted { status, .. } => {
            Change { status: RunStatus::of_completed(*status), ended_at_ms: now, ..running }
        }
        EventBody::RunFailed { .. } => {
            Change { status: RunStatus::Failed, ended_at_ms: now, ..running }
        }
        EventBody::RunCanceled { .. } => {
            Change { status: RunStatus::Canceled, ended_at_ms: now, ..running }
        }
        _ => return None,
    })
}

/// How many runs deep sub-workflows are followed upwards.
pub(crate) const MAX_ANCESTORS: usize = fabro_types::MAX_SUB_WORKFLOW_DEPTH + 1;

/// Marks the runs that no process drives. A sub-workflow is driven with the run it is part of.
pub(crate) fn mark_interrupted(runs: &mut [RunSummary], driven: &BTreeSet<RunId>) {
    let parents: BTreeMap<RunId, RunId> =
        runs.iter().filter_map(|run| Some((run.id, run.parent?))).collect();
    for run in runs.iter_mut().filter(|run| run.status == RunStatus::Running) {
        let ancestors = std::iter::successors(Some(run.id), |id| parents.get(id).copied());
        if !ancestors.take(MAX_ANCESTORS).any(|id| driven.contains(&id)) {
            run.status = RunStatus::Interrupted;
        }
    }
}

/// A run's id, and whether it is a sub-workflow's.
pub(crate) struct Known {
    pub(crate) id: RunId,
    pub(crate) is_child: bool,
}

/// The run that `text` means among these, which are newest first.
pub(crate) fn find(text: &str, runs: &[Known]) -> Result<RunId, StoreError> {
    let text = text.trim();
    if runs.is_empty() {
        return Err(StoreError::NoRuns);
    }
    let not_found = || StoreError::NotFound { text: text.to_owned() };
    if text == "latest" {
        return runs.iter().find(|run| !run.is_child).map(|run| run.id).ok_or_else(not_found);
    }
    let start = text.to_ascii_uppercase();
    if start.is_empty() {
        return Err(not_found());
    }
    let begins = runs.iter().filter(|run| run.id.to_string().starts_with(&start));
    let (children, mut candidates): (Vec<_>, Vec<_>) = begins.partition(|run| run.is_child);
    if candidates.is_empty() {
        candidates = children;
    }
    match candidates[..] {
        [] => Err(not_found()),
        [only] => Ok(only.id),
        _ => Err(StoreError::Ambiguous {
            text: text.to_owned(),
            candidates: candidates.iter().map(|run| run.id).collect(),
        }),
    }
}

/// A run and the runs of its sub-workflows among these.
pub(crate) fn family(run: RunId, runs: &[RunSummary]) -> Vec<RunId> {
    let mut members = vec![run];
    let mut at = 0;
    while let Some(parent) = members.get(at).copied() {
        for child in runs.iter().rev().filter(|child| child.parent == Some(parent)) {
            if !members.contains(&child.id) {
                members.push(child.id);
            }
        }
        at += 1;
    }
    members
}

/// The outermost run that a run is a sub-workflow of.
pub(crate) fn root(run: RunId, runs: &[RunSummary]) -> RunId {
    let mut root = run;
    // Parents of a log that was tampered with may form a circle.
    for _ in 0..runs.len() {
        let parent = runs.iter().find(|it| it.id == root).and_then(|it| it.parent);
        root = parent.unwrap_or(root);
    }
    root
}
