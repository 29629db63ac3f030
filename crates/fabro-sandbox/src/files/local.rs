use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::protected::Protection;
use super::resolve::{LONGEST, Last, resolve};
use super::{Entry, FileError, FileInfo, FileKind, Files, beneath};
use crate::stores::is_store;
use crate::walk::walk_readable;

/// The files below a directory of this machine, and no others.
///
/// Links are resolved, and what they lead to has to be inside too. Every operation opens the
/// directory of the file without following links and works from there, so that one swapped in the
/// meantime makes it fail instead of leading it out. Devices, pipes, sockets and the file systems of
/// the kernel (`/proc`, `/sys`) are neither read nor written.
///
/// Files that control other programs are read-only ([`ControlFile`](fabro_types::ControlFile)): those in `.git` or
/// `.fabro`, and those with a name that a later run looks for, in any directory. No file is written that makes its
/// directory, or one above it, a git repository. [`with_full_access`](Self::with_full_access) protects only the run
/// store in `.fabro/state`.
///
/// ```
/// use fabro_sandbox::{FileError, Files, LocalFiles};
///
/// let dir = tempfile::tempdir()?;
/// let files = LocalFiles::new(dir.path())?;
/// files.write("src/main.rs", b"fn main() {}")?;
/// let hook = files.write(".git/hooks/post-commit", b"#!/bin/sh");
/// assert!(matches!(hook, Err(FileError::Protected(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LocalFiles {
    /// Free of links.
    root: PathBuf,
    protection: Protection,
    /// Relative to the root.
    hidden: Arc<[PathBuf]>,
}

impl LocalFiles {
    /// The files below `root`.
    ///
    /// # Errors
    ///
    /// It is not a directory, or cannot be read.
    pub fn new(root: impl AsRef<Path>) -> Result<Self, FileError> {
        let given = root.as_ref();
        let unusable = |source| FileError::Root(given.display().to_string(), source);
        let root = given.canonicalize().map_err(unusable)?;
        if !root.is_dir() {
            return Err(unusable(std::io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self { root, protection: Protection::Control, hidden: Arc::default() })
    }

    /// For an agent that may run commands, and so could change the files that control git and fabro
    /// anyway.
    #[must_use]
    pub fn with_full_access(self) -> Self {
        Self { protection: Protection::Record, ..self }
    }

    /// Without these files and directories, whose absolute paths are free of links.
    #[must_use]
    pub fn hiding(self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let inside = |path: PathBuf| Some(path.strip_prefix(&self.root).ok()?.to_owned());
        let hidden = paths.into_iter().filter_map(inside).collect();
        Self { hidden, ..self }
    }

    /// Refuses hidden files, and files in a run store. The path has no links in it.
    fn check_hidden(&self, path: &str, inside: &Path) -> Result<(), FileError> {
        if self.hidden.iter().any(|hidden| inside.starts_with(hidden)) {
            return Err(FileError::Outside(path.to_owned()));
        }
        // The working directory may itself be in a store.
        let mut above = inside.ancestors().filter(|dir| !dir.as_os_str().is_empty());
        if above.any(|dir| is_store(&self.root.join(dir))) {
            return Err(FileError::Store(path.to_owned()));
        }
        Ok(())
    }

    /// The directory, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether this file may be written, as far as other programs obey it.
    ///
    /// # Errors
    ///
    /// It controls another program, or the path leads out.
    pub fn may_write(&self, path: &str) -> Result<(), FileError> {
        self.protection.check_write(&self.root, path)
    }

    /// Whether this file, or this directory with everything in it, may be removed, or be moved to one of these paths, as
    /// far as other programs obey it.
    ///
    /// # Errors
    ///
    /// It controls another program, contains or would become a file that does, contains the working directory, or the path
    /// leads out.
    pub fn may_move(&self, path: &str, targets: &[&str]) -> Result<(), FileError> {
        self.may_write(path)?;
        let inside = resolve(&self.root, path, Last::Followed)?;
        self.check_hidden(path, &inside)?;
        let protected = || Err(FileError::Protected(path.to_owned()));
        if inside.as_os_str().is_empty() || self.hidden.iter().any(|it| it.starts_with(&inside)) {
            return protected();
        }
        let dir = self.root.join(&inside);
        if !dir.is_dir() {
            return Ok(());
        }
        let targets = targets.iter().filter_map(|to| resolve(&self.root, to, Last::Followed).ok());
        let targets: Vec<PathBuf> = targets.collect();
        let mut is_protected = false;
        let walked = walk_readable(&dir, |parent, entries| {
            let paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
            is_protected |= is_store(parent)
                || paths.iter().any(|path| {
                    let below = path.strip_prefix(&dir).unwrap_or(path);
                    let mut all =
                        targets.iter().map(|to| to.join(below)).chain([inside.join(below)]);
                    all.any(|path| self.protection.check(&self.root, "", &path).is_err())
                });
            let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
            let below = entries.iter().filter(|it| !is_protected && is_dir(it));
            below.map(fs::DirEntry::path).collect()
        });
        if is_protected || walked.is_err() { protected() } else { Ok(()) }
    }

    /// The file that a path leads to, with its directory opened.
    fn locate(&self, path: &str, last: Last) -> Result<Location, FileError> {
        // Most paths have no links in them, and then one look is enough.
        if let Some(inside) = plain(path)
            && let Ok(directory) = beneath::directory(&self.root, parent(inside))
        {
            let location = Location::new(inside, directory);
            let is_link =
                location.name.as_deref().is_some_and(|name| is_link(&location.directory, name));
            if last == Last::Kept || !is_link {
                self.check_hidden(path, inside)?;
                ordinary(path, &location.directory)?;
                return Ok(location);
            }
        }
        let inside = resolve(&self.root, path, last)?;
        self.check_hidden(path, &inside)?;
        let opened = beneath::directory(&self.root, parent(&inside)).map_err(refused(path))?;
        ordinary(path, &opened)?;
        Ok(Location::new(&inside, opened))
    }

    /// The same for a file that may be made, with the directories it needs.
    ///
    /// The path of the opened directory is free of links, so it is this one that decides whether the
    /// file is protected: that of an earlier look may have led elsewhere.
    fn locate_to_write(&self, path: &str) -> Result<Location, FileError> {
        match self.locate(path, Last::Followed) {
            Ok(location) => {
                self.protection.check(&self.root, path, &location.inside)?;
                Ok(location)
            }
            Err(FileError::NotFound(_)) => {
                let inside = resolve(&self.root, path, Last::Followed)?;
                self.check_hidden(path, &inside)?;
                self.protection.check(&self.root, path, &inside)?;
                let made = beneath::made(&self.root, parent(&inside)).map_err(refused(path))?;
                ordinary(path, &made)?;
                Ok(Location::new(&inside, made))
            }
            Err(error) => Err(error),
        }
    }
}

/// A file, by its name in an opened directory.
struct Location {
    inside: PathBuf,
    directory: OwnedFd,
    /// `None` for the root itself.
    name: Option<OsString>,
}

impl Location {
    fn new(inside: &Path, directory: OwnedFd) -> Self {
        let name = inside.file_name().map(OsStr::to_owned);
        Self { inside: inside.to_owned(), directory, name }
    }

    fn name(&self, path: &str) -> Result<&OsStr, FileError> {
        let name = self.name.as_deref();
        name.ok_or_else(|| FileError::IsDirectory(path.to_owned()))
    }
}

/// A path in which only links need to be resolved: relative, without `.` and `..`, and ASCII,
/// because other names may have a different Unicode normalization on disk.
fn plain(path: &str) -> Option<&Path> {
    let parts = path.split('/');
    let is_plain = path.is_ascii()
        && path.len() <= LONGEST
        && !path.contains('\0')
        && parts.into_iter().all(|part| !matches!(part, "" | "." | ".."));
    is_plain.then_some(Path::new(path))
}

fn parent(inside: &Path) -> &Path {
    inside.parent().unwrap_or(inside)
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    stat(directory, name).is_ok_and(|found| kind(&found) == FileKind::Link)
}

impl Files for LocalFiles {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        let location = self.locate(path, Last::Followed)?;
        let name = location.name(path)?;
        let directory = &location.directory;
        // Looking first: to open a pipe or a device may already do something.
        regular(path, &stat(directory, name).map_err(refused(path))?)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(refused(path))?;
        regular(path, &rustix::fs::fstat(&file).map_err(refused(path))?)?;
        Ok(Box::new(File::from(file)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        // One at a time: two files at once could make a repository that neither of them does.
        static WRITING: Mutex<()> = Mutex::new(());
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        self.protection.check_write(&self.root, path)?;
        let location = self.locate_to_write(path)?;
        let name = location.name(path)?;
        let directory = &location.directory;
        let mode = match stat(directory, name) {
            Ok(old) => {
                regular(path, &old)?;
                if old.st_mode & 0o222 == 0 {
                    return Err(FileError::ReadOnly(path.to_owned()));
                }
                Some(Mode::from_raw_mode(old.st_mode & 0o777))
            }
            Err(Errno::NOENT) => None,
            Err(error) => return Err(refused(path)(error)),
        };
        replace(directory, name, content, mode).map_err(|source| FileError::io(path, source))
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.protection.check_remove(&self.root, path)?;
        let location = self.locate(path, Last::Kept)?;
        self.protection.check(&self.root, path, &location.inside)?;
        let name = location.name(path)?;
        let directory = &location.directory;
        let found = stat(directory, name).map_err(refused(path))?;
        if kind(&found) != FileKind::Link {
            regular(path, &found)?;
        }
        rustix::fs::unlinkat(directory, name, AtFlags::empty()).map_err(refused(path))
    }

    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        let location = self.locate(path, Last::Followed)?;
        let directory = &location.directory;
        let found = match &location.name {
            Some(name) => stat(directory, name),
            None => rustix::fs::fstat(directory),
        };
        let found = found.map_err(refused(path))?;
        match kind(&found) {
            // It was not a link when the path was resolved (a race).
            FileKind::Link => Err(FileError::Outside(path.to_owned())),
            kind => Ok(FileInfo {
                path: shown(&location.inside),
                len: if kind == FileKind::File { found.st_size.cast_unsigned() } else { 0 },
                modified: modified(&found),
                kind,
            }),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        let directly = plain(path).and_then(|path| beneath::directory(&self.root, path).ok());
        let directory = if let Some(directory) = directly {
            self.check_hidden(path, Path::new(path))?;
            directory
        } else {
            let inside = resolve(&self.root, path, Last::Followed)?;
            self.check_hidden(path, &inside)?;
            beneath::directory(&self.root, &inside).map_err(refused(path))?
        };
        ordinary(path, &directory)?;
        let mut entries = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = rustix::fs::openat(&directory, ".", flags, Mode::empty());
        for entry in readable.and_then(Dir::new).map_err(refused(path))? {
            let entry = entry.map_err(refused(path))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Not every file system has the type here.
                FileType::Unknown => {
                    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(found) => kind(&found),
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(refused(path)(error)),
                    }
                }
                known => kind_of(known),
            };
            entries.push(Entry { name: name.to_string_lossy().into_owned(), kind });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn resolve(&self, path: &str) -> Result<String, FileError> {
        let inside = resolve(&self.root, path, Last::Followed)?;
        self.check_hidden(path, &inside)?;
        Ok(shown(&inside))
    }
}

fn shown(inside: &Path) -> String {
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    inside.to_string_lossy().into_owned()
}

/// Writes a new file beside the old one and gives it the name of that.
fn replace(
    directory: &OwnedFd,
    name: &OsStr,
    content: &[u8],
    mode: Option<Mode>,
) -> std::io::Result<()> {
    let (temporary, mut file) = temporary(directory)?;
    let written = file.write_all(content).and_then(|()| {
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, mode)?;
        }
        Ok(rustix::fs::renameat(directory, &temporary, directory, name)?)
    });
    if written.is_err() {
        // The first error is the useful one; the name is never used again.
        let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
    }
    written
}

fn temporary(directory: &OwnedFd) -> std::io::Result<(String, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".fabro-{}-{count}.tmp", std::process::id());
        match rustix::fs::openat(directory, &name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => return Ok((name, file.into())),
            // Left by a process of the same id that died.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn refused(path: &str) -> impl Fn(Errno) -> FileError {
    move |error| match error {
        // A link was created after the path was resolved (a race).
        Errno::LOOP | Errno::XDEV => FileError::Outside(path.to_owned()),
        error => FileError::io(path, error.into()),
    }
}

fn stat(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn regular(path: &str, found: &Stat) -> Result<(), FileError> {
    let path = path.to_owned();
    match kind(found) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FileError::IsDirectory(path)),
        FileKind::Link => Err(FileError::Outside(path)),
        FileKind::Other => Err(FileError::NotRegular(path)),
    }
}

/// Refuses a directory of the kernel's own file systems.
#[cfg(target_os = "linux")]
fn ordinary(path: &str, directory: &OwnedFd) -> Result<(), FileError> {
    const SYSFS_MAGIC: u64 = 0x6265_6572;
    let system = rustix::fs::fstatfs(directory).map_err(refused(path))?.f_type;
    if system == rustix::fs::PROC_SUPER_MAGIC || system.cast_unsigned() == SYSFS_MAGIC {
        return Err(FileError::NotRegular(path.to_owned()));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn ordinary(_path: &str, _directory: &OwnedFd) -> Result<(), FileError> {
    Ok(())
}

fn kind(found: &Stat) -> FileKind {
    kind_of(FileType::from_raw_mode(found.st_mode))
}

fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

fn modified(found: &Stat) -> Option<SystemTime> {
    let seconds = Duration::from_secs(u64::try_from(found.st_mtime).ok()?);
    #[allow(clippy::useless_conversion, reason = "it is signed on other systems")]
    let nanos = Duration::from_nanos(u64::try_from(found.st_mtime_nsec).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)?.checked_add(nanos)
}
