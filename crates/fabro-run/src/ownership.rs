//! Who owns what a driver leaves in a store. Root may drive a run in the store of another user, who has to read and
//! write all of it later.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, openat, statat,
};
use rustix::process::geteuid;

/// Gives everything that root made in the store to the owner of its directory. Does nothing for other users, and where
/// root is the owner. No link is followed: the owner can change the tree meanwhile.
///
/// # Errors
/// A directory cannot be read, or a file cannot be given away.
pub(crate) fn give_to_store_owner(store: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let dir = openat(CWD, store, DIRECTORY, Mode::empty())?;
    let about = fstat(&dir)?;
    let owner = (Uid::from_raw(about.st_uid), Gid::from_raw(about.st_gid));
    if owner.0.is_root() { Ok(()) } else { give_below(dir.as_fd(), owner) }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The recursion ends: no path is deeper than the system allows.
fn give_below(dir: BorrowedFd<'_>, owner: (Uid, Gid)) -> io::Result<()> {
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        let gone = |error: &rustix::io::Errno| *error == rustix::io::Errno::NOENT;
        let about = match statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(error) if gone(&error) => continue,
            about => about?,
        };
        if Uid::from_raw(about.st_uid).is_root() {
            let given =
                chownat(dir, &name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW);
            given.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })?;
        }
        if FileType::from_raw_mode(about.st_mode) == FileType::Directory {
            let below: OwnedFd = match openat(dir, &name, DIRECTORY, Mode::empty()) {
                Err(error) if gone(&error) => continue,
                below => below?,
            };
            give_below(below.as_fd(), owner)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};

    use super::*;

    #[test]
    fn what_root_made_is_the_owners() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let store = dir.path().join("state");
        fs::create_dir_all(store.join("runs/a/stages")).unwrap();
        fs::write(store.join("runs/a/stages/status.json"), "{}").unwrap();
        fs::write(outside.path().join("file"), "").unwrap();
        symlink(outside.path(), store.join("runs/a/link")).unwrap();
        // Only root may give files away.
        if chown(&store, Some(4321), Some(4322)).is_err() {
            return;
        }
        give_to_store_owner(&store).unwrap();
        let owner = |path: &Path| {
            let about = fs::symlink_metadata(path).unwrap();
            (about.uid(), about.gid())
        };
        for made in ["runs", "runs/a/stages", "runs/a/stages/status.json", "runs/a/link"] {
            assert_eq!(owner(&store.join(made)), (4321, 4322), "{made}");
        }
        assert_eq!(owner(outside.path()).0, 0);
        assert_eq!(owner(&outside.path().join("file")).0, 0, "behind a link");
    }
}
