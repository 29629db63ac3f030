use std::io::Read;
use std::path::{Component, Path};

use super::{Entry, FileError, FileInfo, Files, FindFiles, ReadFiles, WriteFiles};

/// Files of which those that steer other programs can be read, but not changed: everything in a
/// `.git` directory, where a hook or a setting would be run by the next git command, and in the
/// `state` and the `config.toml` of a `.fabro` directory: the record of runs, and what agents may do.
///
/// ```
/// use fabro_sandbox::{FileError, MemoryFiles, Protected, WriteFiles};
///
/// let files = Protected::new(MemoryFiles::default());
/// files.write("src/main.rs", b"fn main() {}")?;
/// let hook = files.write(".git/hooks/post-commit", b"#!/bin/sh");
/// assert!(matches!(hook, Err(FileError::Protected { .. })));
/// # Ok::<(), FileError>(())
/// ```
#[derive(Debug, Default)]
pub struct Protected<F> {
    files: F,
}

impl<F: Files> Protected<F> {
    /// All files of `files`.
    pub fn new(files: F) -> Self {
        Self { files }
    }

    fn check(&self, path: &str) -> Result<(), FileError> {
        let steers = is_protected(Path::new(path))
            // Links may lead there under another name.
            || self.resolved(Path::new(path)).is_some_and(|path| is_protected(Path::new(&path)));
        if steers { Err(FileError::Protected { path: path.to_owned() }) } else { Ok(()) }
    }

    /// The nearest of the path and what is above it that is there, with links resolved.
    fn resolved(&self, path: &Path) -> Option<String> {
        let found = |path: &Path| Some(self.files.info(path.to_str()?).ok()?.path);
        path.ancestors().take_while(|path| !path.as_os_str().is_empty()).find_map(found)
    }
}

fn is_protected(path: &Path) -> bool {
    let names: Vec<_> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    names.iter().any(|name| name == ".git")
        || names
            .windows(2)
            .any(|pair| pair[0] == ".fabro" && (pair[1] == "state" || pair[1] == "config.toml"))
}

impl<F: Files> ReadFiles for Protected<F> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        self.files.open(path)
    }
}

impl<F: Files> WriteFiles for Protected<F> {
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        self.check(path)?;
        self.files.write(path, content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.check(path)?;
        self.files.remove(path)
    }
}

impl<F: Files> FindFiles for Protected<F> {
    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        self.files.info(path)
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        self.files.list(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalFiles, ReadFilesExt};

    #[track_caller]
    fn check(path: &str, expected: bool) {
        let files = Protected::new(crate::MemoryFiles::default());
        assert_eq!(files.write(path, b"x").is_ok(), expected, "{path}");
    }

    #[test]
    fn what_steers_git_and_fabro_is_not_written() {
        check(".gitignore", true);
        check("src/.github/x.yml", true);
        check(".fabro/workflows/x.fabro", true);
        check(".git", false);
        check(".git/config", false);
        check("vendor/dep/.GIT/hooks/pre-push", false);
        check("./a/../.git/config", false);
        check(".fabro/state/fabro.db", false);
        check(".fabro/config.toml", false);
    }

    #[test]
    fn links_do_not_get_round_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git/hooks")).unwrap();
        std::fs::write(dir.path().join(".git/HEAD"), "ref").unwrap();
        std::os::unix::fs::symlink(".git/hooks", dir.path().join("hooks")).unwrap();
        let files = Protected::new(LocalFiles::new(dir.path()).unwrap());
        assert!(matches!(files.write("hooks/pre-commit", b"x"), Err(FileError::Protected { .. })));
        assert_eq!(files.read(".git/HEAD", 10).unwrap(), b"ref");
    }
}
