//! Checks of files that decide what runs as this user: who can write them.

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

/// Refuses a control file that another user owns or can write, or that is reached by another user's link: whoever can
/// change settings, a workflow or instructions can run commands as the user who starts a run. As in git, root trusts
/// the user who called `sudo`. Group write permission is fine for a private group: one with the number of the user, and without other
/// members.
///
/// `root` is that of the project, or the working directory without a project: see [`check_link`].
///
/// # Errors
///
/// Another user owns it or can write it, a script that still runs in a sandbox may have created it, or [`check_link`]
/// refuses it. If its metadata cannot be read, this is not an
/// error.
pub fn check_owner(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let is_found = |path: &Path| kind(path) == Some(ControlFile::Found);
    if path.strip_prefix(root).is_ok_and(is_found) && may_be_of_script(path) {
        return Err(ConfigError::OfScript(path.to_owned()));
    }
    for found in [fs::symlink_metadata(path), fs::metadata(path)].iter().flatten() {
        check_found(path, found)?;
    }
    check_link(path, root)
}

fn check_found(path: &Path, found: &Metadata) -> Result<(), ConfigError> {
    if !is_own(found) {
        return Err(ConfigError::Owner { path: path.to_owned(), owner: found.uid() });
    }
    if others_may_write(path, found) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    Ok(())
}

/// Reads a control file, and refuses it as [`check_owner`] does. Another user may exchange it meanwhile: what was opened
/// is checked.
pub(crate) fn read_trusted(path: &Path, root: &Path) -> Result<String, ConfigError> {
    check_owner(path, root)?;
    read_checked(path, |found| check_found(path, found))
}

/// Refuses a control file that is reached by a link in the project to a file in the project with an unprotected name
/// ([`control_files`](fabro_types::control_files)): agents and sandboxed scripts may write that file. A project in
/// another one counts as a part of it: agents work there too. A `.dot` file does not protect itself: it may become a workflow
/// after it was written. Links of other users on the way are refused too.
///
/// # Errors
///
/// The path goes through such a link. If it cannot be resolved, this is not an error.
pub fn check_link(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let path_in_root = without_dots(path);
    let root = if path_in_root.starts_with(root) { outermost_root(root) } else { root };
    let Ok(real_root) = root.canonicalize() else { return Ok(()) };
    let in_root = path_in_root.strip_prefix(root).ok();
    // Who names another file trusts it.
    if in_root.is_some_and(|path| kind(path).is_none_or(|it| it == ControlFile::Git)) {
        return Ok(());
    }
    let mut resolved = if in_root.is_some() { real_root.clone() } else { PathBuf::new() };
    let mut rest: VecDeque<OsString> = parts(in_root.unwrap_or(path)).collect();
    let is_writable = |at: &Path| {
        at.strip_prefix(&real_root).is_ok_and(|at| kind(at) != Some(ControlFile::Found))
    };
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
        // An agent may replace a link behind the first one.
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

/// Linux follows no more links in a path.
const MAX_LINKS: usize = 40;

/// The components of a path, with the root of the file system, without `.`.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned())
}

/// A path without `.` and `..`, by its text alone: as it is named.
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

/// Which control file a path of a project is. Agents and sandboxed scripts cannot write those that are found; sandboxes
/// protect `.git` of the working directory only.
fn kind(path: &Path) -> Option<ControlFile> {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    ControlFile::of(names.iter().map(|name| &**name))
}

/// Refuses a file that a workflow names if it is less protected than the workflow file: it belongs to a third user, or
/// only it can be written by others, or its protected name is a link ([`check_link`]).
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
    if found().any(|it| others_may_write(path, it)) && !others_may_write(workflow, &by) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    check_link(path, project_root(workflow.parent().unwrap_or(workflow)))
}

#[cfg(test)]
mod tests;
