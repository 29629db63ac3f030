//! Reports about the runs of a store: what the command line prints as JSON, and a server answers with.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use fabro_engine::checkpoint::effective;
use fabro_engine::{last_state_event, read_all};
use fabro_events::{CreatedRun, EventBody, RunWorktree};
use fabro_run::{is_driven, now_ms, open_gates_of_family};
use fabro_sandbox::git::{CHANGES, GitError, Patch, PatchStyle, incomplete_file_trees, patch};
use fabro_store::{Message, RunStore, Store, StoreError};
use fabro_types::{RunId, RunStatus};

use crate::at::find;
use crate::changes::{StageChange, patch_source};
use crate::{
    ArtifactFold, ArtifactRow, Inspect, PsRow, ReportError, StageReport, StageRow, changes,
    check_stage, inspect, ps, stage,
};

/// How many events are read at a time.
const PAGE: usize = 1_024;

/// The runs of a store, newest first; those of sub-workflows only if `all`. A run whose events cannot
/// be read is listed without what they say; the second list has the reasons.
///
/// # Errors
///
/// The list of runs cannot be read.
pub async fn list_runs(
    store: &dyn Store,
    all: bool,
) -> Result<(Vec<PsRow>, Vec<StoreError>), StoreError> {
    let mut rows = ps(store.list().await?, all);
    let mut failed = Vec::new();
    for row in &mut rows {
        failed.extend(describe(store, row).await.err());
    }
    Ok((rows, failed))
}

/// Adds what the first event of a run says, and the last one that says its state.
///
/// # Errors
///
/// The events cannot be read.
pub async fn describe(store: &dyn Store, row: &mut PsRow) -> Result<(), StoreError> {
    let first = store.read(row.id, 0, 1).await?.into_iter().next();
    // Fails when events were lost at the end, although the list may have another status of the run.
    store.read(row.id, store.last_seq(row.id).await?, 1).await?;
    row.describe(first.as_ref(), last_state_event(store, row.id).await?.as_ref());
    if row.status == RunStatus::Paused {
        // Those of sub-workflows have inboxes of their own.
        for run in store.family(row.id).await? {
            let pending = store.pending(run).await?.into_iter();
            row.answers.extend(pending.filter_map(|(_, message)| match message {
                Message::Answer { choice, .. } => Some(choice),
                _ => None,
            }));
        }
    }
    Ok(())
}

/// A run as it is now: [`inspect()`](crate::inspect()), with the gates of its sub-workflows.
///
/// # Errors
///
/// The log cannot be read.
pub async fn inspect_run(store: &dyn RunStore, run: RunId) -> Result<Inspect, ReportError> {
    let events = read_all(store, run).await?;
    let mut report = inspect(&events, is_driven(store, run).await?)?;
    if report.status == RunStatus::Running {
        report.until(now_ms());
    }
    report.gates = open_gates_of_family(store, run).await?;
    Ok(report)
}

/// A stage as it is now: [`stage()`](crate::stage()).
///
/// # Errors
///
/// There is no such stage, or there are several, or the log cannot be read.
pub async fn inspect_stage(
    store: &dyn RunStore,
    run: RunId,
    name: &str,
) -> Result<StageReport, ReportError> {
    let events = read_all(store, run).await?;
    let mut report = stage(&events, name, is_driven(store, run).await?, store)?;
    let children = sub_workflows(store, run, &report.row).await?;
    report.sub_workflows = children.into_iter().map(|(child, _)| child).collect();
    Ok(report)
}

/// The runs of the sub-workflows of this stage, each with how it was created.
///
/// # Errors
///
/// The store cannot be read.
pub async fn sub_workflows(
    store: &dyn RunStore,
    run: RunId,
    row: &StageRow,
) -> Result<Vec<(RunId, Arc<CreatedRun>)>, ReportError> {
    let mut runs = Vec::new();
    for member in store.family(run).await?.into_iter().skip(1) {
        let first = store.read(member, 0, 1).await?;
        if let Some(EventBody::RunCreated(created)) = first.first().map(|event| &event.entry.body)
            && let Some(parent) = &created.parent
            && parent.run_id == run
            && parent.is(row.branch.as_deref(), &row.node, row.visit)
        {
            runs.push((member, Arc::clone(created)));
        }
    }
    Ok(runs)
}

/// Why there is no patch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The run has no git worktree, and worked in none of the user's.
    #[error("what run {run} changed was not recorded: {reason}")]
    NotRecorded {
        /// The run.
        run: RunId,
        /// Why.
        reason: &'static str,
    },
    /// The stage or the log cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// What is stored of the changes is damaged.
    #[error("the changes of run {run} cannot be read: {detail}")]
    Damaged {
        /// The run.
        run: RunId,
        /// What is damaged, and where.
        detail: String,
    },
    /// Git cannot read the commits or trees.
    #[error("the changes of run {run} cannot be read in {repository}: {source}")]
    Git {
        /// The run.
        run: RunId,
        /// The repository.
        repository: String,
        /// Why.
        source: GitError,
    },
}

/// What a run or a stage changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPatch {
    /// As a patch; empty when nothing differs but what is left out.
    pub patch: Vec<u8>,
    /// The files also have what other stages changed at the same time.
    pub shared: bool,
    /// Files that changed and are not in the patch, with the reason.
    pub left_out: Vec<String>,
    /// Why changes of some stages were not recorded.
    pub incomplete: Option<String>,
    /// Files that changed and are not in the patch, because what is stored of them is damaged.
    pub damage: Option<String>,
}

/// What a run, or one of its stages, changed; `None` when no file was changed. `runs_dir` is where the store keeps the
/// files of runs.
///
/// # Errors
///
/// It was not recorded, there is no such stage, or the commits are gone.
pub async fn run_patch(
    store: &dyn Store,
    runs_dir: &Path,
    run: RunId,
    stage: Option<&str>,
    style: PatchStyle,
) -> Result<Option<RunPatch>, PatchError> {
    let events = read_all(store, run).await.map_err(ReportError::from)?;
    let own_dir = runs_dir.join(run.to_string());
    let stage = match stage {
        Some(stage) => {
            let events = effective(&events);
            check_stage(&events, stage)?;
            Some(find(&events, stage)?.full_name())
        }
        None => None,
    };
    let Some(all) = changes(&events) else {
        let created = events.iter().find_map(|event| match &event.entry.body {
            EventBody::RunCreated(created) => Some(&**created),
            _ => None,
        });
        return without_changes(run, &own_dir, created);
    };
    let whole = all.whole();
    patch_of(run, &own_dir, all.worktree, &all.stages, whole, stage.as_deref(), style).await
}

/// The patch of a run with this directory and these changes, or of one of its stages by its full name; `None` when no
/// file was changed.
///
/// # Errors
///
/// Git cannot read the commits or trees.
pub async fn patch_of(
    run: RunId,
    run_dir: &Path,
    worktree: Option<&RunWorktree>,
    changes: &[StageChange],
    whole: Option<(&str, &str)>,
    stage: Option<&str>,
    style: PatchStyle,
) -> Result<Option<RunPatch>, PatchError> {
    let mut made = RunPatch { incomplete: incomplete_file_trees(run_dir), ..RunPatch::default() };
    let between = match stage {
        None => {
            let left_out: BTreeSet<&String> =
                changes.iter().flat_map(|change| &change.left_out).collect();
            made.left_out = left_out.into_iter().cloned().collect();
            whole
        }
        Some(stage) => {
            let change = changes.iter().rfind(|change| change.stage == stage);
            if let Some(change) = change {
                made.shared = change.shared;
                made.left_out.clone_from(&change.left_out);
            }
            change.map(|change| (&*change.from, &*change.to))
        }
    };
    let Some((from, to)) = between.filter(|(from, to)| from != to) else {
        let has_remarks = !made.left_out.is_empty() || made.incomplete.is_some();
        return Ok(has_remarks.then_some(made));
    };
    let source = patch_source(worktree, run_dir);
    match patch(&source, from, to, style).await {
        Ok(Patch { text, damage }) => Ok(Some(RunPatch { patch: text, damage, ..made })),
        Err(GitError::Damaged(detail)) => Err(PatchError::Damaged { run, detail }),
        // What was left out is said: it may be the trees themselves.
        Err(GitError::Failed(..)) if !made.left_out.is_empty() => Ok(Some(made)),
        Err(error) => {
            let repository = source.dir().to_string_lossy().into_owned();
            // Git itself says only that it cannot be started there.
            if let Err(unread) = fs::read_dir(source.dir())
                && unread.kind() != io::ErrorKind::NotFound
                && source.dir().starts_with(run_dir)
            {
                return Err(PatchError::Damaged { run, detail: format!("{repository}: {unread}") });
            }
            Err(PatchError::Git { run, repository, source: error })
        }
    }
}

/// What there is of a run with this directory and no change: nothing, where it changed no file, or the remark that not
/// all was recorded.
///
/// # Errors
///
/// It was not recorded.
pub fn without_changes(
    run: RunId,
    run_dir: &Path,
    created: Option<&CreatedRun>,
) -> Result<Option<RunPatch>, PatchError> {
    if let incomplete @ Some(_) = incomplete_file_trees(run_dir) {
        return Ok(Some(RunPatch { incomplete, ..RunPatch::default() }));
    }
    let reason = if created.is_some_and(|created| created.dry_run) {
        "it was a dry run"
    } else if run_dir.join(CHANGES).join("HEAD").exists() {
        return Ok(None);
    } else {
        "it ran outside of a git work tree, with `diff = false` in [run.git], or no stage ran that changes files"
    };
    Err(PatchError::NotRecorded { run, reason })
}

/// The artifacts of a run and of its sub-workflows, oldest first; of one stage, if it is named.
///
/// # Errors
///
/// The log cannot be read.
pub async fn list_artifacts(
    store: &dyn Store,
    runs_dir: &Path,
    run: RunId,
    stage: Option<&str>,
) -> Result<Vec<ArtifactRow>, StoreError> {
    let mut folds = Vec::new();
    for member in store.family(run).await? {
        let mut fold = ArtifactFold::default();
        let mut after = 0;
        loop {
            let page = store.read(member, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for event in &page {
                fold.apply(event);
            }
        }
        folds.push(fold);
    }
    Ok(ArtifactFold::rows(&folds, runs_dir, stage))
}
