//! The difference of two commits as text.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::git::GitError;
use crate::git::file_trees::CHANGES;
use crate::git::filters::Filters;
use crate::git::run::GitCommand;

/// Where commits or trees are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchSource {
    /// The repository that this directory is in.
    Repository(PathBuf),
    /// A bare repository, which [`FileTrees`](crate::git::FileTrees) wrote.
    Trees(PathBuf),
}

impl PatchSource {
    /// The trees of a run with this directory.
    pub fn of_run(run_dir: &Path) -> Self {
        Self::Trees(run_dir.join(CHANGES))
    }

    /// The directory of the repository, or one in its work tree.
    pub fn dir(&self) -> &Path {
        match self {
            Self::Repository(dir) | Self::Trees(dir) => dir,
        }
    }
}

/// How a difference is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchStyle {
    /// As a patch that `git apply` takes.
    Patch,
    /// The files, and how many lines of each differ.
    Stat,
}

/// What differs between two commits or trees; at most 64 MB. No program that the repository or the user's settings
/// name is run.
///
/// # Errors
///
/// One of them is gone, or git failed.
pub async fn patch(
    source: &PatchSource,
    from: &str,
    to: &str,
    style: PatchStyle,
) -> Result<Vec<u8>, GitError> {
    let mut arguments = vec![
        "-r",
        "--find-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    ];
    arguments.extend(match style {
        PatchStyle::Patch => ["--patch", "--binary", "--full-index"].as_slice(),
        PatchStyle::Stat => &["--stat"],
    });
    arguments.extend([from, to]);
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let dir = source.dir();
    let variables: &[_] = match source {
        PatchSource::Repository(_) => &[],
        PatchSource::Trees(_) => &[("GIT_DIR", dir.as_os_str())],
    };
    let filters = &Filters::NOT_NEEDED;
    let git = GitCommand { dir, filters, variables, patterns: false };
    git.output("diff-tree", &arguments).await
}
