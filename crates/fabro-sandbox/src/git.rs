//! What a git work tree knows about its files: which ones changed between two moments.
//!
//! [`Snapshot::take`] notes where a work tree stands: its commit, and what is in the files that differ
//! from it. [`changed`] compares two such moments. A file counts as changed when it appeared, vanished
//! or has other contents on the disk, whether that was committed, staged or neither; files that had
//! been edited before, and were not touched since, do not.
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
//! The `git` program is asked, and asked to take no lock: the index, the stash and the references stay
//! as they are, and other git commands at the same time are not disturbed.
//!
//! A [`WorkTree`] does both for stages that follow one another, and asks once between two of them.
//!
//! # Limits
//!
//! - Unix only; the tokio runtime needs its I/O and time drivers.
//! - Files that git ignores are not seen.
//! - A submodule, or a repository inside the work tree, is one path: it changed when its commit did or
//!   any of its files.
//! - Contents are compared as far as 4 MB a file and 32 MB together, those of larger ones by size and
//!   times: one that was rewritten with the same contents then counts as changed.
//! - Each call takes at most ten seconds, and git may say at most 64 MB.

mod changed;
mod print;
mod run;
mod snapshot;
mod status;
mod work_tree;

use std::time::Duration;

pub use changed::changed;
pub use snapshot::Snapshot;
pub use work_tree::{AtWork, Untold, WorkTree};

/// How long a call may take.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// The program could not be started, or not be read from.
    #[error("git cannot be run: {0}")]
    Run(#[from] std::io::Error),
    /// Git failed.
    #[error("git {command} failed: {stderr}")]
    Failed {
        /// The command of git that was run.
        command: String,
        /// Its stderr, at most 2,000 bytes of it.
        stderr: String,
    },
    /// Git answered something else than was asked for.
    #[error("git {command} answered what cannot be read: {answer}")]
    Answer {
        /// The command of git that was run.
        command: String,
        /// The part of the answer that was not understood.
        answer: String,
    },
    /// Git printed more than is read.
    #[error("git {command} lists more than {limit} bytes: let .gitignore name what is generated")]
    TooMuch {
        /// The command of git that was run.
        command: String,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// Timeout.
    #[error("git took more than {} s: is the work tree on a slow disk?", limit.as_secs())]
    TimedOut {
        /// The timeout.
        limit: Duration,
    },
}

#[cfg(test)]
mod tests;
