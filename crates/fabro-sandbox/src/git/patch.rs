//! The difference of two commits as text.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::own_objects::needed;
use crate::git::run::GitCommand;
use crate::git::stored::{CHANGES, Stored};

/// The most files whose contents cannot be read that are left out of a patch; with more, there is none.
const MANY: usize = 1_000;

/// So many damaged files are named in a message.
const NAMED: usize = 10;

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

    /// The repository for several patches, looked at once.
    ///
    /// # Errors
    ///
    /// A list of stored objects is damaged, or something else took the place of a file.
    pub fn checked(&self) -> Result<CheckedSource<'_>, GitError> {
        if let Self::Trees(dir) = self {
            let stored = Stored { dir };
            stored.check_files()?;
            stored.check_indexes()?;
        }
        Ok(CheckedSource(self))
    }

    async fn git(&self, command: &'static str, arguments: &[&OsStr]) -> Result<Vec<u8>, GitError> {
        let dir = self.dir();
        let variables: &[_] = match self {
            Self::Repository(_) => &[],
            Self::Trees(_) => &[("GIT_DIR", dir.as_os_str())],
        };
        let filters = &Filters::NOT_NEEDED;
        GitCommand { dir, filters, variables, patterns: true }.output(command, arguments).await
    }
}

/// A repository whose files are those that git expects.
#[derive(Clone, Copy, Debug)]
pub struct CheckedSource<'a>(&'a PatchSource);

/// What differs between two commits or trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// As text. Files whose contents cannot be read are not in it, but named by lines with `#` at the beginning.
    pub text: Vec<u8>,
    /// The files of which a content is stored and damaged, or was lost from the store, and where that is.
    pub damage: Option<String>,
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
/// One of them is damaged or gone, or git failed.
pub async fn patch(
    source: &PatchSource,
    from: &str,
    to: &str,
    style: PatchStyle,
) -> Result<Patch, GitError> {
    if from == to {
        return Ok(Patch::default());
    }
    source.checked()?.patch(from, to, style).await
}

impl CheckedSource<'_> {
    /// What [`patch`] returns.
    ///
    /// # Errors
    ///
    /// Those of [`patch`].
    pub async fn patch(&self, from: &str, to: &str, style: PatchStyle) -> Result<Patch, GitError> {
        let Self(source) = self;
        if from == to {
            return Ok(Patch::default());
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
        let PatchSource::Trees(dir) = source else {
            let text = source.git("diff-tree", &arguments).await?;
            return Ok(Patch { text, damage: None });
        };
        let stored = Stored { dir };
        let failed = match source.git("diff-tree", &arguments).await {
            Ok(text) => return Ok(Patch { text, damage: None }),
            Err(GitError::Failed(_, reason)) => reason,
            Err(error) => return Err(error),
        };
        let Unread { damaged, gone } = unread(stored, from, to, &failed).await?;
        let unread = damaged.len() + gone.len();
        if unread == 0 || unread > MANY {
            return Err(stored.failed(failed));
        }
        let excluded =
            |path: &Vec<u8>| OsString::from_vec([b":(exclude,literal)", &**path].concat());
        let excluded: Vec<OsString> = damaged.iter().chain(&gone).map(excluded).collect();
        arguments.extend(excluded.iter().map(OsString::as_os_str));
        let rest = source.git("diff-tree", &arguments).await?;
        let line = |path: &Vec<u8>, reason| format!("# {}: {reason}\n", path.escape_ascii());
        let lines = damaged.iter().map(|path| line(path, "a stored content is damaged or lost"));
        let lines = lines.chain(gone.iter().map(|path| line(path, "git has removed a content")));
        let text = [lines.collect::<String>().into_bytes(), rest].concat();
        let shown: Vec<String> =
            damaged.iter().take(NAMED).map(|path| path.escape_ascii().to_string()).collect();
        let damage = (!damaged.is_empty()).then(|| {
            let more = damaged.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "{}{more}: stored contents are damaged or lost in {}",
                shown.join(", "),
                dir.display()
            )
        });
        Ok(Patch { text, damage })
    }
}

/// The changed files with contents that cannot be read.
struct Unread {
    damaged: BTreeSet<Vec<u8>>,
    /// Git had removed them from the user's repository before they were copied.
    gone: BTreeSet<Vec<u8>>,
}

/// Those between two trees of which git failed to write the patch.
async fn unread(
    stored: Stored<'_>,
    from: &str,
    to: &str,
    failed: &str,
) -> Result<Unread, GitError> {
    let raw = match stored.raw(from, to).await {
        Err(GitError::Failed(..)) => return Err(stored.failed(failed.to_owned())),
        raw => raw?,
    };
    let needed: Vec<(String, Vec<u8>)> = needed(&raw).collect();
    let found = stored.unread(needed.iter().map(|(id, _)| id)).await?;
    let mut unread = Unread { damaged: BTreeSet::new(), gone: BTreeSet::new() };
    for (id, path) in needed {
        let Some(is_missing) = found.get(&id) else { continue };
        let is_gone = *is_missing && stored.is_gone(&id);
        (if is_gone { &mut unread.gone } else { &mut unread.damaged }).insert(path);
    }
    Ok(unread)
}
