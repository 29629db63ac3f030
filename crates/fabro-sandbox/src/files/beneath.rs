//! Opening directories below a root without following a single link.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::{Errno, Result};

/// Only to begin further calls at; reading the directory takes another call.
#[cfg(target_os = "linux")]
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory, whose path is relative to the root and free of `.` and `..`.
///
/// A link put in its place, or in that of a parent, at the same time (a race) is an error.
pub(crate) fn directory(root: &Path, path: &Path) -> Result<OwnedFd> {
    let root = open(root, DIRECTORY, Mode::empty())?;
    if path.as_os_str().is_empty() {
        return Ok(root);
    }
    #[cfg(target_os = "linux")]
    match at_once(&root, path) {
        // The kernel does not know the call, or a filter of system calls does not let it through.
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened,
    }
    step_by_step(root, path, step)
}

/// The same, making what is missing.
pub(crate) fn made(root: &Path, path: &Path) -> Result<OwnedFd> {
    let root = open(root, DIRECTORY, Mode::empty())?;
    step_by_step(root, path, |parent, name| match step(parent, name) {
        Err(Errno::NOENT) => {
            match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
                // Another process may have created it just now (a race).
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            step(parent, name)
        }
        opened => opened,
    })
}

#[cfg(target_os = "linux")]
fn at_once(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

fn step_by_step(
    root: OwnedFd,
    path: &Path,
    mut step: impl FnMut(&OwnedFd, &OsStr) -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    path.components().try_fold(root, |parent, part| match part {
        Component::Normal(name) => step(&parent, name),
        _ => Err(Errno::XDEV),
    })
}

fn step(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
    openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_is_followed_either_way() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", root.path().join("link")).unwrap();
        let steps = |path: &str| {
            step_by_step(open(root.path(), DIRECTORY, Mode::empty()).unwrap(), path.as_ref(), step)
        };
        for (path, opens) in [("a/b", true), ("link", false), ("link/b", false), ("..", false)] {
            assert_eq!(directory(root.path(), path.as_ref()).is_ok(), opens, "{path}");
            assert_eq!(steps(path).is_ok(), opens, "{path}");
        }
        assert!(made(root.path(), "a/c/d".as_ref()).is_ok());
        assert!(made(root.path(), "link/e".as_ref()).is_err());
        assert!(!root.path().join("a/e").exists());
    }
}
