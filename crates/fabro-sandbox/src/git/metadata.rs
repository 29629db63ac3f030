//! Files that are kept as commits of a branch of their own, beside a repository's work tree.

use std::ffi::OsStr;
use std::path::Path;

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::run::GitCommand;
use crate::git::worktree::{Author, common_dir, text};

/// How many files are handed to one git command.
const BATCH: usize = 400;

/// A commit that keeps files, on a branch without any other files.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The branch, such as `fabro/meta/{run id}`; made where it is missing.
    pub branch: String,
    /// Whose commit it is.
    pub author: Author,
    /// The first line.
    pub subject: String,
    /// Trailers, a line each.
    pub trailers: String,
}

impl Metadata {
    /// Keeps these files of a directory, by their paths below it, as a commit of the branch, in the repository that
    /// `repository` is in. `index` is a file that does not exist yet, for git. Only objects and the branch are
    /// written: no work tree, no index, no configuration, and no hook or filter runs. `None` when the last
    /// commit of the branch says the same.
    ///
    /// # Errors
    ///
    /// There is no repository, a file cannot be read, or git failed.
    pub async fn keep(
        &self,
        repository: &Path,
        dir: &Path,
        index: &Path,
        files: &[String],
    ) -> Result<Option<String>, GitError> {
        let common = common_dir(repository).await?;
        let Author { name, email } = &self.author;
        let variables = [
            ("GIT_DIR", common.as_os_str()),
            ("GIT_INDEX_FILE", index.as_os_str()),
            ("GIT_AUTHOR_NAME", OsStr::new(name)),
            ("GIT_AUTHOR_EMAIL", OsStr::new(email)),
            ("GIT_COMMITTER_NAME", OsStr::new(name)),
            ("GIT_COMMITTER_EMAIL", OsStr::new(email)),
        ];
        let filters = &Filters::NOT_NEEDED;
        let git = GitCommand { dir, filters, variables: &variables, patterns: false };
        let run = async |command, arguments: &[&str]| {
            let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
            Ok::<_, GitError>(text(&git.output(command, &arguments).await?))
        };
        for files in files.chunks(BATCH) {
            let mut arguments = vec!["-w", "--no-filters", "--"];
            arguments.extend(files.iter().map(String::as_str));
            let ids = run("hash-object", &arguments).await?;
            let entry = |(id, file): (&str, &String)| format!("100644,{id},{file}");
            let entries: Vec<String> = ids.lines().zip(files).map(entry).collect();
            let mut arguments = vec!["--add"];
            arguments.extend(entries.iter().flat_map(|entry| ["--cacheinfo", entry]));
            run("update-index", &arguments).await?;
        }
        let tree = run("write-tree", &[]).await?;
        let reference = format!("refs/heads/{}", self.branch);
        let commit = format!("{reference}^{{commit}}");
        let before = match run("rev-parse", &["--verify", "--quiet", &commit]).await {
            Err(GitError::Failed(_, message)) if message.is_empty() => None,
            result => Some(result?),
        };
        let mut arguments = vec![&*tree];
        if let Some(before) = &before {
            let format = ["-1", "--no-show-signature", "--format=%T%n%(trailers:only)", before];
            if run("log", &format).await? == format!("{tree}\n{}", self.trailers) {
                return Ok(None);
            }
            arguments.extend(["-p", before]);
        }
        arguments.extend(["-m", &self.subject, "-m", &self.trailers]);
        let commit = run("commit-tree", &arguments).await?;
        // Without a commit before, there must be none.
        let before = before.unwrap_or_else(|| "0".repeat(commit.len()));
        run("update-ref", &[&reference, &commit, &before]).await?;
        Ok(Some(commit))
    }
}
