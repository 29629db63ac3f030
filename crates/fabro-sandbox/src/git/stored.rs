//! Damage in the repositories of a run's trees.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read as _, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::own_objects::{is_unfinished, needed};
use crate::git::run::GitCommand;

/// The folder of a run's directory with the repository of its trees.
pub const CHANGES: &str = "changes";

/// So many files of a stage are named.
const NAMED: usize = 10;

/// After so many damaged objects, the others are not read: each ends a process of git.
const DAMAGED: usize = 1_000;

/// Its presence says that objects were gone from the user's repository before they could be copied.
const GONE: &str = "gone";

/// A bare repository with the trees of a run.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) dir: &'a Path,
}

/// Two trees between which a stage changed files.
#[derive(Clone, Copy, Debug)]
pub struct TreePair<'a> {
    /// The stage.
    pub stage: &'a str,
    /// The tree before it.
    pub from: &'a str,
    /// The tree after it.
    pub to: &'a str,
}

/// Reads all that is stored of the trees of a run with this directory, which are those of these stages, and compares
/// it with the ids of the objects and the checksums of the packs. Returns what is damaged or missing; objects that git
/// had removed from the user's repository before they were copied are not.
pub async fn check_file_trees(run_dir: &Path, stages: &[TreePair<'_>]) -> Vec<String> {
    let dir = &run_dir.join(CHANGES);
    if stages.is_empty() && !dir.exists() {
        return Vec::new();
    }
    match (Stored { dir }).check(stages).await {
        Ok(problems) => problems,
        Err(error) => vec![format!("{}: {error}", dir.display())],
    }
}

impl Stored<'_> {
    async fn check(self, stages: &[TreePair<'_>]) -> Result<Vec<String>, GitError> {
        self.check_files()?;
        if !self.dir.join("HEAD").exists() {
            // Git refused the repository at the start of the run, so no trees were stored and no stage names one.
            if stages.is_empty() {
                return Ok(Vec::new());
            }
            return Err(GitError::Damaged("what stages changed is lost".to_owned()));
        }
        let mut problems = Vec::new();
        for file in self.packs(&["idx", "pack", "rev"])? {
            problems.extend(check_sum(&file)?);
        }
        // Each object, with the files of stages that it is a content of.
        let mut used: BTreeMap<String, BTreeSet<String>> =
            self.loose()?.into_iter().map(|id| (id, BTreeSet::new())).collect();
        for TreePair { stage, from, to } in stages {
            match self.raw(from, to).await {
                Ok(raw) => {
                    for (id, path) in needed(&raw) {
                        let file = format!("stage {stage}, {}", path.escape_ascii());
                        used.entry(id).or_default().insert(file);
                    }
                }
                // A tree that git had removed.
                Err(GitError::Failed(..)) if self.lacks_some() => {}
                Err(error) => problems.push(format!("stage {stage}: {error}")),
            }
        }
        for (id, is_missing) in self.unread(used.keys()).await? {
            if is_missing && self.is_gone(&id) {
                continue;
            }
            let files = &used[&id];
            let object = format!("object {id} in {} is damaged or lost", self.dir.display());
            if files.is_empty() {
                problems.push(object);
                continue;
            }
            let more = files.len().saturating_sub(NAMED);
            let mut shown: Vec<&str> = files.iter().take(NAMED).map(String::as_str).collect();
            let more = format!("{more} more");
            shown.extend((files.len() > NAMED).then_some(&*more));
            problems.push(format!("{}: {object}", shown.join("; ")));
        }
        Ok(problems)
    }

    /// What `git diff-tree` says of two trees, for [`needed`].
    pub(super) async fn raw(self, from: &str, to: &str) -> Result<Vec<u8>, GitError> {
        let arguments = ["-r", "-z", "--raw", "--no-renames", from, to].map(OsStr::new);
        let filters = &Filters::NOT_NEEDED;
        let variables: &[_] = &[("GIT_DIR", self.dir.as_os_str())];
        let git = GitCommand { dir: self.dir, filters, variables, patterns: true };
        git.output("diff-tree", &arguments).await
    }

    /// An error for what git cannot read, and why.
    pub(super) fn failed(self, reason: String) -> GitError {
        if self.lacks_some() {
            return GitError::Failed("diff-tree", reason);
        }
        GitError::Damaged(format!("what is stored in {} is damaged: {reason}", self.dir.display()))
    }

    /// Whether git had removed an object, which is missing, before it was copied.
    pub(super) fn is_gone(self, id: &str) -> bool {
        let is_file = || {
            let file =
                id.split_at_checked(2).map(|(a, b)| self.dir.join("objects").join(a).join(b));
            file.is_some_and(|file| file.exists())
        };
        self.lacks_some() && !is_file()
    }

    /// Which of these objects cannot be read or are not what their ids say; `true` for those that git does not find.
    pub(super) async fn unread(
        self,
        ids: impl Iterator<Item = &String>,
    ) -> Result<BTreeMap<String, bool>, GitError> {
        let mut left: Vec<&String> = ids.collect();
        let mut found = BTreeMap::new();
        // Where git cannot read the repository at all, no object is to blame.
        let filters = &Filters::NOT_NEEDED;
        let variables: &[_] = &[("GIT_DIR", self.dir.as_os_str())];
        let git = GitCommand { dir: self.dir, filters, variables, patterns: true };
        git.output("rev-parse", &[OsStr::new("--git-dir")]).await?;
        while !left.is_empty() && found.len() < DAMAGED {
            let mut objects = Objects { ids: &left, read: 0, bytes: Vec::new(), bad: Vec::new() };
            let input: Vec<u8> =
                left.iter().flat_map(|id| [id.as_bytes(), b"\n"].concat()).collect();
            let mut sink = |bytes: &[u8]| objects.take(bytes);
            let arguments = [OsStr::new("--batch")];
            git.stream("cat-file", &arguments, Some(&input), u64::MAX, &mut sink).await?;
            let Objects { read, bad, .. } = objects;
            found.extend(bad);
            // Git ends at an object that it cannot read.
            found.extend(left.get(read).map(|id| ((*id).clone(), false)));
            left.drain(..left.len().min(read + 1));
        }
        Ok(found)
    }

    /// Notes that objects could not be copied.
    pub(super) fn note_gone(self) -> std::io::Result<()> {
        fs::write(self.dir.join(GONE), "")
    }

    /// Whether objects could not be copied, of this run or of the one that it is a sub-workflow of.
    pub(super) fn lacks_some(self) -> bool {
        let dirs = self.object_dirs().unwrap_or_default();
        dirs.iter().any(|objects| objects.with_file_name(GONE).exists())
    }

    /// The ids of the objects that are files.
    fn loose(self) -> std::io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for folder in entries(&self.dir.join("objects"))? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.len() != 2 {
                continue;
            }
            for file in entries(&folder)? {
                let rest = file.file_name().unwrap_or_default().to_string_lossy();
                let id = format!("{name}{rest}");
                ids.extend(id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(id));
            }
        }
        Ok(ids)
    }

    /// The files of packs with one of these extensions.
    fn packs(self, extensions: &[&str]) -> Result<Vec<PathBuf>, GitError> {
        let mut files = Vec::new();
        for objects in self.object_dirs()? {
            files.extend(entries(&objects.join("pack"))?);
        }
        files.retain(|file| {
            let name = file.file_name().unwrap_or_default();
            let extension = file.extension().unwrap_or_default();
            !is_unfinished(name) && extensions.iter().any(|it| extension == *it)
        });
        Ok(files)
    }

    /// The directories of its objects: its own, and that of the run that it is a sub-workflow of.
    fn object_dirs(self) -> Result<Vec<PathBuf>, GitError> {
        let own = self.dir.join("objects");
        let alternates = own.join("info/alternates");
        check_type(&alternates)?;
        let lines = match fs::read(&alternates) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            lines => lines?,
        };
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let borrowed = lines.map(|line| {
            let quoted = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\""));
            own.join(OsStr::from_bytes(quoted.unwrap_or(line)))
        });
        Ok(std::iter::once(own.clone()).chain(borrowed).collect())
    }

    /// Checks that nothing else took the place of a file: a pipe would block, also in git.
    pub(super) fn check_files(self) -> Result<(), GitError> {
        check_below(self.dir)?;
        // The first one is its own.
        for objects in self.object_dirs()?.iter().skip(1) {
            check_below(objects)?;
        }
        Ok(())
    }

    /// Checks the lists of the packs, which decide what git reads where; git itself does not.
    pub(super) fn check_indexes(self) -> Result<(), GitError> {
        for file in self.packs(&["idx"])? {
            if let Some(problem) = check_sum(&file)? {
                return Err(GitError::Damaged(problem));
            }
        }
        Ok(())
    }
}

/// The objects that `git cat-file --batch` writes, in the order of their ids.
struct Objects<'a> {
    ids: &'a [&'a String],
    /// How many were read.
    read: usize,
    /// What belongs to the next one.
    bytes: Vec<u8>,
    /// Those that are not there (`true`), or are not what their ids say.
    bad: Vec<(String, bool)>,
}

impl Objects<'_> {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let mut done = 0;
        while let Some(id) = self.ids.get(self.read) {
            let rest = &self.bytes[done..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let line = String::from_utf8_lossy(&rest[..end]);
            // An id, a kind and a size; or an id and `missing`.
            let header = line.split_once(' ').map_or("", |(_, header)| header);
            let size = header.split_once(' ').and_then(|(_, size)| size.parse::<usize>().ok());
            let Some(size) = size else {
                self.bad.push(((*id).clone(), true));
                self.read += 1;
                done += end + 1;
                continue;
            };
            let Some(content) = rest.get(end + 1..end + 1 + size) else { break };
            // A line end follows.
            if rest.len() == end + 1 + size {
                break;
            }
            let found = hash(id.len(), &[header.as_bytes(), b"\0", content]);
            if hex(&found) != **id {
                self.bad.push(((*id).clone(), false));
            }
            self.read += 1;
            done += end + 1 + size + 1;
        }
        self.bytes.drain(..done);
    }
}

/// The hash of these bytes, by the algorithm whose hashes have so many hexadecimal digits.
fn hash(digits: usize, pieces: &[&[u8]]) -> Vec<u8> {
    fn of<D: Digest>(pieces: &[&[u8]]) -> Vec<u8> {
        let digest = pieces.iter().fold(D::new(), D::chain_update);
        digest.finalize().to_vec()
    }
    if digits == 40 { of::<Sha1>(pieces) } else { of::<Sha256>(pieces) }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// What is wrong with a file of a pack, which ends with the hash of what is before.
fn check_sum(file: &Path) -> std::io::Result<Option<String>> {
    let mut opened = match fs::File::open(file) {
        // Its objects were packed together with others.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let is_whole = ends_with_hash::<Sha1>(&mut opened)? || ends_with_hash::<Sha256>(&mut opened)?;
    Ok((!is_whole).then(|| format!("{} is damaged: its checksum does not match", file.display())))
}

fn ends_with_hash<D: Digest>(file: &mut fs::File) -> std::io::Result<bool> {
    let size = <D as Digest>::output_size();
    let Some(length) = file.metadata()?.len().checked_sub(size as u64) else { return Ok(false) };
    file.rewind()?;
    let mut content = file.take(length);
    let mut digest = D::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match content.read(&mut piece)? {
            0 => break,
            count => digest.update(&piece[..count]),
        }
    }
    let mut sum = Vec::new();
    file.take(size as u64).read_to_end(&mut sum)?;
    Ok(*digest.finalize() == *sum)
}

/// The entries of a directory, which may not be there.
fn entries(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Checks that a file, if it is there, is a regular one.
pub(super) fn check_type(file: &Path) -> Result<(), GitError> {
    match fs::metadata(file) {
        Ok(about) if !about.is_file() => {
            Err(GitError::Damaged(format!("{} is not a regular file", file.display())))
        }
        _ => Ok(()),
    }
}

/// Checks the types of the files of a directory, and of those below it.
fn check_below(dir: &Path) -> Result<(), GitError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            check_below(&entry.path())?;
        } else if !kind.is_file() {
            check_type(&entry.path())?;
        }
    }
    Ok(())
}
