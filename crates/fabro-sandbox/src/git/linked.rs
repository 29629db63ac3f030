//! What a repository knows of the worktrees of a run, to remove it with the run.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::run::GitCommand;
use crate::git::worktree::{common_dir, line};

/// What a repository knows of the linked worktrees below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedWorktrees {
    common: PathBuf,
    links: Vec<PathBuf>,
}

impl LinkedWorktrees {
    /// Those below `dir`, of a repository with a worktree in `first`, or else of the one that `repository` is in.
    ///
    /// # Errors
    ///
    /// The repository is gone, or git failed.
    pub async fn below(dir: &Path, first: &Path, repository: &Path) -> Result<Self, GitError> {
        let common = match linked_git_dir(first).as_deref().and_then(Path::parent) {
            Some(worktrees) => worktrees.parent().unwrap_or(worktrees).to_owned(),
            None => common_dir(repository).await?,
        };
        let mut links = Vec::new();
        for entry in fs::read_dir(common.join("worktrees")).into_iter().flatten() {
            let link = entry?.path();
            let Ok(there) = fs::read(link.join("gitdir")) else { continue };
            if Path::new(OsStr::from_bytes(there.trim_ascii_end())).starts_with(dir) {
                links.push(link);
            }
        }
        Ok(Self { common, links })
    }

    /// Whether a branch is merged into a local or remote-tracking branch that is not a run's. `None` if the branch does
    /// not exist.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn is_merged(&self, branch: &str) -> Result<Option<bool>, GitError> {
        let reference = format!("refs/heads/{branch}");
        let name = "--format=%(refname)";
        if self.output("for-each-ref", &[name, &reference]).await?.is_empty() {
            return Ok(None);
        }
        let arguments = ["--contains", &reference, name, "refs/heads", "refs/remotes"];
        let others = self.output("for-each-ref", &arguments).await?;
        let others = String::from_utf8_lossy(&others);
        Ok(Some(others.lines().any(|it| !it.starts_with("refs/heads/fabro/"))))
    }

    /// Removes the directories of the worktrees, if they are below `dir`.
    ///
    /// # Errors
    ///
    /// A directory cannot be removed.
    pub fn remove_directories(&self, dir: &Path) -> Result<(), GitError> {
        for link in &self.links {
            let place = fs::read(link.join("gitdir"))?;
            let place = PathBuf::from(OsStr::from_bytes(place.trim_ascii_end()));
            let Some(top) = place.parent() else { continue };
            // The link is a file of the repository and may contain any path.
            let is_plain = top.components().all(|part| part != Component::ParentDir);
            if is_plain && top.starts_with(dir) && top.exists() {
                fs::remove_dir_all(top)?;
            }
        }
        Ok(())
    }

    async fn output(&self, command: &'static str, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        let variables = [("GIT_DIR", self.common.as_os_str())];
        let filters = &Filters::NOT_NEEDED;
        let git = GitCommand { dir: &self.common, filters, variables: &variables, patterns: false };
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        git.output(command, &arguments).await
    }

    /// Makes the repository forget them, once they were removed, and removes the branches whose names begin with
    /// `branches`, but for those that another worktree has checked out.
    ///
    /// # Errors
    ///
    /// What cannot be removed, the first of it.
    pub async fn forget(self, branches: &str) -> Result<(), GitError> {
        let mut result = Ok(());
        for link in &self.links {
            if let Err(error) = fs::remove_dir_all(link)
                && error.kind() != io::ErrorKind::NotFound
            {
                result = result.and(Err(error.into()));
            }
        }
        let under = format!("refs/heads/{branches}");
        let format = "--format=%(objectname) %(worktreepath) %(refname)";
        let listed = self.output("for-each-ref", &[format, &under]).await?;
        for line in String::from_utf8_lossy(&listed).lines() {
            let mut parts = line.splitn(3, ' ');
            if let (Some(commit), Some(""), Some(reference)) =
                (parts.next(), parts.next(), parts.next())
                && let Err(error) = self.output("update-ref", &["-d", reference, commit]).await
            {
                result = result.and(Err(error));
            }
        }
        result
    }
}

/// What a repository knows of the linked worktree in a directory: removed after the worktree was removed, it makes
/// the repository forget it. The branch stays. `None` where the directory is no such worktree.
fn linked_git_dir(dir: &Path) -> Option<PathBuf> {
    let link = fs::read(dir.join(".git")).ok()?;
    let git_dir =
        PathBuf::from(OsStr::from_bytes(link.strip_prefix(b"gitdir: ")?.trim_ascii_end()));
    // The link is a file of the run, which may name anything: only what names it back counts.
    let is_linked = git_dir.parent().is_some_and(|above| above.ends_with("worktrees"))
        && fs::read(git_dir.join("gitdir")).is_ok_and(|back| back == line("", &dir.join(".git")));
    is_linked.then_some(git_dir)
}
