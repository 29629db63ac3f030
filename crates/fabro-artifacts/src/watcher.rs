//! What changed in a directory while a program ran.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::changes::Changes;
use crate::keep::{Collection, Destination, keep};
use crate::limits::Limits;
use crate::rules::Rules;
use crate::tree::{Dir, Fingerprint, Scan, Scanner};

/// A clock of a file system may be so much behind the system's.
const CLOCK_LAG_MS: i64 = 20;

/// A scan that takes longer is not done on the thread of an asynchronous runtime.
const QUICK: Duration = Duration::from_micros(500);

/// After a scan that was stopped, the next one has this part of the time: it does not pay for all stages.
const AFTER_STOP: u32 = 8;

/// What was found after one program is what there is before the next one that starts so soon.
const STILL_TRUE: Duration = Duration::from_millis(100);

/// Finds the artifacts of one directory. It may be used by several programs at a time: each has a
/// [`Baseline`] of its own.
#[derive(Debug)]
pub struct Watcher {
    root: PathBuf,
    rules: Rules,
    limits: Limits,
    tree: Mutex<Tree>,
}

#[derive(Debug, Default)]
struct Tree {
    dir: Dir,
    /// How long the last scan took.
    took: Option<Duration>,
    /// There was no time for all of it.
    was_stopped: bool,
    /// What was found after the last program, and when; until another one begins.
    after: Option<(Instant, FoundAt)>,
}

/// What a scan found that began then, in milliseconds since 1970.
#[derive(Clone, Debug)]
struct FoundAt {
    scan: Arc<Scan>,
    began_ms: i64,
}

/// The artifacts that there were before.
#[derive(Debug)]
pub struct Baseline {
    found: FoundAt,
    earlier: Option<RangeInclusive<i64>>,
}

impl Baseline {
    /// The same, for a program that ran before too, and now resumes: what changed in that time
    /// (milliseconds since 1970) counts as well.
    #[must_use]
    pub fn and_earlier(self, earlier: Option<RangeInclusive<i64>>) -> Self {
        Self { earlier, ..self }
    }

    fn has(&self, path: &OsString, now: &Fingerprint) -> bool {
        let is_older = |since: i64| now.changed_ms + CLOCK_LAG_MS < since;
        let is_earlier =
            |time: &RangeInclusive<i64>| !is_older(*time.start()) && now.changed_ms <= *time.end();
        if self.earlier.as_ref().is_some_and(is_earlier) {
            return false;
        }
        match self.found.scan.files.get(path) {
            Some(before) => before.is_same(now),
            // Where it did not get to, the time decides.
            None => self.found.scan.stopped.is_some() && is_older(self.found.began_ms),
        }
    }
}

impl Watcher {
    /// For the files below `root`.
    pub fn new(root: impl Into<PathBuf>, rules: Rules, limits: Limits) -> Self {
        Self { root: root.into(), rules, limits, tree: Mutex::default() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the next scan is likely to take less time than to hand it to another thread.
    pub fn is_quick(&self) -> bool {
        self.tree.try_lock().is_some_and(|tree| tree.took.is_some_and(|took| took < QUICK))
    }

    /// The artifacts that are there now.
    pub fn baseline(&self) -> Baseline {
        let after = self.tree.lock().after.take();
        let found = match after {
            Some((when, found)) if when.elapsed() < STILL_TRUE => found,
            _ => self.scan(),
        };
        Baseline { found, earlier: None }
    }

    /// What is new since the baseline, or has another kind, size or modification time.
    pub fn changes(&self, baseline: &Baseline) -> Changes {
        let found = self.scan();
        let Scan { files, stopped, unreadable } = &*found.scan;
        let before = &baseline.found.scan;
        let files = files.iter().filter(|(path, now)| !baseline.has(path, now));
        let unreadable =
            unreadable.iter().filter(|(path, _)| !before.unreadable.contains_key(*path));
        let changes = Changes {
            files: files.map(|(path, now)| (path.clone(), *now)).collect(),
            stopped: stopped.or(before.stopped),
            unreadable: unreadable.map(|(path, error)| (path.clone(), *error)).collect(),
        };
        self.tree.lock().after = Some((Instant::now(), found));
        changes
    }

    /// Keeps the files, in the order of their paths, as far as the limits allow. What was kept is on
    /// stable storage when this returns.
    pub fn keep(&self, changes: &Changes, to: &Destination<'_>) -> Collection {
        keep(&self.root, &self.limits, changes, to)
    }

    fn scan(&self) -> FoundAt {
        let mut tree = self.tree.lock();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let began = Instant::now();
        let mut limits = self.limits.clone();
        if tree.was_stopped {
            limits.time /= AFTER_STOP;
        }
        let scan = Scanner::new(&self.root, &self.rules, &limits).scan(&mut tree.dir);
        tree.took = Some(began.elapsed());
        tree.was_stopped = scan.stopped.is_some();
        FoundAt { scan: Arc::new(scan), began_ms }
    }
}
