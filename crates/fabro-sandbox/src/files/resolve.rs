//! Where a path leads, link by link.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use fabro_types::other_normalization;

use super::FileError;

/// As many links as Linux follows.
const LINKS: usize = 40;

/// The longest path that Linux takes, in bytes.
pub(super) const LONGEST: usize = 4096;

/// Whether a link at the very end is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Followed,
    Kept,
}

/// The path without links, `.` and `..`, relative to the root, which is free of them too.
///
/// A name that differs from an entry on disk only in its Unicode normalization is replaced by that
/// entry. A name that does not exist is kept, so that it can be created. The result may be stale
/// immediately: the caller must not follow links when it opens the path.
pub(super) fn resolve(root: &Path, path: &str, last: Last) -> Result<PathBuf, FileError> {
    if path.is_empty() || path.len() > LONGEST || path.contains('\0') {
        return Err(FileError::invalid(path));
    }
    let mut done = root.to_owned();
    let mut todo = Vec::new();
    let mut links = 0;
    push(&mut done, &mut todo, Path::new(path));
    while let Some(name) = todo.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        let found = push_as_on_disk(&mut done, &name);
        if last == Last::Kept && todo.is_empty() {
            break;
        }
        match found {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > LINKS {
                    return Err(FileError::Links(path.to_owned()));
                }
                let target = done.read_link().map_err(|source| FileError::io(path, source))?;
                done.pop();
                push(&mut done, &mut todo, &target);
            }
            Err(error) if error.kind() == ErrorKind::InvalidFilename => {
                return Err(FileError::invalid(path));
            }
            // Opening it finds out whether it exists and may be read.
            Ok(_) | Err(_) => {}
        }
    }
    match done.strip_prefix(root) {
        Ok(inside) => Ok(inside.to_owned()),
        Err(_) => Err(FileError::Outside(path.to_owned())),
    }
}

/// Appends a name, or if it does not exist, the entry that differs only in its Unicode
/// normalization. Returns the metadata of the result.
fn push_as_on_disk(dir: &mut PathBuf, name: &OsStr) -> io::Result<Metadata> {
    let spelling = |dir: &Path| {
        let name = name.to_str().filter(|name| !name.is_ascii())?;
        let names = dir.read_dir().ok()?.flatten().map(|entry| entry.file_name());
        other_normalization(name, names.filter_map(|name| name.into_string().ok()))
    };
    let found = dir.join(name).symlink_metadata();
    let missing = matches!(&found, Err(error) if error.kind() == ErrorKind::NotFound);
    let Some(other) = missing.then(|| spelling(dir)).flatten() else {
        dir.push(name);
        return found;
    };
    dir.push(other);
    dir.symlink_metadata()
}

/// Puts the parts of a path on the stack, first one on top.
fn push(done: &mut PathBuf, todo: &mut Vec<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => todo.push(name.to_owned()),
            Component::ParentDir => todo.push("..".into()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => *done = PathBuf::from("/"),
        }
    }
}
