//! Reports about the runs of a store: what the command line prints as JSON, and a server answers with.

use std::path::Path;
use std::sync::Arc;

use fabro_engine::{last_state_event, read_all};
use fabro_events::{CreatedRun, EventBody};
use fabro_run::{is_driven, now_ms, open_gates_of_family};
use fabro_sandbox::git::{GitError, PatchStyle, patch};
use fabro_store::{Message, RunStore, Store, StoreError};
use fabro_types::{RunId, RunStatus};

use crate::{
    ArtifactFold, ArtifactRow, Inspect, PsRow, ReportError, StageReport, StageRow, change_of_stage,
    changes, inspect, ps, stage,
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
    /// The run has no git worktree.
    #[error("run {run} has no git worktree, so its changes were not recorded")]
    NoWorktree {
        /// The run.
        run: RunId,
    },
    /// The stage or the log cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Git cannot read the commits.
    #[error("the commits of run {run} cannot be read in {repository}: {source}")]
    Git {
        /// The run.
        run: RunId,
        /// The repository.
        repository: String,
        /// Why.
        source: GitError,
    },
}

/// The changes of a run with a git worktree, or of one of its stages, as a patch; `None` when no file
/// was changed.
///
/// # Errors
///
/// The run has no worktree, there is no such stage, or the commits are gone.
pub async fn run_patch(
    store: &dyn Store,
    run: RunId,
    stage: Option<&str>,
    style: PatchStyle,
) -> Result<Option<Vec<u8>>, PatchError> {
    let events = read_all(store, run).await.map_err(ReportError::from)?;
    let Some(all) = changes(&events) else { return Err(PatchError::NoWorktree { run }) };
    let commits = match stage {
        None => {
            let from = &all.worktree.base;
            let to = all.last();
            (from != to).then(|| (from.clone(), to.to_owned()))
        }
        Some(stage) => {
            change_of_stage(&events, &all, stage)?.map(|change| (change.from, change.to))
        }
    };
    let Some((from, to)) = commits else { return Ok(None) };
    let repository = all.worktree.repository.clone();
    match patch(Path::new(&repository), &from, &to, style).await {
        Ok(patch) => Ok(Some(patch)),
        Err(source) => Err(PatchError::Git { run, repository, source }),
    }
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
