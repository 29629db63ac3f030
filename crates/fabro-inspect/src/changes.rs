//! What stages changed in the git worktree of their run, or in the user's.

use std::path::{Path, PathBuf};

use fabro_engine::checkpoint::effective;
use fabro_engine::{MAIN, Worktrees};
use fabro_events::{Event, EventBody, RunWorktree};
use fabro_sandbox::git::PatchSource;
use serde::Serialize;

use crate::StageKey;

/// What the stages of a run changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes<'a> {
    /// The worktree of the run, as it was recorded; `None` for a run in the user's.
    pub worktree: Option<&'a RunWorktree>,
    /// The stages that changed files, in the order in which they ended; those of branches with worktrees of
    /// their own too.
    pub stages: Vec<StageChange>,
    whole: Option<(String, String)>,
}

/// The files as a stage found and left them, as two commits; as two trees in a run without a worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageChange {
    /// `[BRANCH/]NODE@VISIT`.
    pub stage: String,
    /// The commit before it.
    pub from: String,
    /// Its own.
    pub to: String,
    /// Other stages ran at the same time in the same directory: what they changed is in it too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Files that changed and are not in it, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl StageChange {
    /// What a stage changed without a worktree of its run; `None` of any other event.
    pub(crate) fn in_place(event: &Event) -> Option<Self> {
        let trees = event.entry.body.trees()?;
        Some(Self {
            stage: StageKey::of(event)?.full_name(),
            from: trees.before.clone(),
            to: trees.after.clone(),
            shared: trees.shared,
            left_out: trees.left_out.clone(),
        })
    }
}

impl Changes<'_> {
    /// The files before the first stage, and after the last one; `None` when they are the same.
    pub fn whole(&self) -> Option<(&str, &str)> {
        self.whole.as_ref().map(|(from, to)| (from.as_str(), to.as_str()))
    }

    /// Where the commits or trees are, of a run with this directory.
    pub fn source(&self, run_dir: &Path) -> PatchSource {
        patch_source(self.worktree, run_dir)
    }
}

/// Where what a run changed is recorded, of a run with this directory.
pub fn patch_source(worktree: Option<&RunWorktree>, run_dir: &Path) -> PatchSource {
    match worktree {
        Some(worktree) => PatchSource::Repository(PathBuf::from(&worktree.repository)),
        None => PatchSource::of_run(run_dir),
    }
}

/// The trees before the first and after the last of these stages, in the order in which they ended.
pub(crate) fn whole_of(stages: &[StageChange]) -> Option<(&str, &str)> {
    let first = stages.first()?;
    let last = stages.last()?;
    (first.from != last.to).then(|| (&*first.from, &*last.to))
}

/// The gate at which a person discarded the changes of a run, and the label of the answer. Decided by the first word of
/// the run's last answer.
pub fn discarded_at(events: &[Event]) -> Option<(String, String)> {
    const WORDS: [&str; 6] = ["abandon", "delete", "discard", "drop", "reject", "throw"];
    let (key, label) = effective(events).into_iter().rev().find_map(|event| {
        let EventBody::GateAnswered { label, .. } = &event.entry.body else { return None };
        Some((StageKey::of(event)?, label))
    })?;
    let first = label.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    WORDS.contains(&&*first.to_lowercase()).then(|| (key.full_name(), label.clone()))
}

/// What a run changed, as far as it is on its present course; `None` when it has no worktree, and no stage has
/// recorded a change.
pub fn changes(events: &[Event]) -> Option<Changes<'_>> {
    let worktree = events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => created.worktree.as_ref(),
        _ => None,
    });
    let Some(worktree) = worktree else {
        let stages: Vec<StageChange> =
            effective(events).into_iter().filter_map(StageChange::in_place).collect();
        let whole = whole_of(&stages).map(|(from, to)| (from.to_owned(), to.to_owned()));
        return (!stages.is_empty()).then_some(Changes { worktree: None, stages, whole });
    };
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
        stages.push(StageChange {
            stage: key.full_name(),
            from,
            to: to.to_owned(),
            shared: false,
            left_out: Vec::new(),
        });
    }
    let base = &worktree.base;
    let last = worktrees.head(MAIN).map_or_else(|| base.clone(), ToString::to_string);
    let whole = (last != *base).then(|| (base.clone(), last));
    Some(Changes { worktree: Some(worktree), stages, whole })
}
