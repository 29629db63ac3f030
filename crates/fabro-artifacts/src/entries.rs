//! The entries of a directory, with as few calls of the system as it takes.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, open, statat};

/// What is read at a time, in bytes: some hundred entries.
#[cfg(target_os = "linux")]
const PIECE: usize = 16 << 10;

/// Opens a directory; a link is followed only where that is said.
pub(crate) fn open_dir(path: &Path, follow: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    Ok(open(path, flags, Mode::empty())?)
}

/// Calls `each` with the name and type of every entry, in the order of the directory. What cannot be read any
/// further ends it, as the last entry does.
pub(crate) fn entries(
    dir: &OwnedFd,
    mut each: impl FnMut(&OsStr, FileType) -> ControlFlow<()>,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::mem::MaybeUninit;

        use rustix::fs::RawDir;

        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut read = RawDir::new(dir, &mut piece);
        while let Some(entry) = read.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if one(dir, name, entry.file_type(), &mut each).is_break() {
                break;
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if one(dir, name, entry.file_type(), &mut each).is_break() {
            break;
        }
    }
    Ok(())
}

fn one(
    dir: impl AsFd,
    name: &OsStr,
    kind: FileType,
    each: &mut impl FnMut(&OsStr, FileType) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if name == "." || name == ".." {
        return ControlFlow::Continue(());
    }
    let kind = match kind {
        // Some file systems keep it only with the file.
        FileType::Unknown => match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => FileType::from_raw_mode(about.st_mode),
            Err(_) => return ControlFlow::Continue(()),
        },
        kind => kind,
    };
    each(name, kind)
}
