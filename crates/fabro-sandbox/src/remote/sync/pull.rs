//! Taking over what has changed on the remote side.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::scan::{at, has_gone, open_beneath, split, stamp};
use super::tree::{Difference, Name, Stamp, Tree};
use crate::files::beneath;
use crate::remote::tar::{self, Header, Kind};

/// Takes over what has changed on the remote side. Nothing outside of the directory is changed: no link is followed.
pub(in crate::remote) struct Pull<'a> {
    pub(in crate::remote) root: &'a Path,
    pub(in crate::remote) remote: &'a Tree,
    pub(in crate::remote) change: &'a Difference,
}

impl Pull<'_> {
    /// Removes what is gone, and makes directories.
    pub(in crate::remote) fn prepare(&self) -> io::Result<()> {
        for name in &self.change.removed {
            self.remove(name).map_err(|error| at(name, &error))?;
        }
        for name in &self.change.put {
            let Some(stamp) = self.remote.get(name).filter(|it| it.kind == Kind::Directory) else {
                continue;
            };
            self.make(name, stamp.mode).map_err(|error| at(name, &error))?;
        }
        Ok(())
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        let (dir, last) = split(name);
        let parent = match beneath::directory(self.root, dir).map_err(io::Error::from) {
            Err(error) if has_gone(&error) => return Ok(()),
            parent => parent?,
        };
        let remove = |flags| rustix::fs::unlinkat(&parent, last, flags);
        let removed = match remove(AtFlags::empty()) {
            // The second one is for systems that do not have the first.
            Err(error @ (Errno::ISDIR | Errno::PERM)) => match remove(AtFlags::REMOVEDIR) {
                Err(Errno::NOTDIR) => Err(error),
                removed => removed,
            },
            removed => removed,
        };
        match removed {
            // A directory stays that has in it what is not copied.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn make(&self, name: &[u8], mode: u32) -> io::Result<()> {
        beneath::made(self.root, Path::new(OsStr::from_bytes(name)))?;
        let (dir, last) = split(name);
        let parent = beneath::directory(self.root, dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&parent, last, flags, Mode::empty())?;
        File::from(opened).set_permissions(fs::Permissions::from_mode(mode | 0o700))
    }

    /// The files and links that have to be fetched.
    pub(in crate::remote) fn wanted(&self) -> Vec<Name> {
        let is_wanted =
            |name: &&Name| self.remote.get(*name).is_some_and(|it| it.kind != Kind::Directory);
        self.change.put.iter().filter(is_wanted).cloned().collect()
    }

    /// How many bytes they have.
    pub(in crate::remote) fn bytes(&self) -> u64 {
        let sizes =
            self.change.put.iter().filter_map(|name| self.remote.get(name)).map(|it| it.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes the files and links of an archive; what was not asked for is passed over. No more than so many bytes. Returns
    /// what was asked for and is not in it.
    pub(in crate::remote) fn unpack(
        &self,
        archive: impl Read,
        limit: u64,
    ) -> io::Result<BTreeSet<Name>> {
        let wanted: BTreeSet<Name> = self.wanted().into_iter().collect();
        let mut missing = wanted.clone();
        let mut reader = tar::Reader::new(archive);
        let mut left = limit;
        while let Some(header) = reader.next()? {
            let name = header.path.strip_prefix(b"./").unwrap_or(&header.path).to_owned();
            if !wanted.contains(&name) {
                continue;
            }
            let taken = self.take(&header, &name, &wanted, &mut left, &mut reader);
            if taken.map_err(|error| at(&name, &error))? {
                missing.remove(&name);
            }
        }
        Ok(missing)
    }

    /// False when the entry means a file that was not asked for.
    fn take(
        &self,
        header: &Header,
        name: &[u8],
        wanted: &BTreeSet<Name>,
        left: &mut u64,
        content: impl Read,
    ) -> io::Result<bool> {
        let mut count = |size: u64| {
            *left = left.checked_sub(size).ok_or_else(|| io::Error::other("it has grown"))?;
            io::Result::Ok(())
        };
        let (dir, last) = split(name);
        let parent = beneath::made(self.root, dir)?;
        match header.kind {
            Kind::File => {
                count(header.size)?;
                write(&parent, last, header, content)?;
            }
            Kind::Link => link(&parent, last, &header.target)?,
            Kind::Same => {
                let target = header.target.strip_prefix(b"./").unwrap_or(&header.target);
                if !wanted.contains(target) {
                    return Ok(false);
                }
                let file = open_beneath(self.root, target)?;
                count(file.metadata()?.len())?;
                write(&parent, last, header, file)?;
            }
            Kind::Directory | Kind::Other => {}
        }
        Ok(true)
    }

    /// What is here after it was taken over, as remote as it comes from there.
    pub(in crate::remote) fn result(&self) -> Vec<(Name, Option<Stamp>)> {
        let found = |name: &Name| {
            let path = self.root.join(OsStr::from_bytes(name));
            // What cannot be read is pushed again, or its absence is.
            (name.clone(), fs::symlink_metadata(path).ok().map(|found| stamp(&found)))
        };
        self.change.names().map(found).collect()
    }
}

/// Replaces a file in one step.
fn write(parent: &OwnedFd, name: &Path, header: &Header, mut content: impl Read) -> io::Result<()> {
    let temporary = format!(".fabro-copy-{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, &*temporary, flags, Mode::from_raw_mode(0o600));
    let opened = match open() {
        // Of a driver that was killed.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(parent, &*temporary, AtFlags::empty())?;
            open()?
        }
        opened => opened?,
    };
    let mut file = File::from(opened);
    let written = io::copy(&mut content, &mut file).and_then(|_| {
        file.set_permissions(fs::Permissions::from_mode(header.mode & 0o777))?;
        let time = Timespec { tv_sec: i64::try_from(header.mtime).unwrap_or(0), tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times)?;
        Ok(rustix::fs::renameat(parent, &*temporary, parent, name)?)
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(parent, &*temporary, AtFlags::empty());
    }
    written
}

fn link(parent: &OwnedFd, name: &Path, target: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), parent, name)?)
}
