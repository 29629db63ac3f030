//! The git worktree of a run: its files after each stage are a commit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fabro_config::GitSettings;
use fabro_engine::checkpoint::effective;
use fabro_engine::{Handler, Phase, RunState, Stage, StageEnd};
use fabro_events::{CreatedRun, Event, EventBody, RunWorktree};
use fabro_graph::NodeKind;
use fabro_sandbox::git::{Author, GitError, Repository, StageCommit, Worktree};
use fabro_types::RunId;
use tokio::sync::Semaphore;

use crate::services::RUN_ID_VARIABLE;
use crate::{RunError, SetupError};

/// Variables with which git commands of stages would use another repository.
const REDIRECTS: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"];

/// The worktree of a new run, before it is made.
pub(crate) struct NewWorktree {
    /// As it is recorded.
    pub(crate) record: RunWorktree,
    /// The working directory in it.
    pub(crate) work_dir: PathBuf,
    /// What it does not have.
    pub(crate) warnings: Vec<String>,
}

/// The worktree for a new run in a directory. Nothing is changed.
///
/// # Errors
///
/// The directory is in no git work tree that can have one.
pub(crate) async fn new_worktree(
    work_dir: &Path,
    run: RunId,
    run_dir: &Path,
    settings: &GitSettings,
) -> Result<NewWorktree, RunError> {
    let refused = |message: String, fix: &str| Err(SetupError::new(message, fix).into());
    if let Some(name) = REDIRECTS.iter().find(|name| std::env::var_os(name).is_some()) {
        let message = format!("{name} is set: git would use another repository than the run's");
        return refused(message, "unset the variable, or run without a worktree");
    }
    let shown = work_dir.display();
    if work_dir.to_str().is_none() {
        let message = format!("the path of {shown} is not UTF-8: it cannot be recorded");
        return refused(message, "start the run in another directory, or without a worktree");
    }
    let found = Repository::find(work_dir).await.map_err(|error| no_worktree(&error))?;
    let Some(repository) = found else {
        let message =
            format!("a run with a worktree needs a git work tree, and {shown} is in none");
        return refused(
            message,
            "start it in one (`git init` makes one), or run without a worktree",
        );
    };
    if let Some(reason) = &repository.unsupported {
        let message = format!("the repository of {shown} can have no worktree of a run: {reason}");
        return refused(message, "run without a worktree");
    }
    let Some(base) = repository.head else {
        let message =
            format!("a worktree begins with a commit, and the repository of {shown} has none");
        return refused(message, "commit first");
    };
    let mut warnings = Vec::new();
    if repository.dirty > 0 {
        warnings.push(format!(
            "the run begins with commit {}: {} that differ from it are not in its worktree",
            base.get(..12).unwrap_or(&base),
            if repository.dirty == 1 {
                "1 file".to_owned()
            } else {
                format!("{} files", repository.dirty)
            },
        ));
    }
    if repository.is_partial {
        warnings.push(
            "the run's worktree has no files of submodules, and of files that a filter makes (Git LFS) only what git stores"
                .to_owned(),
        );
    }
    let record = RunWorktree {
        repository: repository.top.to_string_lossy().into_owned(),
        base,
        branch: format!("fabro/run/{run}"),
        prefix: repository.prefix.to_string_lossy().into_owned(),
    };
    let dir = run_dir.join(WORKTREE);
    let worktree =
        worktree(&record, &dir, run, settings).await.map_err(|error| no_worktree(&error))?;
    let in_the_way = worktree.branch_in_the_way().await.map_err(|error| no_worktree(&error))?;
    if let Some(branch) = in_the_way {
        let message =
            format!("the branch `{branch}` is in the way of the run's branch {}", record.branch);
        return refused(message, "rename or delete that branch");
    }
    Ok(NewWorktree { work_dir: work_dir_in(&dir, &record), record, warnings })
}

/// The folder of the run's directory that the worktree is in.
pub const WORKTREE: &str = "worktree";

fn no_worktree(error: &GitError) -> SetupError {
    SetupError::new(
        format!("the git worktree of the run cannot be used: {error}"),
        "fix what git reports, then try again",
    )
}

async fn worktree(
    record: &RunWorktree,
    dir: &Path,
    run: RunId,
    settings: &GitSettings,
) -> Result<Worktree, GitError> {
    let GitSettings { author, exclude, .. } = settings;
    let author = Author {
        name: author.name.clone().unwrap_or_else(|| "Fabro".to_owned()),
        email: author.email.clone().unwrap_or_else(|| "fabro@localhost".to_owned()),
    };
    let exclude = exclude.as_deref().unwrap_or_default();
    let marker = (RUN_ID_VARIABLE, &*run.to_string());
    let repository = Path::new(&record.repository);
    Worktree::new(repository, dir, &record.branch, author, exclude, marker).await
}

/// The working directory in a worktree.
fn work_dir_in(dir: &Path, record: &RunWorktree) -> PathBuf {
    dir.join(&record.prefix).components().collect()
}

/// The top of the worktree that a working directory is in.
fn top(work_dir: &Path, record: &RunWorktree) -> PathBuf {
    let levels = Path::new(&record.prefix).components().count();
    work_dir.ancestors().nth(levels).unwrap_or(work_dir).to_owned()
}

/// The commit that has the files as the last of these events left them.
pub(crate) fn last_commit<'a>(
    events: impl DoubleEndedIterator<Item = &'a Event>,
    record: &'a RunWorktree,
) -> &'a str {
    let mut commits = events.rev().filter_map(|event| event.entry.body.git_sha());
    commits.next().unwrap_or(&record.base)
}

/// Makes the worktree of a run that a driver begins with, with the right files in it. `None` where the
/// run has none.
///
/// # Errors
///
/// Git cannot restore the files.
pub(crate) async fn restored_worktree(
    state: &RunState,
    events: &[Event],
    settings: &GitSettings,
    warn: &Arc<dyn Fn(&str) + Send + Sync>,
) -> Result<Option<Arc<Worktree>>, RunError> {
    let Some(created) = &state.created else { return Ok(None) };
    let Some(record) = &created.worktree else { return Ok(None) };
    let work_dir = Path::new(&created.work_dir);
    let restore = async {
        let worktree = worktree(record, &top(work_dir, record), state.run_id, settings).await?;
        let effective = effective(events);
        let commit = last_commit(effective.iter().copied(), record);
        let restored = worktree.restore(commit, keeps_files(state, events)).await?;
        worktree.known(commit).await;
        std::fs::create_dir_all(work_dir)?;
        Ok((worktree, restored))
    };
    let (worktree, restored) = restore.await.map_err(|error| no_worktree(&error))?;
    if restored.is_new && state.phase != Phase::Created && !is_forked(events) {
        warn(
            "the worktree of the run was not there and has been made again, without files that git ignores",
        );
    }
    if let Some(reference) = restored.kept {
        warn(&format!(
            "the files are as the last stage left them; what was changed since is kept as {reference}"
        ));
    }
    Ok(Some(Arc::new(worktree)))
}

/// Whether the files are as the run needs them: an agent continues its conversation with its files, a
/// person may have changed some at a gate, and the stages of a sub-workflow have no commits of their
/// own. A script that was interrupted runs again, with the files of the stage before it.
fn keeps_files(state: &RunState, events: &[Event]) -> bool {
    let changes_none =
        |kind| matches!(kind, NodeKind::Human | NodeKind::Wait | NodeKind::ManagerLoop);
    let mut active = state.active().map(|(_, stage)| stage);
    state.phase != Phase::Created
        && !is_forked(events)
        && (state.active().any(|(_, stage)| stage.talked)
            || active.all(|stage| changes_none(stage.handler)))
}

/// Whether a fork or a rewind is the last thing that happened.
fn is_forked(events: &[Event]) -> bool {
    let last = events.iter().rev().find(|event| !event.entry.body.is_of_compaction());
    last.is_some_and(|event| matches!(event.entry.body, EventBody::CheckpointForked(_)))
}

/// The branch of a fork of a run.
pub(crate) struct ForkedBranch {
    worktree: Worktree,
    commit: String,
}

impl ForkedBranch {
    /// Removes it: the fork could not be recorded, whose error is the one that counts.
    pub(crate) async fn remove(self) {
        let _ = self.worktree.remove_branch(&self.commit).await;
    }
}

/// Gives a fork of a run a worktree and a branch of its own, the branch at the commit of the stage.
/// `None` where the run has no worktree.
///
/// # Errors
///
/// Git failed: the repository or the commit is gone.
pub(crate) async fn fork_worktree(
    copied: &mut [Event],
    run: RunId,
) -> Result<Option<ForkedBranch>, RunError> {
    let not_created = || RunError::NotCreated { run };
    let (first, rest) = copied.split_first_mut().ok_or_else(not_created)?;
    let EventBody::RunCreated(created) = &mut first.entry.body else { return Err(not_created()) };
    let created: &mut CreatedRun = Arc::make_mut(created);
    let Some(record) = &mut created.worktree else { return Ok(None) };
    let old = top(Path::new(&created.work_dir), record);
    let runs_dir = old.ancestors().nth(2).unwrap_or(&old);
    let dir = runs_dir.join(run.to_string()).join(WORKTREE);
    record.branch = format!("fabro/run/{run}");
    created.work_dir = work_dir_in(&dir, record).to_string_lossy().into_owned();
    let commit = last_commit(rest.iter(), record);
    let make = async {
        let worktree = worktree(record, &dir, run, &GitSettings::default()).await?;
        worktree.make_branch(commit).await?;
        Ok(worktree)
    };
    let worktree = make.await.map_err(|error| no_worktree(&error))?;
    Ok(Some(ForkedBranch { worktree, commit: commit.to_owned() }))
}

/// Commits what each stage changed.
pub(crate) struct CommitsStages {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) worktree: Arc<Worktree>,
    pub(crate) warn: Arc<dyn Fn(&str) + Send + Sync>,
}

#[async_trait]
impl Handler for CommitsStages {
    fn places(&self, kind: NodeKind) -> Option<Arc<Semaphore>> {
        self.handler.places(kind)
    }

    async fn execute(&self, stage: Stage) -> StageEnd {
        if matches!(stage.spec().kind, NodeKind::Conditional | NodeKind::Exit) {
            return self.handler.execute(stage).await;
        }
        let at = &stage.at;
        let mut name = format!("{}@{}", at.node, at.visit);
        let directory = format!("{:03}-{name}", at.rank);
        if let Some(branch) = &stage.branch {
            name = format!("{branch}/{name}");
        }
        let mut commit = StageCommit {
            subject: format!("fabro({}): {}", stage.run_id, at.node),
            trailers: format!(
                "Fabro-Run: {}\nFabro-Stage: {name}\nFabro-Checkpoint: {directory}",
                stage.run_id
            ),
            replaces: at.attempt > 1 || at.talked,
        };
        let stop = stage.stop.clone();
        let mut end = self.handler.execute(stage).await;
        // The result of a stage that runs again is not recorded.
        if stop.is_cancelled() {
            return end;
        }
        if let StageEnd::Finished(finished) = &mut end {
            commit.subject = format!("{} ({})", commit.subject, finished.outcome.status.as_str());
            match self.worktree.commit(&commit).await {
                Ok((sha, warning)) => {
                    finished.outcome.git_sha = sha;
                    if let Some(warning) = warning {
                        (self.warn)(&format!("{name}: {warning}"));
                    }
                }
                Err(error) => {
                    let message = format!("the files of {name} cannot be committed: {error}");
                    return StageEnd::CannotRecord { message };
                }
            }
        }
        end
    }
}
