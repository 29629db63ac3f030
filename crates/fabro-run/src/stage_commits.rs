//! The commits of a run's stages: what each changed in the git worktree of its line, and the branches whose files a
//! fan-in takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fabro_config::GitSettings;
use fabro_engine::{
    Handler, LineWorktree, Merge, NodeBody, Stage, StageEnd, git_branch, keys, read_blob,
    worktree_top,
};
use fabro_events::RunWorktree;
use fabro_graph::NodeKind;
use fabro_sandbox::git::{GitError, Merged, StageCommit, WorkTree, Worktree};
use fabro_types::{
    BlobRef, BranchPath, BranchResult, Failure, FailureClass, Outcome, RunId, Status,
};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};

use crate::worktree::{Recorded, worktree};

/// How many files of a conflict are named.
const CONFLICTS: usize = 20;

/// Takes a warning for the user.
pub(crate) type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// A git worktree, once it is made.
type Made = Arc<OnceCell<Arc<Worktree>>>;

/// The git worktrees of a run and its sub-workflows: its own, and those of branches, which are made with their
/// first stage.
pub(crate) struct RunWorktrees {
    run: RunId,
    settings: GitSettings,
    /// What the logs said of them when this driver began, by their tops.
    recorded: BTreeMap<PathBuf, Recorded>,
    /// By their tops.
    made: Mutex<BTreeMap<PathBuf, Made>>,
    warn: Warn,
}

impl RunWorktrees {
    /// `main` is the run's own, with its top.
    pub(crate) fn new(
        (top, main): (PathBuf, Worktree),
        run: RunId,
        settings: GitSettings,
        recorded: BTreeMap<PathBuf, Recorded>,
        warn: Warn,
    ) -> Self {
        let made = Arc::new(OnceCell::new_with(Some(Arc::new(main))));
        Self { run, settings, recorded, made: Mutex::new([(top, made)].into()), warn }
    }

    /// The worktree that a stage works in, with the files of the stage before it. `None` where it has none:
    /// in a sub-workflow that began with an older version.
    async fn of(&self, stage: &Stage) -> Result<Option<Arc<Worktree>>, GitError> {
        let (Some(record), Some(at)) = (&stage.run.worktree, &stage.worktree) else {
            return Ok(None);
        };
        let work_dir = Path::new(&stage.run.work_dir);
        let top = worktree_top(work_dir, record);
        let cell = {
            // Every change is whole before the lock is given back.
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(made.entry(top.clone()).or_default())
        };
        // A path of a branch is of one attempt of one visit, and a stage of a sub-workflow comes after the one that
        // it is the sub-workflow of: within a driver the files of a branch are restored once.
        let restored =
            cell.get_or_try_init(|| self.restored(record, at, stage.run_id, &top)).await?;
        std::fs::create_dir_all(work_dir)?;
        Ok(Some(Arc::clone(restored)))
    }

    async fn restored(
        &self,
        record: &RunWorktree,
        at: &LineWorktree,
        run: RunId,
        top: &Path,
    ) -> Result<Arc<Worktree>, GitError> {
        let branch = git_branch(run, record, &at.line);
        let record = RunWorktree { branch, ..record.clone() };
        let made = worktree(&record, top, self.run, &self.settings).await?;
        let link = run.derive(&format!("worktree\n{}", at.line));
        let worktree = made.linked_as(format!("{}-{link}", self.run));
        let (commit, keeps_files) = match self.recorded.get(top) {
            Some(recorded) => (worktree.newest(&recorded.commits).await?, recorded.keeps_files()),
            None => (at.head.to_string(), false),
        };
        let restored = worktree.restore(&commit, keeps_files).await?;
        worktree.known(&commit).await;
        if let Some(reference) = restored.kept {
            (self.warn)(&format!(
                "the files of branch {} are as its last stage left them; what was changed since is kept as {reference}",
                at.line
            ));
        }
        Ok(Arc::new(worktree))
    }
}

/// Commits what each stage changed.
pub(crate) struct CommitsStages {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) worktrees: RunWorktrees,
    /// What is known of the files after stages.
    pub(crate) tree: Arc<WorkTree>,
}

#[async_trait]
impl Handler for CommitsStages {
    fn places(&self, kind: NodeKind) -> Option<Arc<Semaphore>> {
        self.handler.places(kind)
    }

    async fn execute(&self, mut stage: Stage) -> StageEnd {
        if matches!(stage.spec().kind, NodeKind::Conditional | NodeKind::Exit) {
            return self.handler.execute(stage).await;
        }
        let at = &stage.at;
        let mut name = format!("{}@{}", at.node, at.visit);
        let directory = format!("{:03}-{name}", at.rank);
        if let Some(branch) = &stage.branch {
            name = format!("{branch}/{name}");
        }
        let worktree = match self.worktrees.of(&stage).await {
            Ok(Some(worktree)) => worktree,
            Ok(None) => return self.handler.execute(stage).await,
            Err(error) => {
                let message = format!("the git worktree of {name} cannot be used: {error}");
                return StageEnd::CannotRecord { message };
            }
        };
        let mut commit = StageCommit {
            subject: format!("fabro({}): {}", stage.run_id, subject(&stage)),
            trailers: format!(
                "Fabro-Run: {}\nFabro-Stage: {name}\nFabro-Checkpoint: {directory}",
                stage.run_id
            ),
            replaces: at.attempt > 1 || at.talked,
        };
        let has_commits = stage.spec().kind == NodeKind::ManagerLoop;
        let before = stage.worktree.as_ref().map(|at| Arc::clone(&at.head));
        if let Some(at) = stage.worktree.as_mut().filter(|_| has_commits)
            && let Some(commit) = worktree.last().await
        {
            // Other stages in the worktree, or an attempt before, may have made commits since.
            at.head = commit.into();
        }
        let stop = stage.stop.clone();
        let branches = Branches::of(&stage);
        self.tree.owns(worktree.top());
        let since = self.tree.started();
        let mut end = self.handler.execute(stage).await;
        // The result of a stage that runs again is not recorded.
        if stop.is_cancelled() {
            return end;
        }
        if let StageEnd::Finished(finished) = &mut end {
            commit.subject = format!("{} ({})", commit.subject, finished.outcome.status.as_str());
            let left = self.tree.left(worktree.top(), since);
            match worktree.commit(&commit, left).await {
                Ok((sha, warning)) => {
                    let of_sub_workflow = if has_commits { worktree.last().await } else { None };
                    let of_sub_workflow =
                        of_sub_workflow.filter(|it| before.as_deref() != Some(it));
                    finished.outcome.git_sha = sha.or(of_sub_workflow);
                    if let Some(warning) = warning {
                        (self.worktrees.warn)(&format!("{name}: {warning}"));
                    }
                }
                Err(error) => {
                    let message = format!("the files of {name} cannot be committed: {error}");
                    return StageEnd::CannotRecord { message };
                }
            }
            if let Some(branches) = branches
                && let Err(message) = branches.take(&worktree, &commit, &mut finished.outcome).await
            {
                let message = format!("the files of branches cannot be taken at {name}: {message}");
                return StageEnd::CannotRecord { message };
            }
        }
        end
    }
}

/// The stage in its commit subject: the node, with list element and visit if needed.
fn subject(stage: &Stage) -> String {
    let elements = BranchPath::new(stage.branch.as_deref().unwrap_or_default()).elements();
    let visit = match stage.at.visit {
        1 => String::new(),
        visit => format!("@{visit}"),
    };
    format!("{}{elements}{visit}", stage.at.node)
}

/// The branches that join at a fan-in.
struct Branches {
    merge: Merge,
    results: Result<Vec<BranchResult>, String>,
}

impl Branches {
    /// `None` of a stage that is no fan-in, or without branches that had worktrees of their own.
    fn of(stage: &Stage) -> Option<Self> {
        let NodeBody::FanIn(_, merge) = &stage.spec().body else { return None };
        let value = stage.context.get(keys::PARALLEL_RESULTS)?;
        let results = match BlobRef::from_value(value) {
            Some(blob) => read_blob(&stage.store, &blob).map_err(|error| error.to_string()),
            None => Ok(Value::clone(value)),
        };
        let results = results.and_then(|results| {
            Vec::<BranchResult>::deserialize(results).map_err(|error| error.to_string())
        });
        let is_isolated = |results: &[BranchResult]| results.iter().any(|it| it.head_sha.is_some());
        if results.as_ref().is_ok_and(|results| !is_isolated(results)) {
            return None;
        }
        Some(Self { merge: *merge, results })
    }

    /// Takes the files of the best branch, or of all that succeeded, into the worktree, unless the fan-in has failed.
    async fn take(
        self,
        worktree: &Worktree,
        commit: &StageCommit,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        if outcome.status == Status::Failed {
            return Ok(());
        }
        let results = self.results?;
        let best = outcome.context_updates.get(keys::FAN_IN_BEST_HEAD_SHA);
        let best = best.and_then(|sha| sha.as_str());
        let is_taken = |result: &BranchResult| match self.merge {
            Merge::Best => result.head_sha.as_deref() == best,
            Merge::All => result.status.is_good(),
        };
        let mut heads = Vec::new();
        for result in results.iter().filter(|result| is_taken(result)) {
            heads.extend(result.head_sha.clone().map(|head| (result.id.to_string(), head)));
        }
        if self.merge == Merge::Best {
            // Branches with one commit have the same files.
            heads.truncate(1);
        }
        let why = match worktree.merge(commit, &heads).await.map_err(|error| error.to_string())? {
            Merged::Done(None) => return Ok(()),
            Merged::Done(sha) => {
                outcome.git_sha = sha;
                return Ok(());
            }
            Merged::Conflict { branch, files } => {
                let shown = files[..files.len().min(CONFLICTS)].join(", ");
                let more = files.len().saturating_sub(CONFLICTS);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let is_first = heads.first().is_some_and(|(first, _)| *first == branch);
                let others = if is_first { "the worktree" } else { "the branches before it" };
                format!("branch `{branch}` conflicts with {others} in {shown}{more}")
            }
            Merged::Blocked(message) => {
                format!("files that are not committed are in the way of the merge: {message}")
            }
        };
        outcome.status = Status::Failed;
        outcome.failure = Some(Failure::new(FailureClass::Deterministic, why));
        Ok(())
    }
}
