//! Keeping the files that changed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;

use crate::beneath::open_file;
use crate::changes::Changes;
use crate::limits::Limits;
use crate::media_type::media_type;
use crate::name::utf8;
use crate::pool::{Copied, Pool};
use crate::tree::{Kind, Stopped};

/// Where files are kept.
pub struct Destination<'a> {
    /// The directory that gets them, by their paths.
    pub files: &'a Path,
    /// The directory that has their bytes, by their hash: equal files are stored once. It must be on
    /// the file system of `files`.
    pub pool: &'a Path,
    /// The name under which a path is kept; removes what is secret.
    pub name: &'a (dyn Fn(&str) -> String + Sync),
}

/// What became of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// The files that were kept, in the order of their paths.
    pub kept: Vec<Kept>,
    /// The files that were not.
    pub left_out: Vec<LeftOut>,
}

/// A file that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its path, relative to the directory that was scanned, and below the one that has it now.
    pub path: String,
    /// How many bytes it has.
    pub size: u64,
    /// The SHA-256 of its bytes, as hexadecimal digits.
    pub sha256: String,
    /// What it is, by its extension.
    pub media_type: &'static str,
}

/// A file that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path; empty when it is about the whole scan.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.reason),
            path => write!(f, "{}: {}", path.escape_debug(), self.reason),
        }
    }
}

/// A link was found where none was before.
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Where a file could not be kept because of the limits or of what it is.
type Refusal = String;

struct Keeper<'a> {
    root: &'a Path,
    limits: &'a Limits,
    to: &'a Destination<'a>,
    pool: Pool<'a>,
    total: u64,
    /// How many files there are to keep.
    files: usize,
    /// The names of the copies.
    names: BTreeSet<String>,
    collection: Collection,
}

pub(crate) fn keep(
    root: &Path,
    limits: &Limits,
    changes: &Changes,
    to: &Destination<'_>,
) -> Collection {
    let pool = Pool::new(to.pool);
    let collection = Collection::default();
    let mut keeper = Keeper {
        root,
        limits,
        to,
        pool,
        total: 0,
        files: changes.files.len(),
        names: BTreeSet::new(),
        collection,
    };
    let mut copied = Vec::new();
    for (path, file) in &changes.files {
        let name = (to.name)(&utf8(path));
        match keeper.copy(path, &name, file.kind, file.size, copied.len()) {
            Ok(copy) => copied.push((name, copy)),
            Err(reason) => keeper.leave_out(name, reason),
        }
    }
    keeper.link(copied);
    for (path, error) in &changes.unreadable {
        let reason = format!("the directory cannot be read: {error}");
        keeper.leave_out((to.name)(&utf8(path)), reason);
    }
    if let Some(stopped) = changes.stopped {
        let limit = match stopped {
            Stopped::Entries(entries) => format!("{entries} directory entries"),
            Stopped::Time(time) => format!("{time:?}"),
        };
        let reason = format!(
            "the search for artifacts stopped after {limit}; some may be missing: exclude large directories"
        );
        keeper.leave_out(String::new(), reason);
    }
    keeper.collection
}

impl Keeper<'_> {
    fn leave_out(&mut self, path: String, reason: String) {
        self.collection.left_out.push(LeftOut { path, reason });
    }

    fn copy(
        &mut self,
        path: &OsStr,
        name: &str,
        kind: Kind,
        size: u64,
        count: usize,
    ) -> Result<Copied, Refusal> {
        let what = match kind {
            Kind::Regular => None,
            Kind::Link => Some("a symbolic link, which is not followed"),
            Kind::Fifo => Some("a FIFO, not a regular file"),
            Kind::Socket => Some("a socket, not a regular file"),
            Kind::Device => Some("a device, not a regular file"),
        };
        if let Some(what) = what {
            return Err(what.to_owned());
        }
        self.check_size(size)?;
        if count >= self.limits.files {
            return Err(format!("one collection has at most {} files", self.limits.files));
        }
        if self.names.contains(name) {
            return Err("another file has the name that it would be kept under".to_owned());
        }
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => "it vanished before it was copied".to_owned(),
            _ if is_link(&error) => "a symbolic link, which is not followed".to_owned(),
            _ => format!("it cannot be copied: {error}"),
        };
        let file = open_file(self.root, Path::new(path)).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err("it was replaced by something that is not a regular file".to_owned());
        }
        let most = self.limits.file.min(self.limits.total - self.total);
        let copied = self.pool.copy(file, most, self.files).map_err(unreadable)?;
        self.check_size(copied.size)?;
        self.total += copied.size;
        self.names.insert(name.to_owned());
        Ok(copied)
    }

    fn check_size(&self, size: u64) -> Result<(), Refusal> {
        let Limits { file, total, .. } = self.limits;
        if size > *file {
            return Err(format!("it has {size} bytes, and an artifact at most {file}"));
        }
        if self.total + size > *total {
            return Err(format!(
                "it has {size} bytes, and with those before it one collection at most {total}"
            ));
        }
        Ok(())
    }

    /// Makes sure that the copies are durable, then gives them their names.
    fn link(&mut self, copied: Vec<(String, Copied)>) {
        if let Err(error) = self.pool.sync(self.files) {
            for (name, _) in copied {
                self.leave_out(name, format!("it cannot be kept: {error}"));
            }
            return;
        }
        for (name, copy) in copied {
            let size = copy.size;
            let sha256 = copy.sha256.clone();
            match self.pool.link(copy, &self.to.files.join(&name)) {
                Ok(()) => {
                    let media_type = media_type(&name);
                    self.collection.kept.push(Kept { path: name, size, sha256, media_type });
                }
                Err(error) => self.leave_out(name, format!("it cannot be kept: {error}")),
            }
        }
        if let Err(error) = self.pool.sync_dirs() {
            for Kept { path, .. } in std::mem::take(&mut self.collection.kept) {
                self.leave_out(path, format!("it cannot be kept: {error}"));
            }
        }
        self.collection.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    }
}
