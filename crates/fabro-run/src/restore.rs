//! The git worktrees that a driver begins with, with the files that the log says.

use std::path::Path;
use std::sync::Arc;

use fabro_config::GitSettings;
use fabro_engine::{Phase, RunState, worktree_top};
use fabro_events::{Event, EventBody};
use fabro_store::Store;

use crate::RunError;
use crate::stage_commits::{RunWorktrees, Warn};
use crate::worktree::{no_worktree, recorded, worktree};

/// Makes the worktree of a run that a driver begins with, with the right files in it; those of branches
/// follow with their next stages. `None` where the run has none.
///
/// # Errors
///
/// Git cannot restore the files.
pub(crate) async fn restored_worktrees(
    store: &dyn Store,
    state: &RunState,
    events: &[Event],
    settings: &GitSettings,
    warn: &Warn,
) -> Result<Option<RunWorktrees>, RunError> {
    let Some(created) = &state.created else { return Ok(None) };
    let Some(record) = &created.worktree else { return Ok(None) };
    let work_dir = Path::new(&created.work_dir);
    let top = worktree_top(work_dir, record);
    let is_anew = state.phase == Phase::Created || is_forked(events);
    let recorded = recorded(store, state, is_anew).await?;
    let Some(own) = recorded.get(&top) else { return Ok(None) };
    let restore = async {
        let worktree = worktree(record, &top, state.run_id, settings).await?;
        let commit = worktree.newest(&own.commits).await?;
        let restored = worktree.restore(&commit, own.keeps_files()).await?;
        worktree.known(&commit).await;
        std::fs::create_dir_all(work_dir)?;
        Ok((worktree, restored))
    };
    let (worktree, restored) = restore.await.map_err(|error| no_worktree(&error))?;
    if restored.is_new && !is_anew {
        warn(
            "the worktree of the run was not there and has been made again, without files that git ignores",
        );
    }
    if let Some(reference) = restored.kept {
        warn(&format!(
            "the files are as the last stage left them; what was changed since is kept as {reference}"
        ));
    }
    let main = (top, worktree);
    let settings = settings.clone();
    Ok(Some(RunWorktrees::new(main, state.run_id, settings, recorded, Arc::clone(warn))))
}

/// Whether a fork or a rewind is the last thing that happened.
fn is_forked(events: &[Event]) -> bool {
    let last = events.iter().rev().find(|event| !event.entry.body.is_of_compaction());
    last.is_some_and(|event| matches!(event.entry.body, EventBody::CheckpointForked(_)))
}
