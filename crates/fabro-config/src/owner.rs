//! File ownership and permissions.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::process::geteuid;

use crate::error::ConfigError;

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
        let is_of_holder = holder.as_ref().is_some_and(|holder| holder.uid() == it.uid());
        // A link could lead to files of root.
        geteuid().is_root() && is_of_holder && !it.is_symlink()
    };
    for dir in [own_dir, store] {
        let looked = [fs::symlink_metadata(dir), fs::metadata(dir)];
        if let Some(foreign) = looked.iter().flatten().find(|it| !is_own(it) && !of_holder(it)) {
            return Err(ConfigError::Store { path: dir.to_owned(), owner: foreign.uid() });
        }
    }
    let links = ["runs", "blobs", "heads"].map(|name| store.join(name));
    let foreign = links.into_iter().find_map(|path| {
        let found = fs::symlink_metadata(&path).ok()?;
        (found.is_symlink() && !is_own(&found)).then_some((path, found.uid()))
    });
    foreign.map_or(Ok(()), |(path, owner)| Err(ConfigError::Store { path, owner }))
}

/// Whether this user, root, or the user who called `sudo` owns it.
pub(crate) fn is_own(found: &Metadata) -> bool {
    let user = geteuid();
    let by_sudo = || std::env::var("SUDO_UID").ok().and_then(|text| text.parse::<u32>().ok());
    found.uid() == user.as_raw()
        || found.uid() == 0
        || user.is_root() && by_sudo() == Some(found.uid())
}

/// Whether other users can write to it. Group write permission is accepted for a private group, but
/// not with an access control list (ACL): there it is the mask, and the list may name other users.
pub(crate) fn others_may_write(path: &Path, found: &Metadata) -> bool {
    let has_acl = || getxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]).is_ok();
    let is_private = || {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let has_number = [found.uid(), geteuid().as_raw()].contains(&found.gid());
        has_number && !has_other_members(found.gid(), &text("/etc/group"), &text("/etc/passwd"))
    };
    !found.is_symlink()
        && (found.mode() & 0o002 != 0 || found.mode() & 0o020 != 0 && (!is_private() || has_acl()))
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
