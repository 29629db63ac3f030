//! Ownership checks of files that decide what runs as this user.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{getegid, geteuid};

use crate::error::ConfigError;

/// Refuses a file that another user owns or can write, or that is reached by another user's link: whoever can change
/// settings, a workflow or instructions can run commands as the user who starts a run. As in git, root trusts the user
/// who called `sudo`. Group write permission is fine for the user's own group.
///
/// # Errors
///
/// Another user owns it or can write it. If its metadata cannot be read, this is not an error.
pub fn check_owner(path: &Path) -> Result<(), ConfigError> {
    let looked = [fs::symlink_metadata(path), fs::metadata(path)];
    let found = || looked.iter().flatten();
    if let Some(foreign) = found().find(|it| !is_own(it)) {
        return Err(ConfigError::Owner { path: path.to_owned(), owner: foreign.uid() });
    }
    if found().any(others_may_write) {
        return Err(ConfigError::Writable(path.to_owned()));
    }
    Ok(())
}

/// Whether a file or directory, and the target of a link, belongs to this user or to root.
pub(crate) fn belongs_to_user(path: &Path) -> bool {
    let looked = [fs::symlink_metadata(path), fs::metadata(path)];
    looked.iter().flatten().all(is_own)
}

fn is_own(found: &Metadata) -> bool {
    let user = geteuid();
    let by_sudo = || std::env::var("SUDO_UID").ok().and_then(|text| text.parse::<u32>().ok());
    found.uid() == user.as_raw()
        || found.uid() == 0
        || user.is_root() && by_sudo() == Some(found.uid())
}

fn others_may_write(found: &Metadata) -> bool {
    let is_of_group = found.gid() == getegid().as_raw() || found.gid() == 0;
    !found.is_symlink() && (found.mode() & 0o002 != 0 || found.mode() & 0o020 != 0 && !is_of_group)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    #[test]
    fn files_that_others_can_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fabro.toml");
        fs::write(&file, "").unwrap();
        let check = |mode: u32, expect: bool| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_owner(&file).is_ok(), expect, "{mode:o}");
        };
        check(0o644, true);
        check(0o664, true);
        check(0o646, false);
        check(0o666, false);
    }

    #[test]
    fn files_and_links_of_other_users_are_refused() {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fabro.toml");
        let link = dir.path().join("link.toml");
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        check_owner(&link).unwrap();
        lchown(&link, Some(12345), None).unwrap();
        assert!(matches!(check_owner(&link), Err(ConfigError::Owner { owner: 12345, .. })));
        check_owner(&file).unwrap();
        chown(&file, None, Some(12345)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(matches!(check_owner(&file), Err(ConfigError::Writable(_))));
        chown(&file, Some(12345), None).unwrap();
        assert!(matches!(check_owner(&file), Err(ConfigError::Owner { owner: 12345, .. })));
        assert!(!belongs_to_user(&file));
    }
}
