//! Opening files below a root without following a single link.

use std::fs::File;
use std::io;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
// A FIFO that took the place of a file must not block.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a file for reading, whose path is relative to the root, without following a link on the way.
///
/// # Errors
/// It cannot be opened, or is reached through a link.
pub fn open_file(root: &Path, path: &Path) -> io::Result<File> {
    let mut dir = open(root, DIRECTORY, Mode::empty())?;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};

        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&dir, path, FILE, Mode::empty(), resolve) {
            // The kernel does not know the call, or a filter of system calls does not let it through.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(opened?.into()),
        }
    }
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(Errno::XDEV.into()) };
        if parts.peek().is_none() {
            return Ok(openat(&dir, name, FILE, Mode::empty())?.into());
        }
        dir = openat(&dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Err(Errno::ISDIR.into())
}
