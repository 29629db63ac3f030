//! Which files a stage touched, by asking git before and after.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::git::{GitError, Snapshot, changed};

/// What is known of the files that stages work on.
///
/// What was seen after one stage is what there is before the next, as long as no other stage worked
/// in between, so a line of commands asks git once for each.
#[derive(Default)]
pub struct WorkTree {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Running stages.
    busy: usize,
    /// Stages that ever began.
    begun: u64,
    /// What the files were like after so many had begun, and none was at work but the one that
    /// looked.
    seen: Option<(u64, Snapshot)>,
    is_told: bool,
}

/// A running stage; ends when it is dropped.
pub struct AtWork<'a>(&'a WorkTree);

impl WorkTree {
    /// A stage begins that may change files.
    pub fn begin(&self) -> AtWork<'_> {
        let mut state = self.lock();
        state.busy += 1;
        state.begun += 1;
        AtWork(self)
    }

    /// What the files in a directory are like before the stage that has just begun works on them.
    /// `None` where no git work tree is; then nothing is asked.
    ///
    /// # Errors
    ///
    /// Git gave no answer.
    pub async fn before(&self, dir: &Path) -> Result<Option<Snapshot>, Untold> {
        if !dir.ancestors().any(|dir| dir.join(".git").exists()) {
            return Ok(None);
        }
        let seen = {
            let mut state = self.lock();
            let is_fresh =
                state.busy == 1 && state.seen.as_ref().is_some_and(|(n, _)| n + 1 == state.begun);
            state.seen.take().filter(|_| is_fresh)
        };
        match seen {
            Some((_, snapshot)) => Ok(Some(snapshot)),
            None => Snapshot::take(dir).await.map_err(|error| self.untold(&error)),
        }
    }

    /// The files that differ from before, relative to the directory.
    ///
    /// # Errors
    ///
    /// Git gave no answer.
    pub async fn touched(
        &self,
        dir: &Path,
        before: Option<&Snapshot>,
    ) -> Result<Vec<String>, Untold> {
        let Some(before) = before else { return Ok(Vec::new()) };
        let untold = |error| self.untold(&error);
        let Some(after) = Snapshot::take(dir).await.map_err(untold)? else { return Ok(Vec::new()) };
        let files = changed(before, &after).await.map_err(untold)?;
        let mut state = self.lock();
        if state.busy == 1 {
            state.seen = Some((state.begun, after));
        }
        Ok(files)
    }

    fn untold(&self, error: &GitError) -> Untold {
        let is_new = !std::mem::replace(&mut self.lock().is_told, true);
        Untold(is_new.then(|| format!("the files that stages touch are not known: {error}")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
    }
}

/// The files are not known. What to tell of it, the first time.
#[derive(Debug)]
pub struct Untold(pub Option<String>);
