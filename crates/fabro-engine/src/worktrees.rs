//! The git worktrees of a run, as its events tell them: which lines work in which, and their last commits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabro_events::{CreatedRun, Event, EventBody, RunWorktree};
use fabro_types::{BranchPath, RunId};

use crate::line::MAIN;

/// The git worktrees of a run: its own, and those of the branches of fan-outs with `isolation=worktree`.
/// Other branches work in that of the line they came from.
///
/// Like [`RunState`](crate::RunState), a fold over the events of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worktrees {
    /// The last commit of each, by the line that it was made for.
    heads: BTreeMap<Arc<str>, Arc<str>>,
}

/// The git worktree that a line works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineWorktree {
    /// The line that it was made for; empty for the run's own.
    pub line: Arc<str>,
    /// The commit that has its files, as the last stage in it left them.
    pub head: Arc<str>,
}

impl Worktrees {
    /// Takes an event in.
    pub fn apply(&mut self, event: &Event) {
        let entry = &event.entry;
        let line = entry.branch.as_deref().unwrap_or(MAIN);
        match &entry.body {
            EventBody::RunCreated(created) => {
                if let Some(worktree) = &created.worktree {
                    self.heads.insert(Arc::from(MAIN), worktree.base.as_str().into());
                }
            }
            EventBody::ParallelStarted { branches, isolated: true, .. } => {
                // All of them begin with the files that there are now, also those that start later.
                if let Some(LineWorktree { head, .. }) = self.of(line) {
                    let begin = |branch: &Arc<str>| (Arc::clone(branch), Arc::clone(&head));
                    self.heads.extend(branches.iter().map(|branch| begin(&branch.branch)));
                }
            }
            EventBody::ParallelCompleted { .. } => {
                if let (Some(node), Some(visit)) = (&entry.node_id, entry.visit) {
                    let line = BranchPath::new(line);
                    self.heads.retain(|branch, _| {
                        !BranchPath::new(branch).is_of_fan_out(line, node, visit)
                    });
                }
            }
            body => {
                if let (Some(sha), Some(LineWorktree { line, .. })) =
                    (body.git_sha(), self.of(line))
                {
                    self.heads.insert(line, sha.into());
                }
            }
        }
    }

    /// The worktree that a line works in; `None` in a run without any.
    pub fn of(&self, line: &str) -> Option<LineWorktree> {
        let mut path = BranchPath::new(line);
        loop {
            if let Some((line, head)) = self.heads.get_key_value(path.as_str()) {
                return Some(LineWorktree { line: Arc::clone(line), head: Arc::clone(head) });
            }
            if path.is_main() {
                return None;
            }
            path = path.parent();
        }
    }

    /// The lines that have one of their own, with its last commit.
    pub fn heads(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.heads.iter()
    }

    /// The last commit of the worktree that was made for this line itself.
    pub fn head(&self, line: &str) -> Option<&Arc<str>> {
        self.heads.get(line)
    }
}

/// The top of the run's own worktree, in which its working directory is.
pub fn worktree_top(work_dir: &Path, record: &RunWorktree) -> PathBuf {
    let levels = Path::new(&record.prefix).components().count();
    work_dir.ancestors().nth(levels).unwrap_or(work_dir).to_owned()
}

/// The top of the worktree of a branch, beside the run's own.
pub fn branch_worktree_top(work_dir: &Path, record: &RunWorktree, branch: &str) -> PathBuf {
    branches_dir(work_dir, record).join(BranchPath::new(branch).file_name())
}

/// The folder of the run's directory that the worktrees of branches are in.
pub const BRANCH_WORKTREES: &str = "worktrees";

fn branches_dir(work_dir: &Path, record: &RunWorktree) -> PathBuf {
    match &record.branches {
        Some(branches) => PathBuf::from(&branches.dir),
        None => worktree_top(work_dir, record).with_file_name(BRANCH_WORKTREES),
    }
}

/// The name of the git branch of a line; with the name of a line that does not exist, that of a branch of the run
/// as it would be.
pub fn git_branch(run: RunId, record: &RunWorktree, line: &str) -> String {
    let line = BranchPath::new(line);
    if line.is_main() {
        return record.branch.clone();
    }
    format!("{}/{}", branch_prefix(run, record), line.file_name())
}

/// What the names of the git branches of this run's lines begin with, without the slash after it.
pub(crate) fn branch_prefix(run: RunId, record: &RunWorktree) -> String {
    let own = record.branches.as_ref().map(|branches| branches.prefix.clone());
    own.unwrap_or_else(|| git_branches(run))
}

/// What the names of the git branches of a run's fan-outs, and of those of its sub-workflows, begin with, without the
/// slash after it.
pub fn git_branches(run: RunId) -> String {
    format!("fabro/branch/{run}")
}

/// The working directory of a line that works in the worktree of `line`.
pub(crate) fn work_dir_of(created: &CreatedRun, line: &str) -> Option<String> {
    let record = created.worktree.as_ref().filter(|_| !BranchPath::new(line).is_main())?;
    let top = branch_worktree_top(Path::new(&created.work_dir), record, line);
    let dir: PathBuf = top.join(&record.prefix).components().collect();
    Some(dir.to_string_lossy().into_owned())
}
