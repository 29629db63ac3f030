//! The git worktree of a run: how it is made, restored and forked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabro_config::{GitAuthor, GitSettings};
use fabro_engine::{
    ActiveStage, Isolation, MAIN, ParallelSpec, Phase, Plan, RunState, worktree_top,
};
use fabro_events::{CreatedRun, Event, EventBody, RunWorktree};
use fabro_graph::NodeKind;
use fabro_sandbox::git::{Author, GitError, Repository, Worktree};
use fabro_types::RunId;

use crate::services::RUN_ID_VARIABLE;
use crate::stage_commits::{RunWorktrees, Warn, branch_name};
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
    plan: &Plan,
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
    let isolates = |spec: &ParallelSpec| spec.isolation == Isolation::Worktree;
    let nodes = plan.workflow().nodes();
    let has_branches = nodes.filter_map(|node| plan.find(&node.id)?.parallel()).any(isolates);
    let of_branches = has_branches.then(|| branch_name(run, "branch"));
    for name in [record.branch.clone()].into_iter().chain(of_branches) {
        let named = RunWorktree { branch: name, ..record.clone() };
        let worktree = worktree(&named, &dir, run, settings).await;
        let worktree = worktree.map_err(|error| no_worktree(&error))?;
        let in_the_way = worktree.branch_in_the_way().await.map_err(|error| no_worktree(&error))?;
        if let Some(branch) = in_the_way {
            let message =
                format!("the branch `{branch}` is in the way of the run's branch {}", named.branch);
            return refused(message, "rename or delete that branch");
        }
    }
    Ok(NewWorktree { work_dir: work_dir_in(&dir, &record), record, warnings })
}

/// The folder of the run's directory that the worktree is in.
pub const WORKTREE: &str = "worktree";

pub(crate) fn no_worktree(error: &GitError) -> SetupError {
    SetupError::new(
        format!("the git worktree of the run cannot be used: {error}"),
        "fix what git reports, then try again",
    )
}

/// Whose commits those of a run are.
pub fn author(settings: &GitSettings) -> Author {
    let GitAuthor { name, email } = &settings.author;
    Author {
        name: name.clone().unwrap_or_else(|| "Fabro".to_owned()),
        email: email.clone().unwrap_or_else(|| "fabro@localhost".to_owned()),
    }
}

pub(crate) async fn worktree(
    record: &RunWorktree,
    dir: &Path,
    run: RunId,
    settings: &GitSettings,
) -> Result<Worktree, GitError> {
    let exclude = &settings.exclude;
    let author = author(settings);
    let exclude = exclude.as_deref().unwrap_or_default();
    let marker = (RUN_ID_VARIABLE, &*run.to_string());
    let repository = Path::new(&record.repository);
    Worktree::new(repository, dir, &record.branch, author, exclude, marker).await
}

/// The working directory in a worktree.
fn work_dir_in(dir: &Path, record: &RunWorktree) -> PathBuf {
    dir.join(&record.prefix).components().collect()
}

/// Makes the worktree of a run that a driver begins with, with the right files in it; those of branches
/// follow with their next stages. `None` where the run has none.
///
/// # Errors
///
/// Git cannot restore the files.
pub(crate) async fn restored_worktrees(
    state: &RunState,
    events: &[Event],
    settings: &GitSettings,
    warn: &Warn,
) -> Result<Option<RunWorktrees>, RunError> {
    let Some(created) = &state.created else { return Ok(None) };
    let Some(record) = &created.worktree else { return Ok(None) };
    let Some(commit) = state.worktrees.head(MAIN) else { return Ok(None) };
    let work_dir = Path::new(&created.work_dir);
    let keeps = keeps_files(state, events);
    let restore = async {
        let top = worktree_top(work_dir, record);
        let worktree = worktree(record, &top, state.run_id, settings).await?;
        let restored = worktree.restore(commit, keeps.contains(MAIN)).await?;
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
    let settings = settings.clone();
    Ok(Some(RunWorktrees::new(Arc::new(worktree), state.run_id, settings, keeps, Arc::clone(warn))))
}

/// The worktrees whose files are as the run needs them, by the lines that they were made for: an agent
/// continues its conversation with its files, a person may have changed some at a gate, and the stages of
/// a sub-workflow have no commits of their own. A script that was interrupted runs again, with the files
/// of the stage before it.
fn keeps_files(state: &RunState, events: &[Event]) -> BTreeSet<Arc<str>> {
    let changes_none =
        |kind| matches!(kind, NodeKind::Human | NodeKind::Wait | NodeKind::ManagerLoop);
    if state.phase == Phase::Created || is_forked(events) {
        return BTreeSet::new();
    }
    let mut stages: BTreeMap<Arc<str>, Vec<&ActiveStage>> = BTreeMap::new();
    stages.insert(MAIN.into(), Vec::new());
    for (line, stage) in state.active() {
        if let Some(worktree) = state.worktrees.of(line) {
            stages.entry(worktree.line).or_default().push(stage);
        }
    }
    let keeps = |stages: &[&ActiveStage]| {
        stages.iter().any(|stage| stage.talked)
            || stages.iter().all(|stage| changes_none(stage.handler))
    };
    stages.into_iter().filter(|(_, stages)| keeps(stages)).map(|(line, _)| line).collect()
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
    let commit = RunState::replay(run, &*copied).worktrees.head(MAIN).cloned();
    let not_created = || RunError::NotCreated { run };
    let first = copied.first_mut().ok_or_else(not_created)?;
    let EventBody::RunCreated(created) = &mut first.entry.body else { return Err(not_created()) };
    let created: &mut CreatedRun = Arc::make_mut(created);
    let Some(record) = &mut created.worktree else { return Ok(None) };
    let old = worktree_top(Path::new(&created.work_dir), record);
    let runs_dir = old.ancestors().nth(2).unwrap_or(&old);
    let dir = runs_dir.join(run.to_string()).join(WORKTREE);
    record.branch = format!("fabro/run/{run}");
    created.work_dir = work_dir_in(&dir, record).to_string_lossy().into_owned();
    let commit = commit.ok_or_else(not_created)?;
    let make = async {
        let worktree = worktree(record, &dir, run, &GitSettings::default()).await?;
        worktree.make_branch(&commit).await?;
        Ok(worktree)
    };
    let worktree = make.await.map_err(|error| no_worktree(&error))?;
    Ok(Some(ForkedBranch { worktree, commit: commit.to_string() }))
}
