//! The git worktree of a run: how it is made and forked, and what its log says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabro_config::{GitAuthor, GitSettings};
use fabro_engine::{
    Isolation, MAIN, NodeSpec, Plan, RunState, branch_worktree_top, git_branch, read_all,
    worktree_top,
};
use fabro_events::{CreatedRun, Event, EventBody, RunWorktree};
use fabro_graph::NodeKind;
use fabro_handlers::sub_workflow_id;
use fabro_sandbox::git::{Author, GitError, Repository, Worktree};
use fabro_store::Store;
use fabro_types::{RunId, one_line};

use crate::run_id::RUN_ID_VARIABLE;
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
    warnings.extend(left_out(&base, &repository.dirty));
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
        branches: None,
    };
    let dir = run_dir.join(WORKTREE);
    // A sub-workflow may have some too.
    let may_isolate = |spec: &NodeSpec| {
        spec.kind == NodeKind::ManagerLoop
            || spec.parallel().is_some_and(|spec| spec.isolation == Isolation::Worktree)
    };
    let nodes = plan.workflow().nodes();
    let has_branches = nodes.filter_map(|node| plan.find(&node.id)).any(may_isolate);
    let of_branches = has_branches.then(|| git_branch(run, &record, "branch"));
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

/// The warning about files that differ from the commit `base`, with the first of their names.
fn left_out(base: &str, dirty: &[String]) -> Option<String> {
    const SHOWN: usize = 5;
    let names: Vec<_> = dirty.iter().take(SHOWN).map(|name| one_line(name, 100)).collect();
    let mut names = names.join(", ");
    if dirty.len() > SHOWN {
        names = format!("{names} and {} more", dirty.len() - SHOWN);
    }
    let files = match dirty.len() {
        0 => return None,
        1 => "1 file that differs from it is".to_owned(),
        count => format!("{count} files that differ from it are"),
    };
    let base = base.get(..12).unwrap_or(base);
    Some(format!("the run begins with commit {base}: {files} not in its worktree: {names}"))
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

/// What the logs of a run and its sub-workflows say of one of their worktrees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// The last commits, of each run that works in it.
    pub(crate) commits: BTreeSet<Arc<str>>,
    stages: Vec<RunningStage>,
    /// The files are those of the commit; what else there is is replaced.
    is_anew: bool,
}

/// A stage that was running when a driver ended.
#[derive(Clone, Copy, Debug)]
struct RunningStage {
    kind: NodeKind,
    talked: bool,
}

impl Recorded {
    /// Whether the files are as the run needs them: an agent continues its conversation with its files, a
    /// person may have changed some at a gate. A script that was interrupted runs again, with the files of
    /// the stage before it.
    pub(crate) fn keeps_files(&self) -> bool {
        let changes_none =
            |kind| matches!(kind, NodeKind::Human | NodeKind::Wait | NodeKind::ManagerLoop);
        let talked = self.stages.iter().any(|stage| stage.talked);
        !self.is_anew && (talked || self.stages.iter().all(|stage| changes_none(stage.kind)))
    }
}

/// What is recorded of the worktrees of a run, by their tops. A sub-workflow that is running works in that of its
/// stage, and its stages count instead of that one.
pub(crate) async fn recorded(
    store: &dyn Store,
    root: &RunState,
    is_anew: bool,
) -> Result<BTreeMap<PathBuf, Recorded>, RunError> {
    let mut recorded: BTreeMap<PathBuf, Recorded> = BTreeMap::new();
    let mut states = vec![root.clone()];
    while let Some(state) = states.pop() {
        let Some(created) = &state.created else { continue };
        let Some(record) = &created.worktree else { continue };
        let work_dir = Path::new(&created.work_dir);
        let top = |line: &str| match line {
            MAIN => worktree_top(work_dir, record),
            line => branch_worktree_top(work_dir, record, line),
        };
        for (line, head) in state.worktrees.heads() {
            let of_line = recorded.entry(top(line)).or_default();
            of_line.commits.insert(Arc::clone(head));
            of_line.is_anew = is_anew;
        }
        for (line, stage) in state.active() {
            if stage.handler == NodeKind::ManagerLoop {
                let child = sub_workflow_id(state.run_id, line, stage);
                let child = RunState::try_replay(child, &read_all(store, child).await?)?;
                if child.created.as_ref().is_some_and(|created| created.worktree.is_some()) {
                    states.push(child);
                    continue;
                }
            }
            let Some(worktree) = state.worktrees.of(line) else { continue };
            let running = RunningStage { kind: stage.handler, talked: stage.talked };
            recorded.entry(top(&worktree.line)).or_default().stages.push(running);
        }
    }
    Ok(recorded)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_left_out_are_named_to_a_limit() {
        let warning = |count: usize| {
            let names: Vec<_> = (1..=count).map(|number| format!("f{number}")).collect();
            left_out("0123456789abcdef", &names).unwrap_or_default()
        };
        assert_eq!(warning(0), "");
        let commit = "the run begins with commit 0123456789ab:";
        assert_eq!(
            warning(1),
            format!("{commit} 1 file that differs from it is not in its worktree: f1")
        );
        assert_eq!(
            warning(7),
            format!(
                "{commit} 7 files that differ from it are not in its worktree: f1, f2, f3, f4, f5 and 2 more"
            )
        );
    }
}
