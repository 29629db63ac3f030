use serde::{Deserialize, Serialize};

/// The git worktree of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWorktree {
    /// The work tree of the user that it was made from.
    pub repository: String,
    /// The commit it begins with.
    pub base: String,
    /// The branch that gets a commit for each stage that changed files.
    pub branch: String,
    /// The path from its top to the working directory; empty at the top.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Of a sub-workflow, which works in a worktree of the run that it is part of: where those of its own
    /// branches are. Absent for the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<BranchWorktrees>,
}

/// Where the git worktrees of the branches of a sub-workflow are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchWorktrees {
    /// The directory that they are in.
    pub dir: String,
    /// The beginning of the names of their git branches.
    pub prefix: String,
}
