//! `fabro rm`.

use std::path::Path;

use clap_complete::ArgValueCandidates;
use fabro_engine::git_branches;
use fabro_events::EventBody;
use fabro_run::{RunError, WORKTREE, remove_run_sandbox};
use fabro_sandbox::git::{GitError, LinkedWorktrees};
use fabro_store::{RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_terminal::clean;
use fabro_types::RunId;

use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, find};
use crate::output;

/// Remove runs with all their data
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro rm latest\n  fabro rm 01K3 01K4\n\nA run that is being driven is not removed: end it with `fabro cancel` first."
)]
pub struct RmArgs {
    /// The runs: ids, the beginnings of ids, or `latest`
    #[arg(required = true, value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    pub runs: Vec<String>,
}

/// Removes runs. All of them are looked up first, so that `latest` keeps its meaning, and a typo
/// removes nothing.
pub async fn rm(args: &RmArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.existing_store()?;
    let mut runs = Vec::new();
    for text in &args.runs {
        let run = find(&store, text).await?;
        let root = store.root(run).await?;
        if root != run {
            return Err(RunError::SubWorkflow { run, root }.into());
        }
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    for run in runs {
        remove(&store, run, global).await?;
        output::text(&format!("removed {run}\n"))?;
    }
    Ok(Exit::SUCCEEDED)
}

/// Removes a run with all its data. The repository of its git worktrees forgets them, and the branches of those
/// of its branches; that of the run stays.
pub async fn remove(store: &SqliteStore, run: RunId, global: &Global) -> Result<(), StoreError> {
    let worktrees = worktrees(store, run).await?;
    match remove_run_sandbox(store, run).await {
        Ok(()) => {}
        // Its scripts are running in the sandbox.
        Err(RunError::Store(error @ StoreError::Driven { .. })) => return Err(error),
        // A damaged run can be removed too.
        Err(error) => global.warn([clean(&error.to_string()).into_owned()]),
    }
    store.delete(run).await?;
    let forgotten = match worktrees {
        Some(Ok(worktrees)) => worktrees.forget(&format!("{}/", git_branches(run))).await,
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    // What stays is removed by `git worktree prune`, and `git branch -D`.
    if let Err(error) = forgotten {
        let error = clean(&error.to_string()).into_owned();
        global
            .warn([format!("not all of run {run} could be removed from its repository: {error}")]);
    }
    Ok(())
}

/// What its repository knows of the git worktrees of a run; `None` where it has none.
async fn worktrees(
    store: &SqliteStore,
    run: RunId,
) -> Result<Option<Result<LinkedWorktrees, GitError>>, StoreError> {
    // A damaged run can be removed too.
    let first = store.read(run, 0, 1).await.ok().and_then(|events| events.into_iter().next());
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Ok(None);
    };
    let Some(record) = &created.worktree else { return Ok(None) };
    let dir = store.runs_dir().join(run.to_string());
    let repository = Path::new(&record.repository);
    Ok(Some(LinkedWorktrees::below(&dir, &dir.join(WORKTREE), repository).await))
}
