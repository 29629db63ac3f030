//! Checks of files that decide what runs as this user: who can write them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use fabro_types::ControlFile;
use rustix::process::geteuid;

use crate::error::ConfigError;

/// Refuses a control file that another user owns or can write, or that is reached by another user's link: whoever can
/// change settings, a workflow or instructions can run commands as the user who starts a run. As in git, root trusts
/// the user who called `sudo`. Group write permission is fine for a private group: one with the number of the user, and without other
/// members.
///
/// `root` is that of the project, or the working directory without a project: see [`check_link`].
///
/// # Errors
///
/// Another user owns it or can write it, or [`check_link`] refuses it. If its metadata cannot be read, this is not an
/// error.
pub fn check_owner(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let looked = [fs::symlink_metadata(path), fs::metadata(path)];
    let found = || looked.iter().flatten();
    if let Some(foreign) = found().find(|it| !is_own(it)) {
        return Err(ConfigError::Owner { path: path.to_owned(), owner: foreign.uid() });
    }
    if found().any(others_may_write) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    check_link(path, root)
}

/// Refuses a control file that is reached by a link in the project to a file in the project with an unprotected name
/// ([`control_files`](fabro_types::control_files)): agents and sandboxed scripts may write that file.
///
/// # Errors
///
/// The path goes through such a link. If it cannot be resolved, this is not an error.
pub fn check_link(path: &Path, root: &Path) -> Result<(), ConfigError> {
    let Ok(real_root) = root.canonicalize() else { return Ok(()) };
    let in_root = path.strip_prefix(root).ok();
    // Who names another file trusts it.
    if in_root.is_some_and(|path| !is_protected(path)) {
        return Ok(());
    }
    let mut resolved = if in_root.is_some() { real_root.clone() } else { PathBuf::new() };
    let mut rest: VecDeque<OsString> = parts(in_root.unwrap_or(path)).collect();
    let is_writable = |at: &Path| at.strip_prefix(&real_root).is_ok_and(|at| !is_protected(at));
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

/// Whether agents and sandboxed scripts cannot write a path of a project. Sandboxes protect `.git` of the working
/// directory only.
fn is_protected(path: &Path) -> bool {
    let names = path.iter().map(|name| name.to_string_lossy());
    let names: Vec<_> = names.collect();
    let kind = ControlFile::of(names.iter().map(|name| &**name));
    matches!(kind, Some(ControlFile::Found | ControlFile::Graph))
}

/// Refuses a file that a workflow names if it is less protected than the workflow file: it belongs to a third user, or
/// only it can be written by others.
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
    if found().any(others_may_write) && !others_may_write(&by) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    Ok(())
}

/// Whether a file or directory, and the target of a link, belongs to this user or to root.
pub(crate) fn belongs_to_user(path: &Path) -> bool {
    let looked = [fs::symlink_metadata(path), fs::metadata(path)];
    looked.iter().flatten().all(is_own)
}

/// Refuses a store that was found, not named, if it or its `.fabro` belongs to another user, who could answer gates and
/// has the key of its server. Root may use the store of a user in a directory of that user.
pub(crate) fn check_found_store(store: &Path) -> Result<(), ConfigError> {
    let own_dir = store.parent().unwrap_or(store);
    let holder = own_dir.parent().and_then(|dir| fs::metadata(dir).ok());
    let of_holder = |it: &Metadata| {
        geteuid().is_root() && holder.as_ref().is_some_and(|holder| holder.uid() == it.uid())
    };
    for dir in [own_dir, store] {
        let looked = [fs::symlink_metadata(dir), fs::metadata(dir)];
        if let Some(foreign) = looked.iter().flatten().find(|it| !is_own(it) && !of_holder(it)) {
            return Err(ConfigError::Store { path: dir.to_owned(), owner: foreign.uid() });
        }
    }
    Ok(())
}

fn is_own(found: &Metadata) -> bool {
    let user = geteuid();
    let by_sudo = || std::env::var("SUDO_UID").ok().and_then(|text| text.parse::<u32>().ok());
    found.uid() == user.as_raw()
        || found.uid() == 0
        || user.is_root() && by_sudo() == Some(found.uid())
}

fn others_may_write(found: &Metadata) -> bool {
    let is_private = || {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let has_number = [found.uid(), geteuid().as_raw()].contains(&found.gid());
        has_number && !has_other_members(found.gid(), &text("/etc/group"), &text("/etc/passwd"))
    };
    !found.is_symlink() && (found.mode() & 0o002 != 0 || found.mode() & 0o020 != 0 && !is_private())
}

/// Whether a group has members besides the user with its number, in the texts of `/etc/group` and `/etc/passwd`. A
/// group that only a directory service has seems to have none.
fn has_other_members(group: u32, groups: &str, users: &str) -> bool {
    let number = group.to_string();
    let fields = |line: &'_ str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let users: Vec<_> = users.lines().map(fields).collect();
    let is_own =
        |name: &str| users.iter().any(|user| user[0] == name && user.get(2) == Some(&number));
    let mut listed = groups.lines().map(fields).filter(|it| it.get(2) == Some(&number));
    let mut with_primary = users.iter().filter(|user| user.get(3) == Some(&number));
    listed.any(|it| {
        it.get(3).is_some_and(|all| all.split(',').any(|name| !name.is_empty() && !is_own(name)))
    }) || with_primary.any(|user| user.get(2) != Some(&number))
}

#[cfg(test)]
mod tests;
