//! The configuration of a repository.

use std::path::Path;

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::run::git;

const LIST: [&str; 4] = ["--list", "--show-origin", "--name-only", "-z"];

/// The filters of the repository that this directory is in, whose work tree has this top.
pub(crate) async fn filters(dir: &Path, top: &Path) -> Result<Filters, GitError> {
    let output = git(dir, &Filters::NOT_NEEDED, "config", &LIST, None).await?;
    Ok(Filters::parse(&output, top))
}
