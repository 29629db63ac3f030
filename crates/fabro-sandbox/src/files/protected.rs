//! Files that control git and fabro.

use std::path::{Component, Path};

use super::{FileError, Files};

/// Refuses a write to a file in a `.git` directory, where a hook or a setting would be run by the next
/// git command, or to the `state` and the `config.toml` of a `.fabro` directory: the record of runs,
/// and what agents may do.
pub(super) fn check_write(files: &dyn Files, path: &str) -> Result<(), FileError> {
    // A link may lead there under another name, also to what has yet to be made. Before the rest,
    // because this refuses paths that are too long.
    let resolved = files.resolve(path)?;
    refuse_if(path, is_protected(Path::new(&resolved)))?;
    check_remove(files, path)
}

/// The same for a removal, which acts on a link itself: checks the name, link or not, and all
/// directories above it.
pub(super) fn check_remove(files: &dyn Files, path: &str) -> Result<(), FileError> {
    let is_protected_name = |path: &Path| {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let parent = parent.to_str().map(|parent| if parent.is_empty() { "." } else { parent });
        // What is outside, as are the parents of the root, is refused anyway.
        let parent = parent.and_then(|parent| files.resolve(parent).ok());
        parent.is_some_and(|parent| is_protected(&Path::new(&parent).join(name)))
    };
    refuse_if(path, Path::new(path).ancestors().any(is_protected_name))
}

fn refuse_if(path: &str, is_protected: bool) -> Result<(), FileError> {
    if is_protected { Err(FileError::Protected(path.to_owned())) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFiles;

    #[test]
    fn files_that_control_git_and_fabro_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        let check = |path: &str, expected: bool| {
            assert_eq!(files.write(path, b"x").is_ok(), expected, "{path}");
        };
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
    fn links_do_not_bypass_it() {
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
        let files = LocalFiles::new(dir.path()).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let absolute = root.join("sub/.git/config");
        for path in ["hooks/pre-commit", "new.md", "dir/config.toml", absolute.to_str().unwrap()] {
            let written = files.write(path, b"x");
            assert!(matches!(written, Err(FileError::Protected(_))), "{path}: {written:?}");
        }
        assert!(matches!(files.remove("hooks/x"), Err(FileError::Protected(_))));
        assert_eq!(files.read(".git/HEAD", 10).unwrap(), b"ref");
        // Links themselves are not part of their target.
        for name in ["hooks", "new.md", "dir", "out"] {
            files.remove(name).unwrap();
        }
    }

    #[test]
    fn the_location_of_the_root_does_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join(".fabro/state/work");
        std::fs::create_dir_all(&root).unwrap();
        let files = LocalFiles::new(&root).unwrap();
        files.write(root.join("a/b.txt").to_str().unwrap(), b"x").unwrap();
        let hook = files.write(root.join("a/.git/hooks/x").to_str().unwrap(), b"x");
        assert!(matches!(hook, Err(FileError::Protected(_))));
    }
}
