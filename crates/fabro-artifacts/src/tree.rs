//! A directory tree that remembers what it has read.
//!
//! The list of a directory's entries changes only together with the directory's own change time
//! (`ctime`), which no program can set. So a second scan asks for one time a directory instead of all
//! of its entries.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::entries::{entries, open_dir};
use crate::rules::{Place, Rules};
use crate::watcher::Limits;

/// A directory that changed so shortly before it was read may change again without another change
/// time, on file systems that count whole seconds.
const SETTLED: Duration = Duration::from_millis(2_500);

/// The same on others: their clocks advance every few milliseconds.
const SETTLED_FINE: Duration = Duration::from_millis(100);

/// How deep directories are entered.
const MAX_DEPTH: usize = 128;

/// What is known of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    mtime: (i64, i64),
    /// When its content or its metadata last changed, in milliseconds since 1970.
    pub(crate) changed_ms: i64,
}

impl Fingerprint {
    fn of(about: &Metadata) -> Self {
        Self {
            kind: Kind::of(about.file_type()),
            size: about.len(),
            mtime: (about.mtime(), about.mtime_nsec()),
            changed_ms: about.ctime() * 1_000 + about.ctime_nsec() / 1_000_000,
        }
    }

    /// Equal kind, size and modification time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.size == other.size && self.mtime == other.mtime
    }
}

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Link,
    Fifo,
    Socket,
    Device,
}

impl Kind {
    fn of(file: fs::FileType) -> Self {
        if file.is_symlink() {
            Self::Link
        } else if file.is_fifo() {
            Self::Fifo
        } else if file.is_socket() {
            Self::Socket
        } else if file.is_file() {
            Self::Regular
        } else {
            Self::Device
        }
    }
}

/// The artifacts that a scan found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// By their paths, relative to the root and in byte order.
    pub(crate) files: BTreeMap<OsString, Fingerprint>,
    /// Why it is not the whole tree.
    pub(crate) stopped: Option<Stopped>,
    /// Directories of artifacts that cannot be read.
    pub(crate) unreadable: BTreeMap<OsString, io::ErrorKind>,
}

/// Why a scan ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Entries(usize),
    Time(Duration),
}

/// Device, inode and change time.
type Stamp = (u64, u64, i64, i64);

/// A directory as it was read.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    /// `None` while it has to be read again.
    stamp: Option<Stamp>,
    dirs: Vec<(OsString, Place, Self)>,
    /// Names of artifacts.
    files: Vec<OsString>,
    /// How many entries it has.
    entries: usize,
}

/// One scan of a tree.
pub(crate) struct Scanner<'a> {
    root: &'a Path,
    rules: &'a Rules,
    limits: &'a Limits,
    began: Instant,
    now: Duration,
    entries: usize,
    found: Scan,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(root: &'a Path, rules: &'a Rules, limits: &'a Limits) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let found = Scan::default();
        Self { root, rules, limits, began: Instant::now(), now, entries: 0, found }
    }

    pub(crate) fn scan(mut self, tree: &mut Dir) -> Scan {
        let mut path = self.root.to_owned();
        self.enter(tree, &mut path, Place::default(), 0);
        self.found
    }

    /// Scans the directory at `path`, and those below it. False when the scan has to stop.
    fn enter(&mut self, dir: &mut Dir, path: &mut PathBuf, place: Place, depth: usize) -> bool {
        if !self.may_continue() {
            return false;
        }
        if !Self::is_known(dir, path, depth) {
            self.read(dir, path, place, depth);
        }
        self.entries += dir.entries;
        for name in &dir.files {
            path.push(name);
            if let Ok(about) = fs::symlink_metadata(&path)
                && !about.is_dir()
            {
                let relative = path.strip_prefix(self.root).unwrap_or(path);
                self.found.files.insert(relative.into(), Fingerprint::of(&about));
            }
            path.pop();
        }
        if depth >= MAX_DEPTH {
            return true;
        }
        for (name, place, dir) in &mut dir.dirs {
            path.push(name);
            let may_continue = self.enter(dir, path, *place, depth + 1);
            path.pop();
            if !may_continue {
                return false;
            }
        }
        true
    }

    fn may_continue(&mut self) -> bool {
        if self.entries > self.limits.entries {
            self.found.stopped = Some(Stopped::Entries(self.limits.entries));
        } else if self.began.elapsed() > self.limits.time {
            self.found.stopped = Some(Stopped::Time(self.limits.time));
        }
        self.found.stopped.is_none()
    }

    /// Whether a directory has the entries that were read before.
    fn is_known(dir: &Dir, path: &Path, depth: usize) -> bool {
        let Some(stamp) = dir.stamp else { return false };
        let about = if depth == 0 { fs::metadata(path) } else { fs::symlink_metadata(path) };
        about.is_ok_and(|about| about.is_dir() && stamp_of(&about) == stamp)
    }

    /// Reads the names in a directory.
    fn read(&mut self, dir: &mut Dir, path: &Path, place: Place, depth: usize) {
        let mut known: BTreeMap<OsString, Dir> = BTreeMap::new();
        known.extend(dir.dirs.drain(..).map(|(name, _, dir)| (name, dir)));
        *dir = Dir::default();
        let opened = open_dir(path, depth == 0).and_then(|opened| {
            let opened = File::from(opened);
            Ok((opened.metadata()?, opened.into()))
        });
        let mut relative = path.strip_prefix(self.root).unwrap_or(path).to_owned();
        let result = opened.and_then(|(about, opened): (Metadata, OwnedFd)| {
            dir.stamp = self.is_settled(&about).then(|| stamp_of(&about));
            entries(&opened, |name, kind| {
                dir.entries += 1;
                // A single directory may have more entries than there is time for.
                if dir.entries > self.limits.entries {
                    dir.stamp = None;
                    return ControlFlow::Break(());
                }
                let is_link = kind == FileType::Symlink;
                if kind == FileType::Directory {
                    relative.push(name);
                    if let Some(place) = self.rules.enter(self.root, &relative, place) {
                        let known = known.remove(name).unwrap_or_default();
                        dir.dirs.push((name.to_owned(), place, known));
                    }
                    relative.pop();
                } else if self.rules.may_be_artifact(name, place, is_link) {
                    relative.push(name);
                    if self.rules.is_artifact(&relative, name, place, is_link) {
                        dir.files.push(name.to_owned());
                    }
                    relative.pop();
                }
                ControlFlow::Continue(())
            })
        });
        if let Err(error) = result {
            dir.stamp = None;
            // It has been removed or replaced since its parent was read.
            let is_gone = matches!(
                Errno::from_io_error(&error),
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
            );
            if place.is_artifact() && !is_gone {
                self.found.unreadable.insert(relative.into(), error.kind());
            }
        }
        // What matters first: there may not be time for all.
        dir.dirs.sort_by(|a, b| (!a.1.is_artifact(), &a.0).cmp(&(!b.1.is_artifact(), &b.0)));
    }
    /// Whether a directory changed so long ago that another change would have another time.
    fn is_settled(&self, about: &Metadata) -> bool {
        let changed = Duration::new(
            u64::try_from(about.ctime()).unwrap_or(0),
            u32::try_from(about.ctime_nsec()).unwrap_or(0),
        );
        let settled = if changed.subsec_nanos() == 0 { SETTLED } else { SETTLED_FINE };
        self.now > changed.saturating_add(settled)
    }
}

fn stamp_of(about: &Metadata) -> Stamp {
    (about.dev(), about.ino(), about.ctime(), about.ctime_nsec())
}
