//! The linked worktree of a run.
//!
//! Its files are apart from those of the user: nothing here changes the user's work tree, index, HEAD,
//! stash or configuration. A process that is killed at any moment leaves a whole repository, and
//! [`Worktree::restore`] continues from it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use crate::git::GitError;
use crate::git::configuration;
use crate::git::filters::Filters;
use crate::git::run::{GitCommand, OPTIONAL_LOCKS, git};
use crate::git::snapshot::{Location, Snapshot};
use crate::git::tries::{LOCK, LOCK_PAUSE, Tries};

/// The repository that a directory is in, before a worktree is made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The top of the work tree.
    pub top: PathBuf,
    /// The path from there to the directory; empty at the top.
    pub prefix: PathBuf,
    /// The current commit; `None` before the first one.
    pub head: Option<String>,
    /// The files that differ from it, sorted, with bytes that are not UTF-8 replaced.
    pub dirty: Vec<String>,
    /// It has submodules, or files that a filter such as Git LFS would fill in.
    pub is_partial: bool,
    /// Why it can have no worktree of a run.
    pub unsupported: Option<String>,
}

impl Repository {
    /// The repository of a directory. `None` outside of a work tree, in a bare repository, and where there is
    /// no git.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn find(dir: &Path) -> Result<Option<Self>, GitError> {
        let Some(snapshot) = Snapshot::take(dir).await? else { return Ok(None) };
        let Location { top, prefix, .. } = &snapshot.place;
        let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
        let common = common_dir(top).await?;
        let unsupported = common.join("reftable").is_dir();
        let attributes = fs::read_to_string(top.join(".gitattributes")).unwrap_or_default();
        Ok(Some(Self {
            prefix: PathBuf::from(OsStr::from_bytes(prefix)),
            top: top.clone(),
            head: snapshot.head.clone(),
            dirty: dirty_paths(&snapshot),
            is_partial: top.join(".gitmodules").exists() || attributes.contains("filter="),
            unsupported: unsupported.then(|| "it keeps its references as a reftable".to_owned()),
        }))
    }
}

fn dirty_paths(snapshot: &Snapshot) -> Vec<String> {
    let paths = snapshot.dirty.iter().filter(|(_, state)| state.is_path());
    paths.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect()
}

/// Whose commits they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

/// What a commit of a stage says.
#[derive(Clone, Debug)]
pub struct StageCommit {
    /// The first line.
    pub subject: String,
    /// Trailers, a line each. One of a commit before with the same lines is replaced, when `replaces`.
    pub trailers: String,
    /// The stage may have a commit already: of an attempt before, or of a driver that died.
    pub replaces: bool,
}

/// What [`Worktree::restore`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The worktree was not there, or not whole.
    pub is_new: bool,
    /// Where the files are kept that were there before, and are no longer: a reference.
    pub kept: Option<String>,
}

/// The linked worktree of a run.
pub struct Worktree {
    pub(super) dir: PathBuf,
    pub(super) common: PathBuf,
    /// The run.
    name: String,
    /// The folder of the repository's `worktrees` that knows of it.
    link: String,
    pub(super) branch: String,
    author: Author,
    /// Patterns of files that are not committed.
    pub(super) exclude: Vec<OsString>,
    marker: (String, OsString),
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) filters: Option<Filters>,
    /// The index and the commit, when they were last known to agree with the files.
    pub(super) last: Option<(IndexStamp, String)>,
    /// A commit, and what the worktree was found to be when that was made: what differs from the commit since, and
    /// was the same then, is excluded.
    pub(super) left: Option<(String, Box<Snapshot>)>,
    /// A commit and its tree.
    pub(super) tree: Option<(String, String)>,
}

/// What changes when the index does.
pub(super) type IndexStamp = Option<(u64, u64, i64, i64)>;

impl Worktree {
    /// The worktree of a run at `dir`, of the repository that `of` is in. Nothing is made yet. `marker` is
    /// a variable that marks the processes of the run.
    ///
    /// # Errors
    ///
    /// The repository is gone.
    pub async fn new(
        of: &Path,
        dir: &Path,
        branch: &str,
        author: Author,
        exclude: &[String],
        marker: (&str, &str),
    ) -> Result<Self, GitError> {
        let exclude = exclude.iter().map(|glob| format!(":(exclude,glob){glob}").into());
        Ok(Self {
            dir: dir.components().collect(),
            common: common_dir(of).await?,
            name: marker.1.to_owned(),
            link: marker.1.to_owned(),
            branch: format!("refs/heads/{branch}"),
            author,
            exclude: exclude.collect(),
            marker: (marker.0.to_owned(), marker.1.into()),
            state: Mutex::default(),
        })
    }

    /// The worktree of a part of the run, which has several: `link` is a name that no other worktree of
    /// the repository has.
    #[must_use]
    pub fn linked_as(self, link: String) -> Self {
        Self { link, ..self }
    }

    /// Its directory.
    pub fn top(&self) -> &Path {
        &self.dir
    }

    /// Whether the worktree is there.
    pub fn exists(&self) -> bool {
        // An empty one is what a driver left that was killed while it wrote the file.
        let link = self.dir.join(".git").symlink_metadata();
        link.is_ok_and(|it| it.is_file() && it.len() > 0) && self.git_dir().join("HEAD").is_file()
    }

    async fn has_branch(&self) -> Result<bool, GitError> {
        Ok(self.commit_of(&self.common, &self.branch).await?.is_some())
    }

    /// The branch that stands in the way of its branch: itself, or one whose name is a folder of its
    /// name.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn branch_in_the_way(&self) -> Result<Option<String>, GitError> {
        let heads = "refs/heads/";
        for (end, _) in self.branch.match_indices('/').chain([(self.branch.len(), "")]) {
            let Some(branch) = self.branch.get(heads.len()..end) else { continue };
            let reference = format!("{heads}{branch}");
            if !branch.is_empty() && self.commit_of(&self.common, &reference).await?.is_some() {
                return Ok(Some(branch.to_owned()));
            }
        }
        Ok(None)
    }

    /// Makes the branch at a commit, where there is none.
    ///
    /// # Errors
    ///
    /// The commit is gone, or git failed.
    pub async fn make_branch(&self, commit: &str) -> Result<(), GitError> {
        if self.has_branch().await? {
            return Ok(());
        }
        self.run(&self.common, "update-ref", &[&self.branch, commit]).await?;
        Ok(())
    }

    /// Removes the branch again, if it is at this commit: the run is not there after all.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn remove_branch(&self, commit: &str) -> Result<(), GitError> {
        self.run(&self.common, "update-ref", &["-d", &self.branch, commit]).await?;
        Ok(())
    }

    /// Makes the worktree where it is missing, and gives the files the state of a commit; with
    /// `keep_files` those of a worktree that is whole stay as they are. What would be lost is kept under a
    /// reference of its own. Files that git ignores, and excluded ones, stay.
    ///
    /// # Errors
    ///
    /// The commit is gone, or the files cannot be written.
    pub async fn restore(&self, commit: &str, keep_files: bool) -> Result<Restored, GitError> {
        let mut state = self.state.lock().await;
        state.last = None;
        state.left = None;
        self.check_dir()?;
        self.remove_locks();
        self.make_branch(commit).await?;
        let mut restored = Restored { is_new: !self.exists(), kept: None };
        if !restored.is_new {
            self.write_link()?;
        }
        if keep_files && !restored.is_new {
            return Ok(restored);
        }
        let is_fresh = !self.dir.exists();
        let mut tries = Tries::default();
        loop {
            match self.try_restore(&mut state, commit, is_fresh, &mut restored.kept).await {
                Err(error) if tries.are_left(&error).await => {}
                result => break result?,
            }
        }
        Ok(restored)
    }

    async fn try_restore(
        &self,
        state: &mut State,
        commit: &str,
        is_fresh: bool,
        kept: &mut Option<String>,
    ) -> Result<(), GitError> {
        if !self.exists() {
            self.link()?;
        }
        if !is_fresh {
            *kept = kept.take().or(self.keep(state, commit).await?);
        }
        self.run(&self.dir, "symbolic-ref", &["HEAD", &self.branch]).await?;
        self.with_filters(state, "reset", &["--hard", "--quiet", commit]).await?;
        Ok(())
    }

    /// The commit that has the files, as far as it is known: that of the last [`commit`](Self::commit) or
    /// [`known`](Self::known).
    pub async fn last(&self) -> Option<String> {
        self.state.lock().await.last.as_ref().map(|(_, commit)| commit.clone())
    }

    /// The one of these commits of the worktree that all others are in the past of.
    ///
    /// # Errors
    ///
    /// One of them is gone, or there is none.
    pub async fn newest(&self, commits: &BTreeSet<Arc<str>>) -> Result<String, GitError> {
        let mut arguments = vec!["--independent"];
        arguments.extend(commits.iter().map(|commit| &**commit));
        match commits.first() {
            Some(only) if commits.len() == 1 => return Ok(only.to_string()),
            _ => {}
        }
        let found = text(&self.run(&self.common, "merge-base", &arguments).await?);
        // Several, where commits were undone: what the others have is still in the files.
        Ok(found.lines().next().unwrap_or_default().to_owned())
    }

    /// Tells [`commit`](Self::commit) which commit the log has last.
    pub async fn known(&self, commit: &str) {
        self.state.lock().await.last = Some((None, commit.to_owned()));
    }

    /// Keeps the files and commits that differ from `commit`, and are not part of its past, under a
    /// reference.
    async fn keep(&self, state: &mut State, commit: &str) -> Result<Option<String>, GitError> {
        self.add_all(state).await?;
        let tree = self.write_tree(state).await?;
        let head = self.commit_of(&self.dir, "HEAD").await?;
        let Some(head) = head.or(self.commit_of(&self.common, &self.branch).await?) else {
            return Ok(None);
        };
        let trees = [format!("{head}^{{tree}}"), format!("{commit}^{{tree}}")];
        let trees = text(&self.run(&self.dir, "rev-parse", &[&trees[0], &trees[1]]).await?);
        let (of_head, of_commit) = trees.split_once('\n').unwrap_or((&trees, &trees));
        let is_past = ["--is-ancestor", &head, commit];
        let is_past = self.run(&self.dir, "merge-base", &is_past).await.is_ok();
        if tree == of_commit || (tree == of_head && is_past) {
            return Ok(None);
        }
        let kept = if tree == of_head {
            head
        } else {
            let about = StageCommit {
                subject: format!("fabro({}): files before they were restored", self.name),
                trailers: format!("Fabro-Run: {}", self.name),
                replaces: false,
            };
            self.commit_tree(&tree, &[head], &about).await?
        };
        let short = kept.get(..12).unwrap_or(&kept);
        let reference = format!("refs/fabro/kept/{}/{short}", self.name);
        self.run(&self.dir, "update-ref", &[&reference, &kept]).await?;
        Ok(Some(reference))
    }

    /// Links the directory with the repository. By hand, since `git worktree add` has moments at which
    /// the repository is not whole.
    fn link(&self) -> Result<(), GitError> {
        let made = self.common.join(format!("fabro-{}.new", self.link));
        let git_dir = self.git_dir();
        remove_dir(&made)?;
        remove_dir(&git_dir)?;
        fs::create_dir_all(&made)?;
        fs::create_dir_all(self.common.join("worktrees"))?;
        fs::create_dir_all(&self.dir)?;
        fs::write(made.join("HEAD"), format!("ref: {}\n", self.branch))?;
        fs::write(made.join("commondir"), "../..\n")?;
        fs::write(made.join("gitdir"), line("", &self.dir.join(".git")))?;
        // `git worktree prune` removes what names a worktree that is not there.
        self.write_link()?;
        fs::rename(&made, &git_dir)?;
        Ok(())
    }

    /// Writes the file that leads from the worktree to the repository, where a stage removed it; without
    /// it, git commands of stages would find the repository of the user above. What a stage made in its
    /// place is kept beside the worktree: the path.
    pub(super) fn write_link(&self) -> Result<Option<PathBuf>, GitError> {
        self.check_dir()?;
        if self.is_linked() {
            return Ok(None);
        }
        let link = self.dir.join(".git");
        let text = line("gitdir: ", &self.git_dir());
        // A driver of an earlier version may have been killed while it wrote the file.
        let is_begun = fs::read(&link).is_ok_and(|found| text.starts_with(&found));
        let mut kept = None;
        if !is_begun && link.symlink_metadata().is_ok() {
            let free = |number: &u32| self.kept_link(*number).symlink_metadata().is_err();
            let place = (1..=u32::MAX).find(free).map_or(link.clone(), |it| self.kept_link(it));
            fs::rename(&link, &place)?;
            kept = Some(place);
        }
        // In one step: git refuses a directory with half of the file.
        let new = self.beside("-new-git");
        fs::write(&new, text)?;
        fs::rename(&new, &link)?;
        Ok(kept)
    }

    /// Refuses a symbolic link in the place of the directory: what it leads to belongs to others.
    fn check_dir(&self) -> Result<(), GitError> {
        match self.dir.symlink_metadata() {
            Ok(about) if about.is_dir() => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(_) => Err(GitError::NotADirectory(self.dir.clone())),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn is_linked(&self) -> bool {
        let found = fs::read(self.dir.join(".git"));
        found.is_ok_and(|found| found == line("gitdir: ", &self.git_dir()))
    }

    fn kept_link(&self, number: u32) -> PathBuf {
        self.beside(&format!("-replaced-git-{number}"))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.dir.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        self.common.join("worktrees").join(&self.link)
    }

    pub(super) fn index_stamp(&self) -> IndexStamp {
        let found = self.git_dir().join("index").metadata().ok()?;
        Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }

    /// Removes the locks that git commands of a dead driver left.
    fn remove_locks(&self) {
        let own = ["index.lock", "HEAD.lock"].map(|name| self.git_dir().join(name));
        let of_branch = self.common.join(format!("{}.lock", self.branch));
        for lock in own.iter().chain([&of_branch]) {
            // Most often there is none; one that stays is reported by the next command.
            let _ = fs::remove_file(lock);
        }
    }

    /// Waits until the index is free. Removes a lock that has stayed for [`LOCK`].
    pub(super) async fn wait_for_lock(&self) {
        let lock = self.git_dir().join("index.lock");
        let begun = Instant::now();
        while let Ok(about) = lock.symlink_metadata() {
            // The clock may have been set back since.
            let age = about.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            if age.max(begun.elapsed()) >= LOCK {
                // One that stays is reported by the next command.
                let _ = fs::remove_file(&lock);
                return;
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }

    pub(super) async fn commit_of(
        &self,
        dir: &Path,
        name: &str,
    ) -> Result<Option<String>, GitError> {
        let name = format!("{name}^{{commit}}");
        match self.run(dir, "rev-parse", &["--verify", "--quiet", &name]).await {
            Ok(output) => Ok(Some(text(&output))),
            Err(GitError::Failed(_, message)) if message.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn with_filters(
        &self,
        state: &mut State,
        command: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        match self.result_with_filters(state, command, arguments).await? {
            (Some(0), output, _) => Ok(output),
            (_, _, message) => Err(GitError::Failed(command, message)),
        }
    }

    pub(super) async fn result_with_filters(
        &self,
        state: &mut State,
        command: &'static str,
        arguments: &[&str],
    ) -> Result<(Option<i32>, Vec<u8>, String), GitError> {
        let filters = self.filters(state).await?;
        let result = self.git_result(&self.dir, &filters, command, arguments, None).await;
        state.filters = Some(filters);
        result
    }

    /// Updates the index for these paths, as git reads them.
    pub(super) async fn update_index(
        &self,
        state: &mut State,
        arguments: &[&str],
        paths: &[u8],
    ) -> Result<(), GitError> {
        let filters = self.filters(state).await?;
        let command = "update-index";
        let result = self.git_result(&self.dir, &filters, command, arguments, Some(paths)).await;
        state.filters = Some(filters);
        match result? {
            (Some(0), ..) => Ok(()),
            (_, _, message) => Err(GitError::Failed(command, message)),
        }
    }

    async fn filters(&self, state: &mut State) -> Result<Filters, GitError> {
        match state.filters.take().filter(Filters::hold) {
            Some(filters) => Ok(filters),
            None => configuration::filters(&self.dir, &self.dir).await,
        }
    }

    pub(super) async fn run(
        &self,
        dir: &Path,
        command: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        self.git(dir, &Filters::NOT_NEEDED, command, arguments).await
    }

    async fn git(
        &self,
        dir: &Path,
        filters: &Filters,
        command: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        match self.git_result(dir, filters, command, arguments, None).await? {
            (Some(0), output, _) => Ok(output),
            (_, _, message) => Err(GitError::Failed(command, message)),
        }
    }

    async fn git_result(
        &self,
        dir: &Path,
        filters: &Filters,
        command: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
    ) -> Result<(Option<i32>, Vec<u8>, String), GitError> {
        let Author { name, email } = &self.author;
        let mut variables = vec![
            (self.marker.0.as_str(), self.marker.1.as_os_str()),
            ("GIT_AUTHOR_NAME", OsStr::new(name)),
            ("GIT_AUTHOR_EMAIL", OsStr::new(email)),
            ("GIT_COMMITTER_NAME", OsStr::new(name)),
            ("GIT_COMMITTER_EMAIL", OsStr::new(email)),
            (OPTIONAL_LOCKS.0, OsStr::new(OPTIONAL_LOCKS.1)),
        ];
        // Never found by git: without a worktree it would find the repository of the user above.
        let git_dir = self.git_dir();
        if dir == self.common {
            variables.push(("GIT_DIR", self.common.as_os_str()));
        } else {
            variables.push(("GIT_DIR", git_dir.as_os_str()));
            variables.push(("GIT_WORK_TREE", self.dir.as_os_str()));
        }
        let git = GitCommand { dir, filters, variables: &variables, patterns: true };
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let begun = Instant::now();
        loop {
            let is_last = begun.elapsed() >= LOCK;
            let result = git.result_of(command, &arguments, input).await?;
            if is_last || !is_locked(&result) {
                return Ok(result);
            }
            // Git waits for the locks of references itself, but at most 0.1 s, and not for that of an index.
            tokio::time::sleep(LOCK_PAUSE).await;
            self.wait_for_lock().await;
        }
    }
}

/// Whether a git command has done nothing, since another one held a lock: of a stage beside, or the `git status` after it.
fn is_locked((code, _, message): &(Option<i32>, Vec<u8>, String)) -> bool {
    *code != Some(0) && message.contains(".lock': File exists")
}

/// The directory that the worktrees of a repository share.
pub(super) async fn common_dir(dir: &Path) -> Result<PathBuf, GitError> {
    let asked = ["--path-format=absolute", "--git-common-dir"];
    let mut output = git(dir, &Filters::NOT_NEEDED, "rev-parse", &asked, None).await?;
    output.truncate(output.strip_suffix(b"\n").unwrap_or(&output).len());
    Ok(PathBuf::from(OsString::from_vec(output)))
}

/// A line with a path.
pub(super) fn line(before: &str, path: &Path) -> Vec<u8> {
    [before.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
}

pub(super) fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim().to_owned()
}

fn remove_dir(dir: &Path) -> Result<(), GitError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
