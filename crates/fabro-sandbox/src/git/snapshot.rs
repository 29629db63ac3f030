//! The state of a work tree.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use crate::git::GitError;
use crate::git::configuration;
use crate::git::filters::Filters;
use crate::git::fingerprint::{Allowance, Fingerprint};
use crate::git::run::{GitCommand, OPTIONAL_LOCKS, git, with_timeout};
use crate::git::status;

/// Repositories inside of one another are looked into as deep as this.
const DEPTH: u8 = 4;

/// The state of a directory of a work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) place: Location,
    /// Absent before the first commit.
    pub(crate) head: Option<String>,
    /// What differs from the commit, and all submodules, by their paths below the directory.
    pub(crate) dirty: BTreeMap<Vec<u8>, State>,
    /// Whether all other files of the work tree are those of the commit, where that was asked for.
    pub(crate) is_clean_elsewhere: Option<bool>,
}

/// Whose a work tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Its index stays as it is.
    User,
    /// A worktree of a run, which is looked at as a whole.
    Run,
}

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Path(Fingerprint),
    /// A repository inside the work tree; `None` when it cannot be read.
    Repository(Option<Box<Snapshot>>),
}

impl State {
    /// Whether it is a file or a link, not a repository.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self, Self::Path(_))
    }

    /// Whether the path has changed.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(one), Self::Path(two)) => one.differs(two),
            (Self::Repository(Some(one)), Self::Repository(Some(two))) => one.differs(two),
            _ => self != other,
        }
    }
}

/// The location of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The device and inode of the repository's `.git`, by which a location that was found earlier is
    /// known to hold still.
    git: (u64, u64),
    /// The directory itself, which may have been deleted.
    pub(crate) dir: PathBuf,
    /// The nearest existing directory at or above it, where git can be run.
    pub(crate) cwd: PathBuf,
    /// The path from `cwd` to `dir`, as git takes it.
    pub(crate) pathspec: OsString,
    /// The top of the work tree.
    pub(crate) top: PathBuf,
    /// The path from `top` to `dir`: empty, or with `/` at its end.
    pub(crate) prefix: Vec<u8>,
    /// The filters of the repository.
    filters: Filters,
}

impl Snapshot {
    /// The current state of a directory and all below it. `None` outside of a work tree, in a bare
    /// repository, and where there is no git.
    ///
    /// A directory that was deleted, in a work tree that still exists, has lost all its files.
    ///
    /// # Errors
    ///
    /// A repository that git refuses to read, output that is unexpected or too long, and the timeout.
    pub async fn take(dir: &Path) -> Result<Option<Self>, GitError> {
        with_timeout(take(dir, DEPTH, Owner::User)).await
    }

    /// The same where the location of the directory was found earlier, as long as it holds: git is run
    /// once instead of twice.
    pub(crate) async fn take_again(
        dir: &Path,
        known: Option<Location>,
        owner: Owner,
    ) -> Result<Option<Self>, GitError> {
        match known.filter(|location| location.holds(dir)) {
            Some(location) => with_timeout(status_at(location, DEPTH, owner)).await.map(Some),
            None => with_timeout(take(dir, DEPTH, owner)).await,
        }
    }

    /// Whether any file, or the commit, is another.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        self.head != other.head
            || self.dirty.len() != other.dirty.len()
            || self
                .dirty
                .iter()
                .any(|(path, state)| other.dirty.get(path).is_none_or(|other| state.differs(other)))
    }
}

impl Snapshot {
    /// Whether every file that differs from the commit had the same content when the other snapshot was taken.
    pub(crate) fn adds_nothing_to(&self, before: &Self) -> bool {
        let had = |(path, state): (&Vec<u8>, &State)| {
            state.is_path() && before.dirty.get(path).is_some_and(|was| !was.differs(state))
        };
        self.place.dir == before.place.dir
            && self.is_clean_elsewhere == Some(true)
            && self.dirty.iter().all(had)
    }
}

impl Location {
    /// The filters of the repository.
    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Whether the directory is still there, and in the same repository.
    fn holds(&self, dir: &Path) -> bool {
        let is_here = self.dir == self.cwd && dir.canonicalize().is_ok_and(|dir| dir == self.dir);
        is_here
            && repository_of(&self.cwd) == Some((self.top.as_path(), self.git))
            && self.filters.hold()
    }
}

/// The nearest directory at or above this one that has a `.git`, and the device and inode of that.
fn repository_of(dir: &Path) -> Option<(&Path, (u64, u64))> {
    dir.ancestors().find_map(|above| {
        let found = above.join(".git").symlink_metadata().ok()?;
        Some((above, (found.dev(), found.ino())))
    })
}

async fn take(dir: &Path, depth: u8, owner: Owner) -> Result<Option<Snapshot>, GitError> {
    let Some(place) = place(dir).await? else { return Ok(None) };
    status_at(place, depth, owner).await.map(Some)
}

async fn status_at(place: Location, depth: u8, owner: Owner) -> Result<Snapshot, GitError> {
    let mut arguments: Vec<&OsStr> = status::ARGUMENTS.iter().map(OsStr::new).collect();
    let variables: &[_] = match owner {
        Owner::User => {
            arguments.extend([OsStr::new("--"), &place.pathspec]);
            &[]
        }
        Owner::Run => &[(OPTIONAL_LOCKS.0, OsStr::new(OPTIONAL_LOCKS.1))],
    };
    let git = GitCommand { dir: &place.cwd, filters: &place.filters, variables, patterns: false };
    let output = git.output("status", &arguments).await?;
    let status = status::parse(&output)?;
    let mut files = Vec::new();
    let mut repositories = Vec::new();
    let mut is_clean_elsewhere = true;
    for (path, is_repository) in status.entries {
        match path.strip_prefix(&*place.prefix) {
            Some(path) => {
                if is_repository { &mut repositories } else { &mut files }.push(path.to_owned());
            }
            None => is_clean_elsewhere = false,
        }
    }
    for path in submodules(&place.top).await? {
        if let Some(path) = path.strip_prefix(&*place.prefix)
            && !repositories.iter().any(|listed| listed == path)
        {
            repositories.push(path.to_owned());
        }
    }
    let mut dirty = states(place.dir.clone(), files).await?;
    for path in repositories {
        let state = repository(&place.dir.join(OsStr::from_bytes(&path)), depth).await;
        dirty.insert(path, state);
    }
    let is_clean_elsewhere = (owner == Owner::Run).then_some(is_clean_elsewhere);
    Ok(Snapshot { place, head: status.head, dirty, is_clean_elsewhere })
}

/// The submodules that are checked out, by their paths from the top of the work tree. `git status` would
/// run another git in each of them, with its filters.
async fn submodules(top: &Path) -> Result<Vec<Vec<u8>>, GitError> {
    const PATHS: [&str; 5] =
        ["--file", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$"];
    if !top.join(".gitmodules").is_file() {
        return Ok(Vec::new());
    }
    let output = match git(top, &Filters::NOT_NEEDED, "config", &PATHS, None).await {
        // It names none, or is not a configuration.
        Err(GitError::Failed(..)) => return Ok(Vec::new()),
        output => output?,
    };
    let paths = output.split(|byte| *byte == 0).filter_map(|record| {
        let value = record.iter().position(|byte| *byte == b'\n')? + 1;
        Some(record[value..].to_owned())
    });
    let is_checked_out = |path: &Vec<u8>| {
        let path = Path::new(OsStr::from_bytes(path));
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        is_below && top.join(path).join(".git").symlink_metadata().is_ok()
    };
    Ok(paths.filter(is_checked_out).collect())
}

/// A repository inside another. One that cannot be read is not an error.
async fn repository(dir: &Path, depth: u8) -> State {
    let inner = match depth.checked_sub(1) {
        Some(depth) => Box::pin(take(dir, depth, Owner::User)).await.ok().flatten(),
        None => None,
    };
    State::Repository(inner.map(Box::new))
}

/// The states of these paths below a directory.
pub(crate) async fn states(
    dir: PathBuf,
    paths: Vec<Vec<u8>>,
) -> Result<BTreeMap<Vec<u8>, State>, GitError> {
    let read = move || {
        let mut allowance = Allowance::new();
        let state = |path: Vec<u8>| {
            let fingerprint = allowance.fingerprint(&dir.join(OsStr::from_bytes(&path)));
            (path, State::Path(fingerprint))
        };
        paths.into_iter().map(state).collect()
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| GitError::Run(error.into()))
}

async fn place(dir: &Path) -> Result<Option<Location>, GitError> {
    let dir = std::path::absolute(dir)?;
    let Some(existing) = dir.ancestors().find(|above| above.is_dir()) else { return Ok(None) };
    let gone = dir.strip_prefix(existing).unwrap_or(Path::new(""));
    if gone.components().any(|component| !matches!(component, Component::Normal(_))) {
        return Ok(None);
    }
    // Git uses real paths.
    let cwd = existing.canonicalize()?;
    let asked = ["--is-inside-work-tree", "--show-cdup"];
    let output = match git(&cwd, &Filters::NOT_NEEDED, "rev-parse", &asked, None).await {
        // There is no git.
        Err(GitError::Run(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // Where there is a repository, the user should know why git refused it.
        Err(GitError::Failed(..)) if !has_repository(&cwd) => return Ok(None),
        output => output?,
    };
    // The second line has `../` for each level below the top.
    let output = String::from_utf8_lossy(&output);
    let Some(up) = output.strip_prefix("true\n") else { return Ok(None) };
    let levels = up.matches("../").count();
    let Some(top) = cwd.ancestors().nth(levels) else { return Ok(None) };
    let real = if gone.as_os_str().is_empty() { cwd.clone() } else { cwd.join(gone) };
    let below = real.strip_prefix(top).unwrap_or(Path::new(""));
    let mut prefix = below.as_os_str().as_bytes().to_owned();
    if !prefix.is_empty() {
        prefix.push(b'/');
    }
    let pathspec =
        if gone.as_os_str().is_empty() { ".".into() } else { gone.as_os_str().to_owned() };
    // A work tree whose `.git` lies elsewhere (`core.worktree`) has no location that could be kept.
    let git = repository_of(&cwd).filter(|(above, _)| *above == top).map_or((0, 0), |(_, git)| git);
    let filters = configuration::filters(&cwd, top).await?;
    Ok(Some(Location { git, top: top.to_owned(), dir: real, cwd, pathspec, prefix, filters }))
}

/// Whether a directory is in a repository.
pub(crate) fn has_repository(dir: &Path) -> bool {
    dir.ancestors().any(|above| above.join(".git").exists())
}
