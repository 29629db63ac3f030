//! What stages changed in the git worktree of their run.

use fabro_engine::checkpoint::effective;
use fabro_engine::{MAIN, Worktrees};
use fabro_events::{Event, EventBody, RunWorktree};
use serde::Serialize;

use crate::at::find;
use crate::{ReportError, StageKey, check_stage};

/// The commits of a run with a worktree of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes<'a> {
    /// The worktree, as it was recorded.
    pub worktree: &'a RunWorktree,
    /// The stages that changed files, in the order in which they ended; those of branches with worktrees of
    /// their own too.
    pub stages: Vec<StageChange>,
    last: String,
}

/// The files as a stage found and left them, as two commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageChange {
    /// `[BRANCH/]NODE@VISIT`.
    pub stage: String,
    /// The commit before it.
    pub from: String,
    /// Its own.
    pub to: String,
}

impl Changes<'_> {
    /// The last commit of the run's own worktree; the one that the worktree began with before any.
    pub fn last(&self) -> &str {
        &self.last
    }
}

/// The commits of a run, as far as it is on its present course; `None` when it has no worktree.
pub fn changes(events: &[Event]) -> Option<Changes<'_>> {
    let worktree = events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => created.worktree.as_ref(),
        _ => None,
    })?;
    let mut stages: Vec<StageChange> = Vec::new();
    let mut worktrees = Worktrees::default();
    for event in effective(events) {
        let line = event.entry.branch.as_deref().unwrap_or(MAIN);
        let before = worktrees.of(line).map(|worktree| worktree.head);
        worktrees.apply(event);
        let (Some(to), Some(key), Some(from)) =
            (event.entry.body.git_sha(), StageKey::of(event), before)
        else {
            continue;
        };
        if *from == *to {
            // A sub-workflow that changed no file, beside a stage that did.
            continue;
        }
        let from = from.to_string();
        stages.push(StageChange { stage: key.full_name(), from, to: to.to_owned() });
    }
    let last = worktrees.head(MAIN).map_or_else(|| worktree.base.clone(), ToString::to_string);
    Some(Changes { worktree, stages, last })
}

/// What one stage changed: a name as of [`explain`](crate::explain). `None` when it changed no file.
///
/// # Errors
///
/// There is no such stage, or there are several.
pub fn change_of_stage(
    events: &[Event],
    changes: &Changes<'_>,
    name: &str,
) -> Result<Option<StageChange>, ReportError> {
    let events = effective(events);
    check_stage(&events, name)?;
    let stage = find(&events, name)?.full_name();
    Ok(changes.stages.iter().rfind(|change| change.stage == stage).cloned())
}
