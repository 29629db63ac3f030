//! The working directory of this machine, and files in it, without following links.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::rules::{Rules, is_own_name};
use super::tree::{MOST, Stamp, Tree};
use crate::files::beneath;
use crate::remote::tar::Kind;
use crate::stores::STORE_FILE;

/// Everything in a directory of this machine that is copied.
pub(in crate::remote) fn scan(root: &Path, rules: &Rules) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(root.join(&dir)) {
            Err(error) if !dir.as_os_str().is_empty() && has_gone(&error) => continue,
            entries => entries.map_err(|error| at(dir.as_os_str().as_bytes(), &error))?,
        };
        let entries: io::Result<Vec<fs::DirEntry>> = entries.collect();
        let entries = entries.map_err(|error| at(dir.as_os_str().as_bytes(), &error))?;
        if !dir.as_os_str().is_empty() && entries.iter().any(|it| it.file_name() == STORE_FILE) {
            tree.remove(dir.as_os_str().as_bytes());
            continue;
        }
        for entry in entries {
            let path = dir.join(entry.file_name());
            let is_own = dir == Path::new(".fabro") && is_own_name(&entry.file_name());
            if is_own || rules.excludes(&entry.file_name()) {
                continue;
            }
            let whole = root.join(&path);
            let found = match fs::symlink_metadata(&whole) {
                Err(error) if has_gone(&error) => continue,
                found => found.map_err(|error| at(path.as_os_str().as_bytes(), &error))?,
            };
            if rules.hidden.contains(&whole) {
                continue;
            }
            let stamp = stamp(&found);
            if stamp.kind == Kind::Other {
                continue;
            }
            if stamp.kind == Kind::Directory {
                open.push(path.clone());
            }
            tree.insert(path.as_os_str().as_bytes().to_owned(), stamp);
            if tree.len() > MOST {
                return Err(io::Error::other(format!("it has more than {MOST} files")));
            }
        }
    }
    Ok(tree)
}

/// The state of a file.
pub(in crate::remote) fn stamp(found: &fs::Metadata) -> Stamp {
    let kind = match found.file_type() {
        it if it.is_file() => Kind::File,
        it if it.is_dir() => Kind::Directory,
        it if it.is_symlink() => Kind::Link,
        _ => Kind::Other,
    };
    let times = [found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let is_directory = kind == Kind::Directory;
    Stamp {
        kind,
        mode: found.mode() & 0o777,
        // Those of a directory say nothing about itself.
        size: if is_directory { 0 } else { found.len() },
        mtime: if is_directory { 0 } else { u64::try_from(found.mtime()).unwrap_or(0) },
        detail: if is_directory { String::new() } else { format!("{times:?} {}", found.ino()) },
    }
}

/// Whether an error means that something has just gone, or been replaced by a link, or that the user cannot read it
/// either. After any other error it may still be there.
pub(in crate::remote) fn has_gone(error: &io::Error) -> bool {
    let gone = [ErrorKind::NotFound, ErrorKind::PermissionDenied, ErrorKind::NotADirectory];
    let replaced = [Errno::LOOP, Errno::XDEV].map(Errno::raw_os_error);
    gone.contains(&error.kind()) || error.raw_os_error().is_some_and(|it| replaced.contains(&it))
}

/// Opens a plain file without following a link, also where a script has put one in the place of a directory.
pub(in crate::remote) fn open_beneath(root: &Path, name: &[u8]) -> io::Result<File> {
    let (dir, last) = split(name);
    let parent = beneath::directory(root, dir)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(parent, last, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

/// The target of a link, whose parents are no links.
pub(in crate::remote) fn link_beneath(root: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let (dir, last) = split(name);
    let parent = beneath::directory(root, dir)?;
    Ok(rustix::fs::readlinkat(parent, last, Vec::new())?.into_bytes())
}

/// An error with the name of a file.
pub(in crate::remote) fn at(name: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", String::from_utf8_lossy(name)))
}

/// The directory and the last part of a name.
pub(in crate::remote) fn split(name: &[u8]) -> (&Path, &Path) {
    let (dir, last) = match name.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&name[..slash], &name[slash + 1..]),
        None => (&name[..0], name),
    };
    (Path::new(OsStr::from_bytes(dir)), Path::new(OsStr::from_bytes(last)))
}
