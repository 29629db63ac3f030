//! Walks a working directory: every entry is visited, or the walk fails.

use std::collections::VecDeque;
use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, accessat, fstat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::beneath;

/// The most files and directories that a walk visits.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;

/// A walk that did not visit everything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    #[error("{} cannot be listed: {source}", dir.display())]
    Unlisted { dir: PathBuf, source: io::Error },
    #[error("{} has more than {MAX_ENTRIES} files and directories", .0.display())]
    TooMany(PathBuf),
}

impl WalkError {
    pub(crate) fn fix(&self) -> &'static str {
        match self {
            Self::Unlisted { .. } => {
                "give your user access to the directory (`chmod u+rwx`), or remove it"
            }
            Self::TooMany(_) => {
                "remove some, or name a directory with many of them in `run.sandbox.write`: it is \
                 not searched"
            }
        }
    }
}

/// Visits the entries of a directory, then those of the subdirectories that `visit` returns. Links are not followed
/// unless `visit` returns one.
///
/// A directory of this user that cannot be listed or entered gets the mode `u+rwx`. Skipped are a directory that no
/// longer exists, and one of another user that this user cannot enter: a script has no other rights. The walk continues
/// after an error, and returns the first one.
pub(crate) fn walk(
    root: &Path,
    visit: impl FnMut(&Path, &[DirEntry]) -> Vec<PathBuf>,
) -> Result<(), WalkError> {
    walk_at_most(MAX_ENTRIES, root, make_accessible, visit)
}

/// The same without changes of modes: a directory that cannot be listed or entered is an error.
pub(crate) fn walk_readable(
    root: &Path,
    visit: impl FnMut(&Path, &[DirEntry]) -> Vec<PathBuf>,
) -> Result<(), WalkError> {
    walk_at_most(MAX_ENTRIES, root, |_, _| Err(Errno::ACCESS.into()), visit)
}

fn walk_at_most(
    max: usize,
    root: &Path,
    open_closed: fn(&Path, &Path) -> io::Result<()>,
    mut visit: impl FnMut(&Path, &[DirEntry]) -> Vec<PathBuf>,
) -> Result<(), WalkError> {
    // Near ones first: what is found counts, although the walk may fail.
    let mut open = VecDeque::from([root.to_owned()]);
    let mut left = max;
    let mut first_error = None;
    while let Some(dir) = open.pop_front() {
        match list(root, &dir, left + 1, open_closed) {
            Ok(entries) => {
                open.extend(visit(&dir, &entries));
                match left.checked_sub(entries.len()) {
                    Some(rest) => left = rest,
                    None => return Err(WalkError::TooMany(root.to_owned())),
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(source) => {
                first_error.get_or_insert(WalkError::Unlisted { dir, source });
            }
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Whether another process removed the directory or file in the meantime, or put a link in its place.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    const GONE: [Errno; 3] = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    Errno::from_io_error(error).is_some_and(|code| GONE.contains(&code))
}

/// At most `max` entries of a directory.
fn list(
    root: &Path,
    dir: &Path,
    max: usize,
    open_closed: fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<Vec<DirEntry>> {
    let can = |access| accessat(CWD, dir, access, AtFlags::EACCESS).is_ok();
    if !can(Access::READ_OK | Access::EXEC_OK)
        && let Err(error) = open_closed(root, dir)
    {
        let is_closed = error.kind() == ErrorKind::PermissionDenied && !can(Access::EXEC_OK);
        if is_closed && is_foreign(dir) {
            return Ok(Vec::new());
        }
        return Err(error);
    }
    fs::read_dir(dir)?.take(max).collect()
}

fn is_foreign(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(dir).is_ok_and(|found| found.uid() != geteuid().as_raw())
}

/// Adds `u+rwx` to the mode of a directory, without following a link that a script may put in its place.
pub(crate) fn make_accessible(root: &Path, dir: &Path) -> io::Result<()> {
    let dir = beneath::directory(root, dir.strip_prefix(root).unwrap_or(dir))?;
    let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode) | Mode::RWXU;
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        // `fchmod` refuses a descriptor that was opened with `O_PATH`.
        rustix::fs::chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), mode)?;
    }
    #[cfg(not(target_os = "linux"))]
    rustix::fs::fchmod(&dir, mode)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_of_too_many_entries_fails() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("x"), "").unwrap();
        }
        let walked = |max| {
            let mut visited = 0;
            let result = walk_at_most(max, dir.path(), make_accessible, |dir, entries| {
                visited += 1;
                let below = entries.iter().filter(|it| it.path().is_dir());
                below.map(|it| dir.join(it.file_name())).collect()
            });
            (result.is_ok(), visited)
        };
        assert_eq!(walked(6), (true, 4));
        assert_eq!(walked(5), (false, 4));
        assert_eq!(walked(2), (false, 1));
    }

    #[test]
    fn a_path_that_is_too_long_to_list_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("x".repeat(300));
        let mut below = Some(missing.clone());
        let result = walk(dir.path(), |_, _| below.take().into_iter().collect());
        assert!(matches!(result, Err(WalkError::Unlisted { dir, .. }) if dir == missing));
        let mut gone = Some(dir.path().join("gone"));
        walk(dir.path(), |_, _| gone.take().into_iter().collect()).unwrap();
    }
}
