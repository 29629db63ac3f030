//! The files that a stage touched: the changes between a snapshot before it and one after it.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::git::snapshot::{Location, has_repository};
use crate::git::{GitError, Snapshot, changed};

/// The work tree of the stages of a run.
///
/// The snapshot after one stage is also the one before the next, as long as no other stage ran in
/// between, so a sequence of commands takes one snapshot for each.
#[derive(Default)]
pub struct WorkTree {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    /// How many stages have ever started.
    started: u64,
    /// A snapshot taken while only one stage was running, and the count of started stages then.
    last: Option<(u64, Snapshot)>,
    /// Where the directory was in its repository.
    location: Option<Location>,
    is_error_reported: bool,
}

/// A running stage; it ends when this is dropped.
pub struct RunningStage<'a>(&'a WorkTree);

impl WorkTree {
    /// Starts a stage that may change files.
    pub fn start(&self) -> RunningStage<'_> {
        let mut state = self.lock();
        state.running += 1;
        state.started += 1;
        RunningStage(self)
    }

    /// The snapshot of a directory before the stage that has just started changes it. `None` outside
    /// of a git work tree; then git is not run.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn before(&self, dir: &Path) -> Result<Option<Snapshot>, UnknownFiles> {
        if !has_repository(dir) {
            return Ok(None);
        }
        let last = {
            let mut state = self.lock();
            let is_current = state.running == 1
                && state.last.as_ref().is_some_and(|(n, _)| n + 1 == state.started);
            // Branches may have a work tree each.
            state.last.take().filter(|(_, snapshot)| is_current && snapshot.place.dir == dir)
        };
        match last {
            Some((_, snapshot)) => Ok(Some(snapshot)),
            None => self.take(dir).await,
        }
    }

    /// The files that changed since the snapshot, relative to the directory.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn touched(
        &self,
        dir: &Path,
        before: Option<&Snapshot>,
    ) -> Result<Vec<String>, UnknownFiles> {
        let Some(before) = before else { return Ok(Vec::new()) };
        let Some(after) = self.take(dir).await? else { return Ok(Vec::new()) };
        let files = changed(before, &after).await.map_err(|error| self.unknown(&error))?;
        let mut state = self.lock();
        if state.running == 1 {
            state.last = Some((state.started, after));
        }
        Ok(files)
    }

    async fn take(&self, dir: &Path) -> Result<Option<Snapshot>, UnknownFiles> {
        let known = self.lock().location.clone();
        let taken = Snapshot::take_again(dir, known).await.map_err(|error| self.unknown(&error))?;
        if let Some(snapshot) = &taken {
            self.lock().location = Some(snapshot.place.clone());
        }
        Ok(taken)
    }

    fn unknown(&self, error: &GitError) -> UnknownFiles {
        let is_new = !std::mem::replace(&mut self.lock().is_error_reported, true);
        UnknownFiles(is_new.then(|| format!("the files that stages touch are not known: {error}")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningStage<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

/// The files are not known. The first time, with a warning for the user.
#[derive(Debug)]
pub struct UnknownFiles(pub Option<String>);
