//! Removing runs.

use std::path::Path;

use fabro_engine::{git_branches, last_state_event};
use fabro_events::EventBody;
use fabro_sandbox::git::{GitError, LinkedWorktrees, Repository};
use fabro_sandbox::record_processes;
use fabro_store::{RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_types::RunId;

use crate::error::RunError;
use crate::family::end_leftover_processes;
use crate::lease::with_lease;
use crate::run_id::RUN_ID_VARIABLE;
use crate::sandbox::{remove_run_sandbox, rename_left};
use crate::worktree::{WORKTREE, no_worktree};

/// Removes a run with all its data, its sub-workflows, and its sandbox. The repository of its git worktrees forgets
/// them, and the branches of those of its branches; that of the run stays. The result has a sentence about each thing
/// that could not be removed: a damaged run can be removed too.
///
/// # Errors
///
/// The run is a sub-workflow, is being driven, or is not known; or the store cannot be changed.
pub async fn remove_run(store: &SqliteStore, run: RunId) -> Result<Vec<String>, RunError> {
    let root = store.root(run).await?;
    if root != run {
        return Err(RunError::SubWorkflow { run, root });
    }
    let mut left = Vec::new();
    end_scripts(store, run, &mut left).await?;
    let worktrees = worktrees(store, run).await;
    match remove_run_sandbox(store, run).await {
        Ok(()) => {}
        // Its scripts are running in the sandbox.
        Err(error @ RunError::Store(StoreError::Driven { .. })) => return Err(error),
        Err(error) => left.push(error.to_string()),
    }
    store.delete(run).await?;
    let forgotten = match worktrees {
        Some(Ok(worktrees)) => worktrees.forget(&format!("{}/", git_branches(run))).await,
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    // What stays is removed by `git worktree prune`, and `git branch -D`.
    if let Err(error) = forgotten {
        left.push(format!("not all of run {run} could be removed from its repository: {error}"));
    }
    Ok(left)
}

/// Ends what a killed driver has left running, and renames the control files that its scripts have
/// created: after the run is gone, nothing finds them.
async fn end_scripts(
    store: &SqliteStore,
    run: RunId,
    left: &mut Vec<String>,
) -> Result<(), RunError> {
    // A damaged log can be removed too.
    let last = last_state_event(store, run).await.unwrap_or_default();
    let body = last.map(|last| last.entry.body);
    if let Some(
        EventBody::RunCompleted { .. }
        | EventBody::RunFailed { .. }
        | EventBody::RunCanceled { .. },
    ) = body
    {
        return Ok(());
    }
    record_processes(RUN_ID_VARIABLE, &store.runs_dir());
    let run_dir = store.runs_dir().join(run.to_string());
    let ended = with_lease(store, run, async |_| {
        end_leftover_processes(store, run).await?;
        Ok(rename_left(&run_dir).await?)
    });
    match ended.await {
        Ok(renamed) => left.extend(renamed.lines().map(str::to_owned)),
        Err(error @ RunError::Store(StoreError::Driven { .. })) => return Err(error),
        Err(error) => left.push(error.to_string()),
    }
    Ok(())
}

/// What its repository knows of the git worktrees of a run; `None` where it has none.
async fn worktrees(store: &SqliteStore, run: RunId) -> Option<Result<LinkedWorktrees, GitError>> {
    let first = store.read(run, 0, 1).await.ok().and_then(|events| events.into_iter().next());
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return None;
    };
    let record = created.worktree.as_ref()?;
    let dir = store.runs_dir().join(run.to_string());
    let repository = Path::new(&record.repository);
    Some(LinkedWorktrees::below(&dir, &dir.join(WORKTREE), repository).await)
}

/// Removes the git worktrees and branches of an ended run, if its branch is merged or `is_discarded`
/// allows losing its changes. The run itself stays. Returns the branch of the run, or `None` when there
/// is nothing to remove. With `is_dry`, nothing is removed.
///
/// # Errors
///
/// The run is being driven or unknown, git failed, or a worktree cannot be removed.
pub async fn remove_branch(
    store: &SqliteStore,
    run: RunId,
    is_discarded: bool,
    is_dry: bool,
) -> Result<Option<String>, RunError> {
    let Some(branch) = run_branch(store, run).await? else { return Ok(None) };
    let Some(worktrees) = worktrees(store, run).await else { return Ok(None) };
    let failed = |error: GitError| RunError::from(no_worktree(&error));
    let worktrees = worktrees.map_err(failed)?;
    let dir = store.runs_dir().join(run.to_string());
    let is_unneeded = match worktrees.is_merged(&branch).await.map_err(failed)? {
        None => return Ok(None),
        Some(is_merged) => is_merged || is_discarded,
    };
    if !is_unneeded {
        return Ok(None);
    }
    // Uncommitted changes in the worktree exist nowhere else.
    let worktree = dir.join(WORKTREE);
    if worktree.exists() {
        let found = Repository::find(&worktree).await.map_err(failed)?;
        if found.is_none_or(|found| !found.dirty.is_empty()) {
            return Ok(None);
        }
    }
    if !is_dry {
        let remove = async |_| {
            worktrees.remove_directories(&dir).map_err(failed)?;
            worktrees.clone().forget(&format!("{}/", git_branches(run))).await.map_err(failed)?;
            worktrees.forget(&branch).await.map_err(failed)
        };
        with_lease(store, run, remove).await?;
    }
    Ok(Some(branch))
}

/// The git branch of a run with a worktree.
async fn run_branch(store: &SqliteStore, run: RunId) -> Result<Option<String>, RunError> {
    let first = store.read(run, 0, 1).await?.pop();
    Ok(match first.map(|event| event.entry.body) {
        Some(EventBody::RunCreated(created)) => {
            created.worktree.as_ref().map(|worktree| worktree.branch.clone())
        }
        _ => None,
    })
}
