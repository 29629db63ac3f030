//! File ownership in a store: root may drive a run in the store of another user, who must be able to
//! read and write all files later.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, openat, statat,
};
use rustix::process::geteuid;

/// Changes the owner (`chown`) of all files that root created in the store to the owner of its
/// directory. Does nothing unless this process runs as root, or if root owns the store. Follows no
/// symbolic links, since the owner may change the tree concurrently.
///
/// # Errors
/// A directory cannot be read, or `chown` failed.
pub(crate) fn give_to_store_owner(store: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let dir = openat(CWD, store, DIRECTORY, Mode::empty())?;
    let about = fstat(&dir)?;
    let owner = (Uid::from_raw(about.st_uid), Gid::from_raw(about.st_gid));
    if owner.0.is_root() { Ok(()) } else { chown_below(dir.as_fd(), owner) }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The recursion depth is bounded by the maximum path depth of the file system.
fn chown_below(dir: BorrowedFd<'_>, owner: (Uid, Gid)) -> io::Result<()> {
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
            let changed =
                chownat(dir, &name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW);
            changed.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })?;
        }
        if FileType::from_raw_mode(about.st_mode) == FileType::Directory {
            let below: OwnedFd = match openat(dir, &name, DIRECTORY, Mode::empty()) {
                Err(error) if gone(&error) => continue,
                below => below?,
            };
            chown_below(below.as_fd(), owner)?;
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
    fn changes_the_owner_of_files_created_by_root() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let store = dir.path().join("state");
        fs::create_dir_all(store.join("runs/a/stages")).unwrap();
        fs::write(store.join("runs/a/stages/status.json"), "{}").unwrap();
        fs::write(outside.path().join("file"), "").unwrap();
        symlink(outside.path(), store.join("runs/a/link")).unwrap();
        // Only root may change owners.
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
