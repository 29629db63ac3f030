//! Retries: git commands fail in a race with others that work in the same files or the same repository.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::git::{GitError, TRIES};

/// How long another git command may hold the index of the worktree, such as one of a stage beside. The processes
/// of a stage have ended when it is committed, so a lock that stays longer is a leftover.
pub(super) const LOCK: Duration = Duration::from_secs(30);
/// The pause before a lock is looked at again.
pub(super) const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// How long a failure is taken for one that passes.
const PASSING: Duration = Duration::from_secs(5);

/// The tries of commands that work in a worktree which stages share, and in the repository of the user.
pub(super) struct Tries {
    begun: Instant,
    failed: u32,
}

impl Default for Tries {
    fn default() -> Self {
        Self { begun: Instant::now(), failed: 0 }
    }
}

impl Tries {
    /// Whether to try again after this error: at once, for at most [`LOCK`], when others were in the way; a few times, each after
    /// a pause, when git failed otherwise. It has many words for a file, a directory or an object that was there a moment ago:
    /// `git gc` removes directories in which another git command is about to make a file, for one.
    pub(super) async fn are_left(&mut self, error: &GitError) -> bool {
        if error.is_overtaken() {
            return self.begun.elapsed() < LOCK;
        }
        let may_pass = match error {
            GitError::Failed(..) => true,
            // Of a directory that was moved away, and may be moved back.
            GitError::Run(error) => error.kind() == ErrorKind::NotFound,
            _ => false,
        };
        self.failed += 1;
        if !may_pass || self.failed >= TRIES || self.begun.elapsed() >= PASSING {
            return false;
        }
        tokio::time::sleep(LOCK_PAUSE).await;
        true
    }
}

/// Whether an object may be missing.
pub(super) fn tells_of_objects(error: &GitError) -> bool {
    matches!(error, GitError::Failed(_, message) if message.contains("object") || message.contains("building trees"))
}
