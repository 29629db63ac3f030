//! A copy of a working directory on the other side, kept equal to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::tar::{self, Header, Kind};
use crate::files::beneath;

/// What is not copied by default, wherever it is: what tools make for the machine they run on.
pub(super) const EXCLUDED: [&str; 14] = [
    "node_modules",
    ".pnpm-store",
    ".npm",
    ".cache",
    "target",
    ".next",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".gradle",
];

/// A directory with such a file is a store of runs, which is not copied in either direction.
const STORE_FILE: &str = "fabro.db";

/// The most files and directories of a working directory that is copied.
const MOST: usize = 1_000_000;

/// The most bytes of a list of them.
pub(super) const LIST_BYTES: u64 = 256 << 20;

/// A path relative to the working directory.
pub(super) type Name = Vec<u8>;

/// What is at a path; unequal after it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// In seconds.
    pub(super) mtime: u64,
    /// The times in full, and the inode.
    pub(super) detail: String,
}

impl Stamp {
    /// Whether a file of the other side is taken to be the same: size, mode, and time to the second.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let is_same =
            self.kind == other.kind && (self.mode == other.mode || self.kind == Kind::Link);
        match self.kind {
            Kind::File => is_same && self.size == other.size && self.mtime == other.mtime,
            Kind::Directory => is_same,
            // Where it leads is compared by copying it.
            _ => false,
        }
    }
}

/// Everything in a directory.
pub(super) type Tree = BTreeMap<Name, Stamp>;

/// What is copied and what is not.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Names of files and directories.
    pub(super) exclude: Vec<String>,
    /// Files and directories of this machine that scripts neither see nor change.
    pub(super) hidden: Vec<PathBuf>,
    /// Whether `.git` is copied back.
    pub(super) write_git: bool,
}

impl Rules {
    pub(super) fn excludes(&self, name: &OsStr) -> bool {
        self.exclude.iter().any(|it| OsStr::new(it) == name)
    }

    /// Whether what a script did there comes back: not to what other programs obey, and not to what is hidden from it.
    pub(super) fn comes_back(&self, name: &[u8], hidden: &[Name]) -> bool {
        let mut parts = name.split(|byte| *byte == b'/');
        let is_hidden = |it: &Name| {
            name.strip_prefix(&**it).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        !parts.any(|part| part == b".fabro" || (part == b".git" && !self.write_git))
            && !hidden.iter().any(is_hidden)
    }

    /// What is hidden in a directory, relative to it.
    pub(super) fn hidden_in(&self, root: &Path) -> Vec<Name> {
        let below = self.hidden.iter().filter_map(|path| path.strip_prefix(root).ok());
        let below = below.map(|path| path.as_os_str().as_bytes().to_owned());
        below.filter(|name| !name.is_empty()).collect()
    }
}

/// Everything in a directory of this machine that is copied.
pub(super) fn scan(root: &Path, rules: &Rules) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(root.join(&dir)) {
            Err(error) if !dir.as_os_str().is_empty() && has_gone(&error) => continue,
            entries => entries.map_err(|error| at(dir.as_os_str().as_bytes(), &error))?,
        };
        let entries: io::Result<Vec<fs::DirEntry>> = entries.collect();
        let entries = entries.map_err(|error| at(dir.as_os_str().as_bytes(), &error))?;
        if !dir.as_os_str().is_empty() && entries.iter().any(|it| it.file_name() == STORE_FILE) {
            tree.remove(dir.as_os_str().as_bytes());
            continue;
        }
        for entry in entries {
            let path = dir.join(entry.file_name());
            let is_own = dir == Path::new(".fabro") && is_own_name(&entry.file_name());
            if is_own || rules.excludes(&entry.file_name()) {
                continue;
            }
            let whole = root.join(&path);
            let found = match fs::symlink_metadata(&whole) {
                Err(error) if has_gone(&error) => continue,
                found => found.map_err(|error| at(path.as_os_str().as_bytes(), &error))?,
            };
            if rules.hidden.contains(&whole) {
                continue;
            }
            let stamp = stamp(&found);
            if stamp.kind == Kind::Other {
                continue;
            }
            if stamp.kind == Kind::Directory {
                open.push(path.clone());
            }
            tree.insert(path.as_os_str().as_bytes().to_owned(), stamp);
            if tree.len() > MOST {
                return Err(io::Error::other(format!("it has more than {MOST} files")));
            }
        }
    }
    Ok(tree)
}

/// Whether an error means that something has just gone, or been replaced by a link, or that the user cannot read it
/// either. After any other error it may still be there.
fn has_gone(error: &io::Error) -> bool {
    let gone = [ErrorKind::NotFound, ErrorKind::PermissionDenied, ErrorKind::NotADirectory];
    let replaced = [Errno::LOOP, Errno::XDEV].map(Errno::raw_os_error);
    gone.contains(&error.kind()) || error.raw_os_error().is_some_and(|it| replaced.contains(&it))
}

/// Names in `.fabro` that belong to fabro on the other side: its programs, values and artifacts.
pub(super) const OWN_NAMES: [&str; 3] = ["run", "blobs", "artifacts"];

/// Whether a name in `.fabro` is one of them.
pub(super) fn is_own_name(name: &OsStr) -> bool {
    OWN_NAMES.iter().any(|own| OsStr::new(own) == name)
}

fn stamp(found: &fs::Metadata) -> Stamp {
    let kind = match found.file_type() {
        it if it.is_file() => Kind::File,
        it if it.is_dir() => Kind::Directory,
        it if it.is_symlink() => Kind::Link,
        _ => Kind::Other,
    };
    let times = [found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let is_directory = kind == Kind::Directory;
    Stamp {
        kind,
        mode: found.mode() & 0o777,
        // Those of a directory say nothing about itself.
        size: if is_directory { 0 } else { found.len() },
        mtime: if is_directory { 0 } else { u64::try_from(found.mtime()).unwrap_or(0) },
        detail: if is_directory { String::new() } else { format!("{times:?} {}", found.ino()) },
    }
}

/// The detail of a stamp of what has not been brought back: it is equal to no other.
pub(super) const NOT_COPIED: &str = "not copied";

/// Marks what was asked for and did not come: it is asked for again, or removed here once it is gone there.
pub(super) fn mark_missing(far: &mut Tree, missing: &BTreeSet<Name>) {
    for name in missing {
        if let Some(stamp) = far.get_mut(name) {
            NOT_COPIED.clone_into(&mut stamp.detail);
        }
    }
}

/// The last record of a list: without it the list is not whole, and what it does not name may still be there.
const LIST_END: &[u8] = b"end";

/// The record after a list that is not whole, before it is made again.
const LIST_AGAIN: &[u8] = b"again";

/// How often a list is made until it is whole.
const LISTS: usize = 5;

/// Prints the state of files for `find`. A file that has vanished since it was found is passed over: it is not there, and
/// its directory can be searched, or is gone too. Every other failure of `stat` makes the list one that is not whole.
const STAT: &str = r#"stat -c "%f %s %Y %Z %i %n" "$@" 2>/dev/null && exit 0
v=
for f; do
[ -e "$f" ] || [ -L "$f" ] && continue
d="${f%/*}"
[ -x "$d" ] || [ ! -e "$d" ] || exit 1
v=1
done
[ "$v" ]"#;

/// A program that lists the copy, after the working directory of the shell has been set. It prints [`LIST_END`] only where
/// all of it could be read.
///
/// The `find` of others than GNU fails when a directory vanishes while it reads, so that the list is made again.
pub(super) fn list_program(rules: &Rules, root: &Path) -> Vec<u8> {
    // In a pattern of `find` some characters are special.
    let pattern = |name: &str| {
        let escaped = name
            .chars()
            .flat_map(|it| "*?[]\\".contains(it).then_some('\\').into_iter().chain([it]));
        super::program::quote(&escaped.collect::<String>())
    };
    let own = OWN_NAMES.map(|name| format!("-path ./.fabro/{name}"));
    let mut prune = own.join(" -o ");
    for name in &rules.exclude {
        prune.push_str(" -o -name ");
        prune.push_str(&pattern(name));
    }
    for name in rules.hidden_in(root) {
        // A name that is no text is refused when it comes back.
        if let Ok(name) = str::from_utf8(&name) {
            prune.push_str(" -o -path ");
            prune.push_str(&pattern(&format!("./{name}")));
        }
    }
    format!(
        "if find . -ignore_readdir_race -prune -printf x >/dev/null 2>&1; then\n\
         find . -ignore_readdir_race -mindepth 1 \\( {prune} \\) -prune -o \
         -printf '%y %m %s %T@ %C@ %i %P\\0' 2>/dev/null && printf 'end\\0'\n\
         else\n\
         echo\n\
         n=1\n\
         until find . \\( {prune} -o -name '*\n*' \\) -prune -o -exec sh -c {stat} sh {{}} + 2>/dev/null; do\n\
         [ $n -lt {LISTS} ] || exit 0\n\
         n=$((n+1))\n\
         echo again\n\
         done\n\
         echo end\n\
         fi\n",
        stat = super::program::quote(STAT),
    )
    .into_bytes()
}

/// Reads what such a program printed; what is not as it should be is left out.
pub(super) fn parse_list(text: &[u8]) -> io::Result<Tree> {
    if text.len() as u64 >= LIST_BYTES {
        return Err(io::Error::other("the copy has too many files"));
    }
    let (end, is_raw) = match text.first() {
        Some(b'\n') => (b'\n', true),
        _ => (b'\0', false),
    };
    let records = text.strip_suffix(&[end]).unwrap_or_default();
    if records.rsplit(|byte| *byte == end).next() != Some(LIST_END) {
        return Err(io::Error::other(
            "the copy cannot be read whole, so nothing is copied back: make its directories readable (chmod)",
        ));
    }
    let mut tree = Tree::new();
    for line in records.split(|byte| *byte == end) {
        if is_raw && line == LIST_AGAIN {
            tree.clear();
        }
        tree.extend(parse_entry(line, is_raw));
    }
    if tree.len() > MOST {
        return Err(io::Error::other(format!("the copy has more than {MOST} files")));
    }
    Ok(tree)
}

fn parse_entry(line: &[u8], is_raw: bool) -> Option<(Name, Stamp)> {
    let mut fields = line.splitn(if is_raw { 6 } else { 7 }, |byte| *byte == b' ');
    let mut text = || str::from_utf8(fields.next()?).ok();
    let (kind, mode) = if is_raw {
        let mode = u32::from_str_radix(text()?, 16).ok()?;
        let kind = match mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Directory,
            0o120_000 => Kind::Link,
            _ => return None,
        };
        (kind, mode)
    } else {
        let kind = match text()? {
            "f" => Kind::File,
            "d" => Kind::Directory,
            "l" => Kind::Link,
            _ => return None,
        };
        (kind, u32::from_str_radix(text()?, 8).ok()?)
    };
    let size = text()?.parse().ok()?;
    let mtime = text()?;
    // Before 1970 it is negative.
    let seconds = mtime.split('.').next()?.parse::<i64>().ok()?;
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let detail = format!("{mtime} {} {}", text()?, text()?);
    let path = fields.next()?;
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let is_path = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    if !path.split(|byte| *byte == b'/').all(is_path) {
        return None;
    }
    let stamp = match kind {
        Kind::Directory => {
            Stamp { kind, mode: mode & 0o777, size: 0, mtime: 0, detail: String::new() }
        }
        _ => Stamp { kind, mode: mode & 0o777, size, mtime: seconds, detail },
    };
    Some((path.to_owned(), stamp))
}

/// What has to be done to make one tree equal to another.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// What is new or different, directories before what is in them.
    pub(super) put: Vec<Name>,
    /// What is gone or of another kind, directories after what is in them.
    pub(super) removed: Vec<Name>,
}

impl Difference {
    /// Leaves out what is in a store of runs of this machine, or is one.
    pub(super) fn retain_outside_of_stores(&mut self, root: &Path) {
        let mut known = BTreeMap::new();
        let mut is_store = |name: &[u8]| {
            let path = Path::new(OsStr::from_bytes(name));
            let mut dirs = path.ancestors().filter(|dir| !dir.as_os_str().is_empty());
            dirs.any(|dir| {
                let is_store = || fs::symlink_metadata(root.join(dir).join(STORE_FILE)).is_ok();
                *known.entry(dir.to_owned()).or_insert_with(is_store)
            })
        };
        self.put.retain(|name| !is_store(name));
        self.removed.retain(|name| !is_store(name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.removed.iter().chain(&self.put)
    }

    pub(super) fn between(
        old: &Tree,
        new: &Tree,
        is_same: impl Fn(&Stamp, &Stamp) -> bool,
    ) -> Self {
        let put = new
            .iter()
            .filter(|(name, stamp)| !old.get(*name).is_some_and(|old| is_same(old, stamp)));
        let removed = old
            .iter()
            .filter(|(name, stamp)| new.get(*name).is_none_or(|new| new.kind != stamp.kind));
        Self {
            put: put.map(|(name, _)| name.clone()).collect(),
            removed: removed.rev().map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// Commands that remove these, in the working directory of the shell.
pub(super) fn removal(names: &[Name]) -> Vec<u8> {
    const TOGETHER: usize = 200;
    let mut text = Vec::new();
    for names in names.chunks(TOGETHER) {
        text.extend_from_slice(b"rm -rf --");
        for name in names {
            text.extend_from_slice(b" './");
            for byte in name {
                match byte {
                    b'\'' => text.extend_from_slice(br"'\''"),
                    other => text.push(*other),
                }
            }
            text.push(b'\'');
        }
        text.extend_from_slice(b" || end 125\n");
    }
    text
}

/// Writes an archive of these files of a directory. What has gone is left out: it is removed the next time.
pub(super) fn pack(
    root: &Path,
    tree: &Tree,
    names: &[Name],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = tar::Writer::new(io::BufWriter::with_capacity(1 << 16, out));
    for name in names {
        let Some(stamp) = tree.get(name) else { continue };
        let Stamp { kind, mode, size, mtime, .. } = *stamp;
        let path_there = [b"./", &name[..]].concat();
        let header = |target| Header { path: path_there, kind, mode, size, mtime, target };
        match kind {
            Kind::File => {
                let file = match open_beneath(root, name) {
                    Err(error) if has_gone(&error) || error.kind() == ErrorKind::InvalidInput => {
                        continue;
                    }
                    file => file.map_err(|error| at(name, &error))?,
                };
                writer.add(&header(Vec::new()), file)?;
            }
            Kind::Link => {
                let target = match link_beneath(root, name) {
                    // It is no link any more.
                    Err(error) if has_gone(&error) || error.kind() == ErrorKind::InvalidInput => {
                        continue;
                    }
                    target => target.map_err(|error| at(name, &error))?,
                };
                let header = Header { size: 0, ..header(target) };
                writer.add(&header, io::empty())?;
            }
            _ => {
                // Else another user could not list the copy.
                let header = Header { mode: mode | 0o700, ..header(Vec::new()) };
                writer.add(&header, io::empty())?;
            }
        }
    }
    writer.finish()
}

/// Opens a plain file without following a link, also where a script has put one in the place of a directory.
fn open_beneath(root: &Path, name: &[u8]) -> io::Result<File> {
    let (dir, last) = split(name);
    let parent = beneath::directory(root, dir)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(parent, last, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

/// The target of a link, whose parents are no links.
fn link_beneath(root: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let (dir, last) = split(name);
    let parent = beneath::directory(root, dir)?;
    Ok(rustix::fs::readlinkat(parent, last, Vec::new())?.into_bytes())
}

/// Writes an archive of these files under other names.
pub(super) fn pack_files(files: &BTreeMap<String, PathBuf>, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = tar::Writer::new(io::BufWriter::with_capacity(1 << 16, out));
    for (name, path) in files {
        let file = File::open(path)?;
        let found = file.metadata()?;
        let header = Header {
            path: name.as_bytes().to_owned(),
            kind: Kind::File,
            mode: 0o444,
            size: found.len(),
            mtime: u64::try_from(found.mtime()).unwrap_or(0),
            target: Vec::new(),
        };
        writer.add(&header, file)?;
    }
    writer.finish()
}

/// Takes over what has changed on the other side. Nothing outside of the directory is changed: no link is followed.
pub(super) struct Pull<'a> {
    pub(super) root: &'a Path,
    pub(super) far: &'a Tree,
    pub(super) change: &'a Difference,
}

impl Pull<'_> {
    /// Removes what is gone, and makes directories.
    pub(super) fn prepare(&self) -> io::Result<()> {
        for name in &self.change.removed {
            self.remove(name).map_err(|error| at(name, &error))?;
        }
        for name in &self.change.put {
            let Some(stamp) = self.far.get(name).filter(|it| it.kind == Kind::Directory) else {
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
    pub(super) fn wanted(&self) -> Vec<Name> {
        let is_wanted =
            |name: &&Name| self.far.get(*name).is_some_and(|it| it.kind != Kind::Directory);
        self.change.put.iter().filter(is_wanted).cloned().collect()
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> u64 {
        let sizes = self.change.put.iter().filter_map(|name| self.far.get(name)).map(|it| it.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes the files and links of an archive; what was not asked for is passed over. No more than so many bytes. Returns
    /// what was asked for and is not in it.
    pub(super) fn unpack(&self, archive: impl Read, limit: u64) -> io::Result<BTreeSet<Name>> {
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

    /// What is here after it was taken over, as far as it comes from there.
    pub(super) fn result(&self) -> Vec<(Name, Option<Stamp>)> {
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

fn at(name: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", String::from_utf8_lossy(name)))
}

fn split(name: &[u8]) -> (&Path, &Path) {
    let (dir, last) = match name.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&name[..slash], &name[slash + 1..]),
        None => (&name[..0], name),
    };
    (Path::new(OsStr::from_bytes(dir)), Path::new(OsStr::from_bytes(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &[u8]) -> Result<Vec<String>, String> {
        let tree = parse_list(text).map_err(|error| error.to_string())?;
        Ok(tree.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Else a directory that cannot be read would look like one that was removed, and be removed here.
    #[test]
    fn a_list_that_is_not_whole_is_refused() {
        let record = b"f 644 1 1.0 1.0 7 end\0";
        assert_eq!(listed(&[&record[..], b"end\0"].concat()).unwrap(), ["end"]);
        assert_eq!(listed(b"end\0").unwrap(), [""; 0]);
        assert_eq!(listed(b"f 644 1 -31536000.5 1.0 7 old\0end\0").unwrap(), ["old"]);
        assert_eq!(listed(b"\n81a4 1 1 1 7 ./end\nend\n").unwrap(), ["end"]);
        for text in [&record[..], b"", b"\n", b"\n81a4 1 1 1 7 ./end\n", b"end"] {
            assert!(listed(text).unwrap_err().contains("cannot be read whole"), "{text:?}");
        }
    }

    #[test]
    fn nothing_comes_back_to_what_is_hidden() {
        let rules = Rules {
            exclude: Vec::new(),
            hidden: ["/w/my[store", "/w/sub/store", "/elsewhere", "/w"].map(PathBuf::from).to_vec(),
            write_git: false,
        };
        let hidden = rules.hidden_in(Path::new("/w"));
        let check = |name: &str, expected: bool| {
            assert_eq!(rules.comes_back(name.as_bytes(), &hidden), expected, "{name}");
        };
        check("my[store", false);
        check("my[store/fabro.db", false);
        check("my[stores", true);
        check("sub/store/runs/1", false);
        check("sub", true);
        check("elsewhere", true);
        let program = String::from_utf8(list_program(&rules, Path::new("/w"))).unwrap();
        assert!(program.contains(r"-path './my\[store'"), "{program}");
    }

    #[test]
    fn the_program_says_whether_the_list_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "x").unwrap();
        let rules = Rules { exclude: Vec::new(), hidden: Vec::new(), write_git: false };
        let program = String::from_utf8(list_program(&rules, dir.path())).unwrap();
        let list = |program: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(program).current_dir(dir.path()).output().unwrap().stdout
        };
        assert_eq!(listed(&list(&program)).unwrap(), ["a"]);
        let broken = program.replace("-mindepth 1", "-mindepth 1 missing");
        assert!(broken != program && listed(&list(&broken)).is_err());
    }

    /// `sh`, `find` and `stat` of busybox, and what a script does whenever files are looked at.
    #[track_caller]
    fn check_without_gnu(when_looked_at: &str, expect: Result<&[&str], &str>) {
        let Some(busybox) =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|it| Path::new(it).exists())
        else {
            eprintln!("skipped: busybox is not installed");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        let bin = dir.path().join("bin");
        for made in [&work.join("sub"), &bin] {
            fs::create_dir_all(made).unwrap();
        }
        for name in ["a", "b", "sub/c"] {
            fs::write(work.join(name), "x").unwrap();
        }
        for name in ["sh", "find", "rm", "touch"] {
            std::os::unix::fs::symlink(busybox, bin.join(name)).unwrap();
        }
        let stat = format!("#!{busybox} sh\n{when_looked_at}\nexec {busybox} stat \"$@\"\n");
        fs::write(bin.join("stat"), stat).unwrap();
        fs::set_permissions(bin.join("stat"), fs::Permissions::from_mode(0o755)).unwrap();
        let rules = Rules { exclude: Vec::new(), hidden: Vec::new(), write_git: false };
        let mut shell = std::process::Command::new(bin.join("sh"));
        // The shell of busybox prefers its own programs to those of the `PATH`.
        let stat = format!("{} -c", bin.join("stat").display());
        let program =
            String::from_utf8(list_program(&rules, &work)).unwrap().replace("stat -c", &stat);
        shell.arg("-c").arg(program);
        let output = shell.current_dir(&work).env("PATH", &bin).output().unwrap();
        match (listed(&output.stdout), expect) {
            (Ok(names), Ok(expect)) => assert_eq!(names, expect),
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (found, _) => panic!("{found:?}: {}", String::from_utf8_lossy(&output.stdout)),
        }
    }

    #[test]
    fn files_may_vanish_while_they_are_listed_without_gnu() {
        check_without_gnu("", Ok(&["a", "b", "sub", "sub/c"]));
        check_without_gnu("rm -f b", Ok(&["a", "sub", "sub/c"]));
        check_without_gnu("rm -rf sub", Ok(&["a", "b"]));
        // Another failure may hide what is there still.
        check_without_gnu("exit 1", Err("cannot be read whole"));
        let once = "test -e ../once || { touch ../once; exit 1; }";
        check_without_gnu(once, Ok(&["a", "b", "sub", "sub/c"]));
    }
}
