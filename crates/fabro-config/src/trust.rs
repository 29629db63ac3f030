//! Checks who can write to control files, which decide what runs as this user.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use fabro_types::ControlFile;
use fabro_types::running_scripts::may_be_of_script;

use crate::error::ConfigError;
use crate::file::read_checked;
use crate::owner::{is_own, others_may_write};
use crate::store_dir::{outermost_root, project_root};

/// Refuses a control file that another user owns, can write to, or can replace in a directory of the
/// project, or that is reached through another user's symbolic link: a user who can change settings, a workflow or instructions can run
/// commands as the user who starts a run. As in git, root trusts the user who called `sudo`. Group
/// write permission is accepted for a private group: its id is the id of the user, and it has no
/// other members.
///
/// `root` is the root of the project, or the working directory outside of a project: see
/// [`check_link`].
///
/// # Errors
///
/// Another user owns the file or can write to it, a sandboxed script that is still running may have
/// created it, or [`check_link`] refuses it. Metadata that cannot be read is not an error.
pub fn check_owner(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let is_found = |path: &Path| kind(path) == Some(ControlFile::Found);
    if path.strip_prefix(root).is_ok_and(is_found) && may_be_of_script(path) {
        return Err(ConfigError::OfScript(path.to_owned()));
    }
    for found in [fs::symlink_metadata(path), fs::metadata(path)].iter().flatten() {
        check_metadata(path, found)?;
    }
    check_directories(path, root)?;
    // A link may lead to another directory.
    if let (Ok(path), Ok(root)) = (path.canonicalize(), root.canonicalize()) {
        check_directories(&path, &root)?;
    }
    check_link(path, root)
}

/// Refuses the directories from `root` down to a file in which another user can replace it.
fn check_directories(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let dirs = path.ancestors().skip(1).take_while(|dir| dir.starts_with(root));
    for dir in dirs.filter(|dir| !dir.as_os_str().is_empty()) {
        let Ok(found) = fs::metadata(dir) else { continue };
        if !is_own(&found) {
            return Err(ConfigError::Owner { path: dir.to_owned(), owner: found.uid() });
        }
        // In a sticky directory, such as `/tmp`, users rename only files of their own.
        if found.mode() & STICKY == 0 && others_may_write(dir, &found) {
            return Err(ConfigError::Writable(dir.to_owned()));
        }
    }
    Ok(())
}

/// The mode of a directory in which users remove and rename only their own files.
const STICKY: u32 = 0o1000;

fn check_metadata(path: &Path, found: &Metadata) -> Result<(), ConfigError> {
    if !is_own(found) {
        return Err(ConfigError::Owner { path: path.to_owned(), owner: found.uid() });
    }
    if others_may_write(path, found) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    Ok(())
}

/// Reads a control file if [`check_owner`] accepts it. The opened file is checked again: another
/// user may have replaced it after the first check (TOCTOU).
pub(crate) fn read_trusted(path: &Path, root: &Path) -> Result<String, ConfigError> {
    check_owner(path, root)?;
    read_checked(path, |found| check_metadata(path, found))
}

/// Refuses a control file that is, or is reached through, a symbolic link in the project to a file
/// of the project with an unprotected name ([`control_files`](fabro_types::control_files)): agents
/// and sandboxed scripts may write to that file. A nested project counts as part of the outer one,
/// because agents work there too. A `.dot` file counts as unprotected: it may become a workflow
/// after it was written. Symbolic links of other users in the path are refused too.
///
/// # Errors
///
/// The path contains such a link. A path that cannot be resolved is not an error.
pub fn check_link(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let path_in_root = without_dots(path);
    let root = if path_in_root.starts_with(root) { outermost_root(root) } else { root };
    let Ok(real_root) = root.canonicalize() else { return Ok(()) };
    let in_root = path_in_root.strip_prefix(root).ok();
    // A user who names an unprotected path trusts it.
    if in_root.is_some_and(|path| kind(path).is_none_or(|it| it == ControlFile::Git)) {
        return Ok(());
    }
    let mut resolved = if in_root.is_some() { real_root.clone() } else { PathBuf::new() };
    let mut rest: VecDeque<OsString> = parts(in_root.unwrap_or(path)).collect();
    let is_writable = |at: &Path| is_unprotected(at, &real_root);
    let refused = |target: &Path| {
        let [link, target] = [path, target].map(Path::to_owned);
        Err(ConfigError::Link { link, target })
    };
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(part);
        let Ok(target) = fs::read_link(&resolved) else { continue };
        if let Some(foreign) = fs::symlink_metadata(&resolved).ok().filter(|it| !is_own(it)) {
            return Err(ConfigError::Owner { path: resolved, owner: foreign.uid() });
        }
        // An agent may replace an unprotected link that the first link leads to.
        if links > 0 && is_writable(&resolved) {
            return refused(&resolved);
        }
        links += 1;
        if links > MAX_LINKS {
            return Ok(());
        }
        resolved.pop();
        for part in parts(&target).rev() {
            rest.push_front(part);
        }
        if target.is_absolute() {
            resolved.clear();
        }
    }
    if links > 0 && is_writable(&resolved) { refused(&resolved) } else { Ok(()) }
}

/// The maximum number of symbolic links in a path, as on Linux.
pub(crate) const MAX_LINKS: usize = 40;

/// The components of a path without `.`; an absolute path begins with `/`.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned())
}

/// Removes `.` and `..` lexically, without following links.
fn without_dots(path: &Path) -> PathBuf {
    let mut named = PathBuf::new();
    for part in parts(path) {
        if part == ".." {
            named.pop();
        } else {
            named.push(part);
        }
    }
    named
}

/// Whether a path is below `root`, and agents and sandboxed scripts can write there.
pub(crate) fn is_unprotected(path: &Path, root: &Path) -> bool {
    path.strip_prefix(root).is_ok_and(|path| kind(path) != Some(ControlFile::Found))
}

/// The kind of control file at a path in a project. Agents and sandboxed scripts cannot write to
/// files of kind [`Found`](ControlFile::Found). Sandboxes protect `.git` only in the working
/// directory.
fn kind(path: &Path) -> Option<ControlFile> {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    ControlFile::of(names.iter().map(|name| &**name))
}

/// Refuses a file that a workflow or a settings file (`workflow`) references if it is less
/// protected than that file: it belongs to a third user, others can write to it but not to
/// `workflow`, or [`check_link`] refuses it.
///
/// # Errors
///
/// As [`check_owner`].
pub fn check_named_file(path: &Path, workflow: &Path) -> Result<(), ConfigError> {
    let Ok(by) = fs::metadata(workflow) else { return Ok(()) };
    let looked = [fs::symlink_metadata(path), fs::metadata(path)];
    let found = || looked.iter().flatten();
    if let Some(foreign) = found().find(|it| !is_own(it) && it.uid() != by.uid()) {
        return Err(ConfigError::Owner { path: path.to_owned(), owner: foreign.uid() });
    }
    let is_foreign = |link: &Metadata| !is_own(link) && link.uid() != by.uid();
    if let Some((link, owner)) = foreign_link(path, &is_foreign, MAX_LINKS) {
        return Err(ConfigError::Owner { path: link, owner });
    }
    if found().any(|it| others_may_write(path, it)) && !others_may_write(workflow, &by) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    check_link(path, project_root(workflow.parent().unwrap_or(workflow)))
}

/// The first link in a path, or in the path that it leads to, which belongs to a third user; with its owner.
fn foreign_link(
    path: &Path,
    is_foreign: &dyn Fn(&Metadata) -> bool,
    left: usize,
) -> Option<(PathBuf, u32)> {
    let left = left.checked_sub(1)?;
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    parts.into_iter().find_map(|at| {
        let found = fs::symlink_metadata(at).ok().filter(Metadata::is_symlink)?;
        if is_foreign(&found) {
            return Some((at.to_owned(), found.uid()));
        }
        let target = at.parent()?.join(fs::read_link(at).ok()?);
        foreign_link(&target, is_foreign, left)
    })
}

#[cfg(test)]
mod tests;
