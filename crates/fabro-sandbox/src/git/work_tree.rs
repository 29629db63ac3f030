//! The files that a stage touched: the changes between a snapshot before it and one after it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::git::snapshot::{Location, Owner, has_repository};
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
    last: Option<(u64, Arc<Snapshot>)>,
    /// A directory that was in no repository, and the count of started stages then.
    outside: Option<(u64, PathBuf)>,
    /// Where the directory was in its repository.
    location: Option<Location>,
    is_error_reported: bool,
    /// The tops of the worktrees of the run.
    own: BTreeSet<PathBuf>,
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

    /// Tells that the work tree with this top is a worktree of the run: it is looked at as a whole, and its
    /// index may be refreshed.
    pub fn owns(&self, top: &Path) {
        self.lock().own.insert(top.to_owned());
    }

    /// How many stages have ever started.
    pub fn started(&self) -> u64 {
        self.lock().started
    }

    /// What the stages that started after `since` left in the worktree of the run with this top: the state in
    /// which the last one of them was found at its end, if no other ran beside it or has started by now.
    pub fn left(&self, top: &Path, since: u64) -> Option<LeftFiles> {
        let state = self.lock();
        let (at, snapshot) = state.last.as_ref()?;
        let is_current = state.running == 0 && *at == state.started && *at > since;
        let is_whole = snapshot.place.top == top && snapshot.is_clean_elsewhere.is_some();
        if !is_current || !is_whole {
            return None;
        }
        let is_clean = snapshot.dirty.is_empty() && snapshot.is_clean_elsewhere == Some(true);
        let clean = snapshot.head.clone().filter(|_| is_clean);
        Some(match clean {
            Some(commit) => LeftFiles::OfCommit(commit),
            None => LeftFiles::Changed(Box::new(Snapshot::clone(snapshot))),
        })
    }

    /// The present state of a directory: as the last stage was found to leave it, where no stage has started since.
    /// The next stage begins with it. `None` outside of a git work tree.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn now(&self, dir: &Path) -> Result<Option<Arc<Snapshot>>, UnknownFiles> {
        if !has_repository(dir) {
            let mut state = self.lock();
            state.outside = (state.running == 0).then(|| (state.started, dir.to_owned()));
            return Ok(None);
        }
        let started = {
            let state = self.lock();
            if let Some((at, snapshot)) = &state.last
                && state.running == 0
                && *at == state.started
                && snapshot.place.dir == dir
            {
                return Ok(Some(Arc::clone(snapshot)));
            }
            state.started
        };
        let taken = self.take(dir).await?;
        let mut state = self.lock();
        if state.running == 0 && state.started == started {
            state.last = taken.clone().map(|snapshot| (started, snapshot));
        }
        Ok(taken)
    }

    /// Tells that something other than a stage may have changed files.
    pub fn forget(&self) {
        self.lock().last = None;
    }

    /// The snapshot of a directory before the stage that has just started changes it. `None` outside
    /// of a git work tree; then git is not run.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn before(&self, dir: &Path) -> Result<Option<Arc<Snapshot>>, UnknownFiles> {
        if self.was_outside(dir) || !has_repository(dir) {
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

    /// Whether the directory was found in no repository, and only the stage that looks has started since.
    fn was_outside(&self, dir: &Path) -> bool {
        let mut state = self.lock();
        let is_current = state.running == 1;
        let found = state.outside.take();
        found.is_some_and(|(at, found)| is_current && at + 1 == state.started && found == dir)
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
        let started = self.started();
        let Some(after) = self.take(dir).await? else { return Ok(Vec::new()) };
        let files = changed(before, &after).await.map_err(|error| self.unknown(&error))?;
        let mut state = self.lock();
        // Another stage may have started, and ended, since the files were looked at.
        if state.running == 1 && state.started == started {
            state.last = Some((started, after));
        }
        Ok(files)
    }

    async fn take(&self, dir: &Path) -> Result<Option<Arc<Snapshot>>, UnknownFiles> {
        let (known, owner) = {
            let state = self.lock();
            let is_own = dir.ancestors().any(|above| state.own.contains(above));
            (state.location.clone(), if is_own { Owner::Run } else { Owner::User })
        };
        let taken = Snapshot::take_again(dir, known, owner).await;
        let taken = taken.map_err(|error| self.unknown(&error))?;
        if let Some(snapshot) = &taken {
            self.lock().location = Some(snapshot.place.clone());
        }
        Ok(taken.map(Arc::new))
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

/// The files of a work tree, beside its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftFiles {
    /// They are those of this commit, which `HEAD` is.
    OfCommit(String),
    /// Some may differ: the state of the worktree.
    Changed(Box<Snapshot>),
}

/// The files are not known. The first time, with a warning for the user.
#[derive(Debug)]
pub struct UnknownFiles(pub Option<String>);
