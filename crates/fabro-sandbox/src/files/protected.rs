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

    /// Whether this file may be written, as far as what it steers is concerned.
    ///
    /// # Errors
    ///
    /// It steers another program, or the path leads out.
    pub fn may_write(&self, path: &str) -> Result<(), FileError> {
        self.may_remove(path)?;
        // A link may lead there under another name, also to what has yet to be made.
        refuse(path, is_protected(Path::new(&self.files.leads_to(path)?)))
    }

    /// Looks at what has the name, link or not, and at all that is above it.
    fn may_remove(&self, path: &str) -> Result<(), FileError> {
        let steers = |path: &Path| {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return false;
            };
            let parent = parent.to_str().map(|parent| if parent.is_empty() { "." } else { parent });
            // What is outside, as are the parents of the root, must not be changed.
            let parent = parent.and_then(|parent| self.files.leads_to(parent).ok());
            parent.is_some_and(|parent| is_protected(&Path::new(&parent).join(name)))
        };
        refuse(path, Path::new(path).ancestors().any(steers))
    }
}

fn refuse(path: &str, steers: bool) -> Result<(), FileError> {
    if steers { Err(FileError::Protected { path: path.to_owned() }) } else { Ok(()) }
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
        self.may_write(path)?;
        self.files.write(path, content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.may_remove(path)?;
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

    fn leads_to(&self, path: &str) -> Result<String, FileError> {
        self.files.leads_to(path)
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
        for name in [".git/hooks", ".fabro", "sub", "gitdir"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join(".git/HEAD"), "ref").unwrap();
        std::os::unix::fs::symlink(".git/hooks", dir.path().join("hooks")).unwrap();
        let link = |to: &str, name| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        link(".git/hooks/post-merge", "new.md");
        link(".fabro", "dir");
        link("gitdir", "sub/.git");
        link("/etc/passwd", "out");
        let files = Protected::new(LocalFiles::new(dir.path()).unwrap());
        let root = dir.path().canonicalize().unwrap();
        let absolute = root.join("sub/.git/config");
        for path in ["hooks/pre-commit", "new.md", "dir/config.toml", absolute.to_str().unwrap()] {
            let written = files.write(path, b"x");
            assert!(matches!(written, Err(FileError::Protected { .. })), "{path}: {written:?}");
        }
        assert!(matches!(files.remove("hooks/x"), Err(FileError::Protected { .. })));
        assert_eq!(files.read(".git/HEAD", 10).unwrap(), b"ref");
        // Links themselves are not part of their target.
        for name in ["hooks", "new.md", "dir", "out"] {
            files.remove(name).unwrap();
        }
    }

    #[test]
    fn where_the_root_is_does_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join(".fabro/state/work");
        std::fs::create_dir_all(&root).unwrap();
        let files = Protected::new(LocalFiles::new(&root).unwrap());
        files.write(root.join("a/b.txt").to_str().unwrap(), b"x").unwrap();
        let hook = files.write(root.join("a/.git/hooks/x").to_str().unwrap(), b"x");
        assert!(matches!(hook, Err(FileError::Protected { .. })));
    }
}
