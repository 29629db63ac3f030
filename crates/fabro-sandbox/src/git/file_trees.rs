//! The files of a user's work tree before and after stages, as trees in a repository of the run.
//!
//! The user's repository is only read: the index, the objects and the references that are written here belong to a
//! bare repository in the directory of the run.
//!
//! Invariant: that repository has every object in which two of its trees that were recorded one after the other differ,
//! trees and files, of both sides. So it can tell what is different between any two of them, also when `git gc` has
//! removed it from the user's. What all of them share stays in the user's repository: to write a tree, its objects are borrowed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::artifacts::Limits;
use crate::git::changed;
use crate::git::own_objects::{self, OwnObjects};
use crate::git::run::{GitCommand, with_timeout};
use crate::git::snapshot::Snapshot;
use crate::git::stored::{CHANGES, Stored, check_type};
use crate::git::{GitError, TRIES};

/// So many files that are left out are named.
const NAMED: usize = 10;

/// How often the objects of a run that packs them are listed again.
const LISTINGS: usize = 10;

/// The trees before stages, for a driver that continues: a line each.
const BEFORE: &str = "before";

/// The variable with directories of more objects, which are read.
const BORROWED: &str = "GIT_ALTERNATE_OBJECT_DIRECTORIES";

/// The tree that was recorded last, for a driver that continues.
const LAST: &str = "last";

/// Why not all trees were recorded.
const INCOMPLETE: &str = "incomplete";

/// Records the files of a directory of a work tree as git trees.
///
/// Files of more than 10 MiB, and what exceeds 50 MiB or 10,000 files between two trees, stay as they were in the
/// tree before.
pub struct FileTrees {
    /// The bare repository.
    dir: PathBuf,
    /// Marks the processes of the run.
    marker: (String, String),
    /// Patterns of files that are not recorded, as of git, from the top of the work tree.
    exclude: Vec<String>,
    limits: Limits,
    state: Mutex<State>,
}

struct State {
    last: Option<Recorded>,
    /// The directory of the user's objects, as git takes it in a variable.
    borrowed: Vec<u8>,
    own: OwnObjects,
}

/// The files at one moment.
#[derive(Clone, Debug)]
struct Recorded {
    snapshot: Arc<Snapshot>,
    tree: String,
}

/// A tree, and what is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTree {
    /// Its id.
    pub id: String,
    /// The first files that changed and are left out, with the reason, then how many more.
    pub left_out: Vec<String>,
    /// A remark for the user.
    pub warning: Option<String>,
}

impl FileTrees {
    /// Those of a run with this directory. `marker` is a variable that marks the processes of the run; `exclude` has
    /// glob patterns of files that are not recorded.
    pub fn new(run_dir: &Path, marker: (&str, &str), exclude: &[String]) -> Self {
        let dir = run_dir.join(CHANGES);
        let own = OwnObjects::of(&dir);
        Self {
            dir,
            marker: (marker.0.to_owned(), marker.1.to_owned()),
            exclude: exclude.iter().map(|glob| format!(":(exclude,glob){glob}")).collect(),
            limits: Limits::default(),
            state: Mutex::new(State { last: None, borrowed: Vec::new(), own }),
        }
    }

    /// The tree of the files as they were found; the last one where they are the same.
    ///
    /// # Errors
    ///
    /// Git failed, or the repository of the run cannot be written.
    pub async fn record(&self, snapshot: &Arc<Snapshot>) -> Result<FileTree, GitError> {
        let mut state = self.state.lock().await;
        let is_same_place = |it: &&Recorded| it.snapshot.place == snapshot.place;
        if let Some(known) = state.last.as_ref().filter(is_same_place)
            && (Arc::ptr_eq(&known.snapshot, snapshot) || !known.snapshot.differs(snapshot))
        {
            return Ok(FileTree { id: known.tree.clone(), ..FileTree::default() });
        }
        let paths = if let Some(known) = state.last.as_ref().filter(is_same_place) {
            changed::paths(&known.snapshot, snapshot).await?
        } else {
            state.borrowed = with_timeout(self.start(snapshot, &state.own)).await?;
            snapshot.dirty.keys().cloned().collect()
        };
        // What is in the index while this fails is not known.
        let before = state.last.take();
        let left_out = with_timeout(self.update(snapshot, &state.borrowed, paths)).await?;
        let id = match before {
            Some(known) if left_out.is_none() => known.tree,
            _ => self.write_tree(snapshot, &state.borrowed).await?,
        };
        let mut recorded = FileTree { id, left_out: left_out.unwrap_or_default(), warning: None };
        let last = self.last()?;
        if last.as_ref() != Some(&recorded.id) {
            if let Some(last) = last {
                let keep = self.keep_differences(snapshot, &mut state, [&last, &recorded.id]);
                let not_kept = with_timeout(keep).await.or_else(not_kept)?;
                if !not_kept.is_empty() {
                    Stored { dir: &self.dir }.note_gone()?;
                }
                recorded.left_out.extend(not_kept);
                recorded.warning = self.pack(snapshot, &mut state.own).await?;
            }
            self.write_last(&recorded.id)?;
        }
        let snapshot = Arc::clone(snapshot);
        state.last = Some(Recorded { snapshot, tree: recorded.id.clone() });
        Ok(recorded)
    }

    /// The tree that was recorded last, by another driver too.
    fn last(&self) -> Result<Option<String>, GitError> {
        check_files(&self.dir)?;
        match fs::read_to_string(self.dir.join(LAST)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            last => Ok(Some(last?)),
        }
    }

    fn write_last(&self, tree: &str) -> Result<(), GitError> {
        self.replace(LAST, tree)
    }

    /// Writes a file in one step: a driver may be killed. A pipe that took its place is not written to.
    fn replace(&self, name: &str, text: &str) -> Result<(), GitError> {
        check_no_link(&self.dir)?;
        let new = self.dir.join(format!("{name}.new"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => fs::write(&new, text)?,
        }
        fs::rename(&new, self.dir.join(name))?;
        Ok(())
    }

    /// Copies what differs between two trees and is in the user's repository only. Returns the files for which that is not
    /// possible, because git has removed what they were.
    async fn keep_differences(
        &self,
        snapshot: &Snapshot,
        state: &mut State,
        trees: [&str; 2],
    ) -> Result<Vec<String>, GitError> {
        let arguments = ["-r", "-t", "-z", "--raw", "--no-renames", trees[0], trees[1]];
        let borrowed = &state.borrowed;
        let raw = self.own_git(snapshot, "diff-tree", &arguments, None, borrowed).await?;
        let mut missing = state.own.missing(trees, &raw);
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = ["-q", "--window=0", "--compression=1", "objects/pack/pack"];
        let ids = lines(&missing);
        let mut gone = Vec::new();
        match self.own_git(snapshot, "pack-objects", &arguments, Some(&ids), borrowed).await {
            Err(GitError::Failed(..)) => {
                let check = ["--batch-check", "--buffer"];
                let found =
                    self.own_git(snapshot, "cat-file", &check, Some(&ids), borrowed).await?;
                let found = String::from_utf8_lossy(&found);
                for id in found.lines().filter_map(|line| line.strip_suffix(" missing")) {
                    let path = missing.remove(id).unwrap_or_default();
                    let path = String::from_utf8_lossy(&path);
                    gone.push(format!("{path}: git has removed what it was before"));
                }
                let ids = lines(&missing);
                self.own_git(snapshot, "pack-objects", &arguments, Some(&ids), borrowed).await?;
            }
            result => drop(result?),
        }
        state.own.copied(missing.into_keys());
        if gone.len() > NAMED {
            let more = gone.len() - NAMED;
            gone.truncate(NAMED);
            gone.push(format!("{more} more"));
        }
        Ok(gone)
    }

    /// Packs objects when there are many files. That it fails is a remark: they can be read as they are.
    async fn pack(
        &self,
        snapshot: &Snapshot,
        own: &mut OwnObjects,
    ) -> Result<Option<String>, GitError> {
        if !own.is_crowded()? {
            return Ok(None);
        }
        own.packed();
        let arguments = ["-d", "-l", "-n", "-q", "--geometric=2"];
        let packed = with_timeout(self.own_git(snapshot, "repack", &arguments, None, b"")).await;
        Ok(packed.err().map(|error| format!("what stages change is kept as many files: {error}")))
    }

    /// Remembers the tree before a stage, which may be interrupted; `stage` is a name without line breaks.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn remember(&self, stage: &str, tree: &str) -> Result<(), GitError> {
        check_files(&self.dir)?;
        let mut file = fs::File::options().append(true).create(true).open(self.dir.join(BEFORE))?;
        file.write_all(format!("{tree} {stage}\n").as_bytes())?;
        Ok(())
    }

    /// The trees before stages that were remembered, by another driver too.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn remembered(&self) -> Result<BTreeMap<String, String>, GitError> {
        check_files(&self.dir)?;
        let text = match fs::read_to_string(self.dir.join(BEFORE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // A driver may have been killed while it wrote the last line.
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let entries = whole.filter_map(|line| line.split_once(' '));
        Ok(entries.map(|(tree, stage)| (stage.to_owned(), tree.to_owned())).collect())
    }

    /// Notes why the trees of later stages are not recorded, for [`incomplete_file_trees`].
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn note_incomplete(&self, reason: &str) -> Result<(), GitError> {
        fs::create_dir_all(&self.dir)?;
        self.replace(INCOMPLETE, reason)
    }

    /// Lets the trees be read in the repository of another run beside this one, of a sub-workflow.
    ///
    /// # Errors
    ///
    /// Its directory cannot be written.
    pub fn lend_to(&self, run_dir: &Path) -> Result<(), GitError> {
        let dir = run_dir.join(CHANGES);
        if dir.join("HEAD").exists() {
            return Ok(());
        }
        check_files(&self.dir)?;
        let config = fs::read_to_string(self.dir.join("config"))?;
        // Relative to the objects of the other: a store may be moved.
        let run = self.dir.parent().and_then(Path::file_name).unwrap_or_default();
        let mut objects = b"../../../".to_vec();
        objects.extend(run.as_bytes());
        objects.extend(format!("/{CHANGES}/objects").as_bytes());
        make_repository(&dir, &config, Some(&objects))
    }

    /// Makes the repository, and gives it the user's index: what is in there is not read again. Returns where the user's
    /// objects are.
    async fn start(&self, snapshot: &Snapshot, own: &OwnObjects) -> Result<Vec<u8>, GitError> {
        let asked = [
            "--path-format=absolute",
            "--show-object-format",
            "--git-path",
            "index",
            "--git-path",
            "objects",
        ];
        let output = self
            .git_in(&snapshot.place.top, snapshot, "rev-parse", &asked, None, Vec::new())
            .await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut lines = output.split(|byte| *byte == b'\n');
        let (Some(format), Some(index), Some(objects), Some(b""), None) =
            (lines.next(), lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return Err(GitError::UnexpectedOutput("rev-parse", text(&output)));
        };
        let config = match format {
            b"sha1" => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n".to_owned(),
            other => format!(
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectFormat = {}\n",
                text(other)
            ),
        };
        // Once for a driver: what takes the place of an object later makes git reach its timeout.
        Stored { dir: &self.dir }.check_files()?;
        make_repository(&self.dir, &config, None)?;
        let index_file = self.index();
        // What a driver left that was killed.
        own.remove_unfinished()?;
        remove_file(&self.dir.join("index.lock"))?;
        remove_file(&index_file)?;
        match fs::File::open(OsStr::from_bytes(index)) {
            Ok(mut file) => {
                let written = file.metadata()?.modified()?;
                let mut copy = fs::File::create(&index_file)?;
                std::io::copy(&mut file, &mut copy)?;
                // Git compares the contents of files that are not older than the index.
                copy.set_modified(written)?;
            }
            // Nothing was ever added.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(quoted(objects))
    }

    /// Takes these paths of the directory over into the index. `None` when that changed nothing; else what is left out.
    async fn update(
        &self,
        snapshot: &Snapshot,
        borrowed: &[u8],
        paths: BTreeSet<Vec<u8>>,
    ) -> Result<Option<Vec<String>>, GitError> {
        let paths = self.without_excluded(snapshot, borrowed, paths).await?;
        if paths.is_empty() {
            return Ok(None);
        }
        let mut tries = 1;
        loop {
            let selected = select(snapshot, &paths, &self.limits);
            match self.update_selected(snapshot, borrowed, &selected).await {
                // A stage beside may change what was selected.
                Err(GitError::Failed(..)) if tries < TRIES => tries += 1,
                result => return result.map(|()| Some(selected.left_out)),
            }
        }
    }

    async fn update_selected(
        &self,
        snapshot: &Snapshot,
        borrowed: &[u8],
        Selected { add, remove, .. }: &Selected,
    ) -> Result<(), GitError> {
        for (option, paths) in [("--force-remove", remove), ("--replace", add)] {
            if !paths.is_empty() {
                let arguments = ["-z", "--add", "--remove", option, "--stdin"];
                self.git(snapshot, "update-index", &arguments, Some(paths), borrowed).await?;
            }
        }
        Ok(())
    }

    async fn without_excluded(
        &self,
        snapshot: &Snapshot,
        borrowed: &[u8],
        mut paths: BTreeSet<Vec<u8>>,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        if self.exclude.is_empty() || paths.is_empty() {
            return Ok(paths);
        }
        let mut arguments = vec!["-z", "--cached", "--others", "--exclude-standard", "--", "."];
        arguments.extend(self.exclude.iter().map(String::as_str));
        let output = self.git(snapshot, "ls-files", &arguments, None, borrowed).await?;
        let prefix = &*snapshot.place.prefix;
        let included: BTreeSet<&[u8]> =
            output.split(|byte| *byte == 0).filter_map(|path| path.strip_prefix(prefix)).collect();
        paths.retain(|path| included.contains(&**path));
        Ok(paths)
    }

    async fn write_tree(&self, snapshot: &Snapshot, borrowed: &[u8]) -> Result<String, GitError> {
        // In a partial clone not all files are there.
        let arguments = ["--missing-ok"];
        let output = self.git(snapshot, "write-tree", &arguments, None, borrowed).await?;
        Ok(String::from_utf8_lossy(&output).trim().to_owned())
    }

    fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// Runs git at the top of the work tree, with the index of the run; new objects are those of the run.
    async fn git(
        &self,
        snapshot: &Snapshot,
        command: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
        borrowed: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        let index = self.index();
        let objects = self.dir.join("objects");
        let variables = vec![
            ("GIT_INDEX_FILE", index.as_os_str()),
            ("GIT_OBJECT_DIRECTORY", objects.as_os_str()),
            (BORROWED, OsStr::from_bytes(borrowed)),
        ];
        let dir = &snapshot.place.top;
        self.git_in(dir, snapshot, command, arguments, input, variables).await
    }

    /// Runs git in the repository of the run, which needs no work tree.
    async fn own_git(
        &self,
        snapshot: &Snapshot,
        command: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
        borrowed: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        let variables =
            vec![("GIT_DIR", self.dir.as_os_str()), (BORROWED, OsStr::from_bytes(borrowed))];
        self.git_in(&self.dir, snapshot, command, arguments, input, variables).await
    }

    async fn git_in(
        &self,
        dir: &Path,
        snapshot: &Snapshot,
        command: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
        mut variables: Vec<(&str, &OsStr)>,
    ) -> Result<Vec<u8>, GitError> {
        variables.push((self.marker.0.as_str(), OsStr::new(&self.marker.1)));
        let git = GitCommand {
            dir,
            filters: snapshot.place.filters(),
            variables: &variables,
            patterns: command == "ls-files",
        };
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        match git.result_of(command, &arguments, input).await? {
            (Some(0), output, _) => Ok(output),
            (_, _, message) => Err(GitError::Failed(command, message)),
        }
    }
}

/// That git could not copy what differs between two trees: that is left out then.
fn not_kept(error: GitError) -> Result<Vec<String>, GitError> {
    match error {
        GitError::Failed(..) | GitError::TimedOut | GitError::TooMuch(_) => {
            Ok(vec![format!("what was there before cannot be kept: {error}")])
        }
        error => Err(error),
    }
}

/// The ids as git reads them.
fn lines(ids: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    ids.keys().flat_map(|id| [id.as_bytes(), b"\n"].concat()).collect()
}

/// Why not all trees of a run with this directory were recorded; `None` where they were, or none was.
pub fn incomplete_file_trees(run_dir: &Path) -> Option<String> {
    let dir = run_dir.join(CHANGES);
    match check_files(&dir) {
        Ok(()) => match fs::read_to_string(dir.join(INCOMPLETE)) {
            Ok(reason) => Some(reason),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        },
        Err(error) => Some(error.to_string()),
    }
}

/// Checks that nothing else took the place of a file that is read here.
fn check_files(dir: &Path) -> Result<(), GitError> {
    for name in ["HEAD", "config", "index", BEFORE, INCOMPLETE, LAST] {
        check_type(&dir.join(name))?;
    }
    Ok(())
}

/// Refuses a symbolic link in the place of the directory before something is written there: it may lead to the
/// repository of a user.
fn check_no_link(dir: &Path) -> Result<(), GitError> {
    if dir.is_symlink() {
        return Err(GitError::Damaged(format!("{} is a link, not a directory", dir.display())));
    }
    Ok(())
}

/// Gives a run the trees of another, which it is a fork of.
///
/// # Errors
///
/// The directory cannot be written.
pub fn share_file_trees(from: &Path, to: &Path) -> Result<(), GitError> {
    let from = from.join(CHANGES);
    let to = to.join(CHANGES);
    if !from.join("HEAD").exists() {
        return Ok(());
    }
    Stored { dir: &from }.check_files()?;
    let config = fs::read_to_string(from.join("config"))?;
    make_repository(&to, &config, None)?;
    // The run may pack its objects meanwhile: what is gone is in a pack now.
    let mut tries = 0..LISTINGS;
    while let Err(error) = link_all(&from.join("objects"), &to.join("objects")) {
        if error.kind() != ErrorKind::NotFound || tries.next().is_none() {
            return Err(error.into());
        }
    }
    if (Stored { dir: &from }).lacks_some() {
        Stored { dir: &to }.note_gone()?;
    }
    match fs::copy(from.join(LAST), to.join(LAST)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Links all files of a directory and those below it; objects are never changed.
fn link_all(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if own_objects::is_unfinished(&entry.file_name()) {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            link_all(&entry.path(), &target)?;
        } else if entry.file_name() == "alternates" {
            fs::copy(entry.path(), &target)?;
        } else if !target.exists() && fs::hard_link(entry.path(), &target).is_err() {
            // Not every file system has links.
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A bare repository; one that borrows objects when these are given.
fn make_repository(dir: &Path, config: &str, objects: Option<&[u8]>) -> Result<(), GitError> {
    check_no_link(dir)?;
    check_files(dir)?;
    fs::create_dir_all(dir.join("objects/info"))?;
    fs::create_dir_all(dir.join("refs"))?;
    fs::write(dir.join("config"), config)?;
    if let Some(objects) = objects {
        let line = [&*quoted(objects), b"\n"].concat();
        fs::write(dir.join("objects/info/alternates"), line)?;
    }
    // Without it, it is no repository.
    fs::write(dir.join("HEAD"), "ref: refs/heads/none\n")?;
    Ok(())
}

/// A path as git reads it in lists of directories, with any bytes.
fn quoted(path: &[u8]) -> Vec<u8> {
    let mut quoted = b"\"".to_vec();
    for byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}

/// What is to be done with paths, each list as git reads it.
#[derive(Default)]
struct Selected {
    add: Vec<u8>,
    remove: Vec<u8>,
    left_out: Vec<String>,
}

fn select(snapshot: &Snapshot, paths: &BTreeSet<Vec<u8>>, limits: &Limits) -> Selected {
    let mut selected = Selected::default();
    let mut bytes_left = limits.total;
    let mut files_left = limits.files;
    let mut left_out = 0;
    let dir = &snapshot.place.dir;
    for path in paths {
        let found = found(dir, path);
        let state = snapshot.dirty.get(path);
        let reason = if state.is_some_and(|state| !state.is_path()) {
            Some("it is a repository".to_owned())
        } else {
            let limits = Limits { total: bytes_left, files: files_left, ..limits.clone() };
            found
                .as_ref()
                .and_then(|found| reason(found, &dir.join(OsStr::from_bytes(path)), &limits))
        };
        if let Some(reason) = reason {
            left_out += 1;
            if left_out <= NAMED {
                let path = String::from_utf8_lossy(path);
                selected.left_out.push(format!("{path}: {reason}"));
            }
            continue;
        }
        let list = match found {
            Some(found) => {
                bytes_left -= found.len();
                files_left -= 1;
                &mut selected.add
            }
            None => &mut selected.remove,
        };
        list.extend([&*snapshot.place.prefix, path, b"\0"].concat());
    }
    if left_out > NAMED {
        selected.left_out.push(format!("{} more", left_out - NAMED));
    }
    selected
}

/// The file or link at a path below a directory; what is reached through a link is not there for git.
fn found(dir: &Path, path: &[u8]) -> Option<fs::Metadata> {
    let path = Path::new(OsStr::from_bytes(path));
    let is_link = |above: &Path| dir.join(above).is_symlink();
    if path.ancestors().skip(1).any(|above| !above.as_os_str().is_empty() && is_link(above)) {
        return None;
    }
    let found = dir.join(path).symlink_metadata().ok()?;
    (found.is_file() || found.is_symlink()).then_some(found)
}

/// Why a file is left out.
fn reason(found: &fs::Metadata, file: &Path, limits: &Limits) -> Option<String> {
    let size = found.len();
    if size > limits.file {
        return Some(format!("it has {size} bytes, more than {}", limits.file));
    }
    if size > limits.total || limits.files == 0 {
        return Some("too much has changed at once".to_owned());
    }
    let opened = if found.is_file() { fs::File::open(file).err() } else { None };
    opened.map(|error| format!("it cannot be read: {error}"))
}

fn remove_file(file: &Path) -> Result<(), GitError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
