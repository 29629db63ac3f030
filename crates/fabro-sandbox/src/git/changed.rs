//! Comparing two snapshots.

use std::collections::BTreeSet;

use crate::git::GitError;
use crate::git::filters::Filters;
use crate::git::run::{git, with_timeout};
use crate::git::snapshot::{Snapshot, states};

/// The tree of no files, for either length of ids. Git knows it in every repository.
const EMPTY_TREES: [&str; 2] = [
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
];

/// The files that were created, deleted or got other contents between two snapshots of one directory:
/// their paths below it, sorted by bytes. Bytes that are not UTF-8 are shown as `U+FFFD`.
///
/// To be called soon after the second one was taken: files that were edited before the first one and
/// are committed now are read again.
///
/// # Errors
///
/// As [`Snapshot::take`]; also when a commit of the first snapshot is gone.
pub async fn changed(before: &Snapshot, after: &Snapshot) -> Result<Vec<String>, GitError> {
    let paths = with_timeout(paths(before, after)).await?;
    Ok(paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect())
}

pub(crate) async fn paths(
    before: &Snapshot,
    after: &Snapshot,
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let mut changed = committed(before, after).await?;
    // Whether a file that differed from its commit in one of the snapshots has changed does not follow
    // from the commits.
    let clean_now = before.dirty.keys().filter(|path| !after.dirty.contains_key(*path)).cloned();
    let clean_now = states(after.place.dir.clone(), clean_now.collect()).await?;
    for (path, state) in after.dirty.iter().chain(&clean_now) {
        if before.dirty.get(path).is_none_or(|was| was.differs(state)) {
            changed.insert(path.clone());
        } else {
            changed.remove(path);
        }
    }
    Ok(changed)
}

/// What differs between the two commits.
async fn committed(before: &Snapshot, after: &Snapshot) -> Result<BTreeSet<Vec<u8>>, GitError> {
    // Commits of two repositories cannot be compared.
    if before.head == after.head || before.place.top != after.place.top {
        return Ok(BTreeSet::new());
    }
    let sha256 = [before, after].iter().any(|at| at.head.as_ref().is_some_and(|id| id.len() > 40));
    let tree = |at: &Snapshot| {
        at.head.clone().unwrap_or_else(|| EMPTY_TREES[usize::from(sha256)].to_owned())
    };
    let from = tree(before);
    let to = tree(after);
    let arguments = ["-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", &from, &to];
    let path = Some(after.place.pathspec.as_os_str());
    let output = git(&after.place.cwd, &Filters::NOT_NEEDED, "diff-tree", &arguments, path).await?;
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let below = paths.filter_map(|path| path.strip_prefix(&*after.place.prefix));
    Ok(below.map(<[u8]>::to_owned).collect())
}
