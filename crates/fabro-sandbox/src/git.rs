//! Which files of a git work tree changed between two snapshots.
//!
//! [`Snapshot::take`] records the state of a work tree: its commit, and the contents of the files that
//! differ from it. [`changed`] compares two snapshots. A file counts as changed when it was created,
//! deleted or has other contents on the disk, whether that was committed, staged or neither; files that
//! had been edited before, and were not touched since, do not.
//!
//! ```
//! use fabro_sandbox::git::{Snapshot, changed};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let dir = tempfile::tempdir()?;
//! assert!(Snapshot::take(dir.path()).await?.is_none());
//!
//! std::process::Command::new("git").args(["init", "--quiet"]).current_dir(&dir).status()?;
//! std::fs::write(dir.path().join("old.txt"), "there before")?;
//! let before = Snapshot::take(dir.path()).await?.ok_or("no work tree")?;
//! std::fs::write(dir.path().join("new.txt"), "hello")?;
//! let after = Snapshot::take(dir.path()).await?.ok_or("no work tree")?;
//! assert_eq!(changed(&before, &after).await?, ["new.txt"]);
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! The `git` program is run without locks: the index, the stash and the references stay as they are,
//! and other git commands at the same time are not disturbed. It runs no program that a repository
//! names (hooks, filters, file system monitors, external diffs, transports), accepts no bare repository
//! that it finds in a directory, and gets a few variables of the environment.
//!
//! A [`WorkTree`] does both for stages that follow one another, with one snapshot between two of them.
//!
//! A [`Worktree`] is a linked worktree of a run, with a branch that gets a commit for each stage.
//!
//! [`FileTrees`] records the files of a user's work tree as trees, in a repository of a run.
//!
//! [`Metadata`] keeps files as commits of a branch of their own.
//!
//! # Limits
//!
//! - Unix only; the tokio runtime needs its I/O and time drivers.
//! - Files that git ignores are not seen.
//! - A submodule, or a repository inside the work tree, is one path: it changed when its commit did or
//!   any of its files. Files of a submodule that `.gitmodules` does not name are not seen.
//! - Without filters (Git LFS) files whose times changed count as edited until git is run by another program
//!   else; their contents decide whether they changed between two snapshots.
//! - Contents are compared as far as 4 MB a file and 32 MB together, those of larger ones by size and
//!   times: one that was rewritten with the same contents then counts as changed.
//! - Each call has a timeout of ten seconds, and git may print at most 64 MB.

mod brief;
mod changed;
mod commit;
mod configuration;
mod file_trees;
mod filters;
mod fingerprint;
mod linked;
mod merge;
mod metadata;
mod own_objects;
mod patch;
mod run;
mod snapshot;
mod status;
mod stored;
mod tries;
mod work_tree;
mod worktree;

use std::path::PathBuf;
use std::time::Duration;

pub use brief::brief;
pub use changed::changed;
pub use file_trees::{FileTree, FileTrees, incomplete_file_trees, share_file_trees};
pub use linked::LinkedWorktrees;
pub use merge::Merged;
pub use metadata::Metadata;
pub use patch::{CheckedSource, Patch, PatchSource, PatchStyle, patch};
use run::OUTPUT_BYTES;
pub use snapshot::Snapshot;
pub use stored::{CHANGES, TreePair, check_file_trees};
pub use work_tree::{LeftFiles, RunningStage, UnknownFiles, WorkTree};
pub use worktree::{Author, Repository, Restored, StageCommit, Worktree};

/// The timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a command is tried that reads files which a stage beside removes or shortens.
const TRIES: u32 = 20;

/// Why git gave no result. The commands are those of git.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// The program could not be started, or its output not be read.
    #[error("git cannot be run: {0}")]
    Run(#[from] std::io::Error),
    /// A command failed, with this on stderr, at most 2,000 bytes of it.
    #[error("git {0} failed: {1}")]
    Failed(&'static str, String),
    /// The output of a command is not as expected, in this part.
    #[error("git {0} answered what cannot be read: {1}")]
    UnexpectedOutput(&'static str, String),
    /// A command printed more than is read.
    #[error("git {0} lists more than {OUTPUT_BYTES} bytes: let .gitignore name what is generated")]
    TooMuch(&'static str),
    /// What a run stored is damaged: which file, and how.
    #[error("{0}")]
    Damaged(String),
    /// A symbolic link or a file is in the place of a worktree.
    #[error("{} is not a directory: remove it, and it is made again", .0.display())]
    NotADirectory(PathBuf),
    /// A FIFO has the name of a file that git reads: opening it blocks until a writer connects.
    #[error("{} is a FIFO, on which git would block: remove it", .0.display())]
    Fifo(PathBuf),
    /// Timeout.
    #[error("git took more than {} s: is the work tree on a slow disk?", TIMEOUT.as_secs())]
    TimedOut,
}

impl GitError {
    /// Whether a stage beside has committed, or removed or shortened files, meanwhile: another try can succeed.
    pub(crate) fn is_overtaken(&self) -> bool {
        match self {
            Self::Failed("update-ref", message) => message.contains(" but expected "),
            Self::Failed("add" | "update-index", message) => {
                message.contains(": No such file or directory")
                    || message.contains(": Not a directory")
                    || message.contains("short read while indexing ")
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
