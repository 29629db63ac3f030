//! Stores of runs in a working directory, which scripts do not see.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use crate::SandboxError;
use crate::walk::walk;

/// A directory with such a file is a store of runs.
pub(crate) const STORE_FILE: &str = "fabro.db";

/// Whether a directory is a store of runs.
pub(crate) fn is_store(dir: &Path) -> bool {
    fs::symlink_metadata(dir.join(STORE_FILE)).is_ok()
}

/// Adds the stores below a directory to what is hidden, except those in directories that scripts may write.
pub(crate) fn hide_stores(
    root: &Path,
    hidden: &mut Vec<PathBuf>,
    write: &[PathBuf],
) -> Result<(), SandboxError> {
    let write: Vec<_> = write.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // The working directory may itself be in a store.
    let is_hidden =
        |store: &PathBuf| hidden.iter().any(|dir| store.starts_with(dir) && !root.starts_with(dir));
    let mut stores = stores_below(root, &write)?;
    stores.retain(|store| !is_hidden(store));
    hidden.extend(stores);
    Ok(())
}

/// The stores below a directory, without those inside of another one. Skips `.git` directories.
fn stores_below(root: &Path, skipped: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let mut stores = Vec::new();
    let walked = walk(root, |dir, entries| {
        // The working directory itself is what scripts work on.
        if dir != root && entries.iter().any(|entry| entry.file_name() == STORE_FILE) {
            stores.push(dir.to_owned());
            return Vec::new();
        }
        let is_dir = |entry: &&DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let below = entries.iter().filter(is_dir).filter(|it| it.file_name() != ".git");
        below.map(DirEntry::path).filter(|path| !skipped.contains(path)).collect()
    });
    walked.map_err(|error| SandboxError::Unusable {
        message: format!("{error}, so other stores cannot be hidden"),
        fix: error.fix().to_owned(),
    })?;
    stores.sort();
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_found_at_any_depth_and_not_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a/b/store/inner", "other", ".git/store", "none"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for name in
            ["fabro.db", "a/b/store/fabro.db", "a/b/store/inner/fabro.db", ".git/store/fabro.db"]
        {
            fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink(path("a/b/store"), path("none/link")).unwrap();
        assert_eq!(stores_below(dir.path(), &[]).unwrap(), [path("a/b/store")]);
        fs::write(path("other/fabro.db"), "").unwrap();
        assert_eq!(stores_below(dir.path(), &[]).unwrap(), [path("a/b/store"), path("other")]);
    }
}
