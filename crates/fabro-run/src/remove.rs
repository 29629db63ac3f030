//! Removing runs.

use std::path::Path;

use fabro_engine::git_branches;
use fabro_events::EventBody;
use fabro_sandbox::git::{GitError, LinkedWorktrees};
use fabro_store::{RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_types::RunId;

use crate::error::RunError;
use crate::sandbox::remove_run_sandbox;
use crate::worktree::WORKTREE;

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
