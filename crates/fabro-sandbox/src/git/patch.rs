//! The difference of two commits as text.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use crate::git::GitError;
use crate::git::file_trees::{CHANGES, check_files};
use crate::git::filters::Filters;
use crate::git::own_objects::needed;
use crate::git::run::GitCommand;

/// The most files whose contents are gone that are named; of more, no file is.
const MANY: usize = 1_000;

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

    async fn git(
        &self,
        command: &'static str,
        arguments: &[&OsStr],
        input: Option<&[u8]>,
    ) -> Result<Vec<u8>, GitError> {
        let dir = self.dir();
        let variables: &[_] = match self {
            Self::Repository(_) => &[],
            Self::Trees(_) => {
                check_files(dir)?;
                &[("GIT_DIR", dir.as_os_str())]
            }
        };
        let filters = &Filters::NOT_NEEDED;
        let git = GitCommand { dir, filters, variables, patterns: true };
        match git.result_of(command, arguments, input).await? {
            (Some(0), output, _) => Ok(output),
            (_, _, message) => Err(GitError::Failed(command, message)),
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
/// name is run. Files of trees whose contents are gone are left out, and named by lines with `#` at the beginning.
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
    if from == to {
        return Ok(Vec::new());
    }
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
    arguments.extend([from, to, "--"]);
    let mut arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let failed = match (source.git("diff-tree", &arguments, None).await, source) {
        (Err(failed @ GitError::Failed(..)), PatchSource::Trees(_)) => failed,
        (result, _) => return result,
    };
    let gone = match gone(source, from, to).await {
        Ok(gone) if (1..=MANY).contains(&gone.len()) => gone,
        _ => return Err(failed),
    };
    let excluded = |path: &Vec<u8>| OsString::from_vec([b":(exclude,literal)", &**path].concat());
    let excluded: Vec<OsString> = gone.iter().map(excluded).collect();
    arguments.extend(excluded.iter().map(OsString::as_os_str));
    let rest = source.git("diff-tree", &arguments, None).await?;
    let named = gone.iter().map(|path| {
        format!("# {}: one of its contents is damaged, or gone from git\n", path.escape_ascii())
    });
    Ok([named.collect::<String>().into_bytes(), rest].concat())
}

/// The changed files one of whose contents is gone.
async fn gone(source: &PatchSource, from: &str, to: &str) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let arguments = ["-r", "-z", "--raw", "--no-renames", from, to].map(OsStr::new);
    let raw = source.git("diff-tree", &arguments, None).await?;
    let needed: Vec<(String, Vec<u8>)> = needed(&raw).collect();
    let ids: Vec<u8> = needed.iter().flat_map(|(id, _)| [id.as_bytes(), b"\n"].concat()).collect();
    let check = ["--batch-check", "--buffer"].map(OsStr::new);
    let found = source.git("cat-file", &check, Some(&ids)).await?;
    let found = String::from_utf8_lossy(&found);
    let missing: BTreeSet<&str> =
        found.lines().filter_map(|line| line.strip_suffix(" missing")).collect();
    let is_gone = |(id, path): (String, Vec<u8>)| missing.contains(&*id).then_some(path);
    Ok(needed.into_iter().filter_map(is_gone).collect())
}
