//! The difference of two commits as text.

use std::path::Path;

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::run::git;

/// How a difference is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchStyle {
    /// As a patch that `git apply` takes.
    Patch,
    /// The files, and how many lines of each differ.
    Stat,
}

/// What differs between two commits of the repository that a directory is in; at most 64 MB. No program that the
/// repository or the user's settings name is run.
///
/// # Errors
///
/// A commit is gone, or git failed.
pub async fn patch(
    dir: &Path,
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
    git(dir, &Filters::NOT_NEEDED, "diff-tree", &arguments, None).await
}
