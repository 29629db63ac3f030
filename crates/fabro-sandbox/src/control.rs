//! Protects control files, those of a working directory that later runs obey, from scripts in a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fabro_types::ControlFile;

use crate::files::is_workflow;
use crate::stores::walk;

/// Whether later runs obey the file, by the last names of its path. Git's own files do not count.
fn is_control_file(root: &Path, below: &Path) -> bool {
    let mut names: Vec<_> = below.iter().rev().take(ControlFile::LONGEST).collect();
    names.reverse();
    let names: Vec<_> = names.into_iter().map(|name| name.to_string_lossy()).collect();
    match ControlFile::of(names.iter().map(|name| &**name)) {
        Some(ControlFile::Found) => true,
        Some(ControlFile::Graph) => is_workflow(root, below),
        Some(ControlFile::Git) | None => false,
    }
}

/// A file or directory that later runs obey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The inode of a link and its ctime, as inodes are reused: nothing can be mounted on a link, so a script could
    /// replace it.
    link: Option<(u64, i64, i64)>,
}

/// The control files below a directory, at any depth, outside of `skipped`. A control directory is one entry.
pub(crate) fn control_files(root: &Path, skipped: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    walk(root, |dir, entries| {
        let mut below = Vec::new();
        for entry in entries {
            let path = dir.join(entry.file_name());
            if entry.file_name() == ".git" || skipped.contains(&path) {
                continue;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let inside = path.strip_prefix(root).unwrap_or(&path);
            if is_control_file(root, inside) {
                let link = kind.is_symlink().then(|| fs::symlink_metadata(&path).ok()).flatten();
                let link = link.map(|link| (link.ino(), link.ctime(), link.ctime_nsec()));
                found.insert(path, Entry { link });
            } else if kind.is_dir() {
                below.push(path);
            }
        }
        below
    });
    found
}

/// The paths of control files, with links resolved: a sandbox has to mount them read-only.
pub(crate) fn protected_paths(root: &Path, found: &BTreeMap<PathBuf, Entry>) -> BTreeSet<PathBuf> {
    let real = |(path, entry): (&PathBuf, &Entry)| match entry.link {
        None => Some(path.clone()),
        Some(_) => path.canonicalize().ok().filter(|real| real != root && real.starts_with(root)),
    };
    found.iter().filter_map(real).collect()
}

/// Guards a directory from now on.
pub(crate) fn guard_control_files(root: &Path, skipped: BTreeSet<PathBuf>) -> ControlGuard {
    let before = control_files(root, &skipped);
    ControlGuard::new(root.to_owned(), skipped, before)
}

/// Renames control files that a script creates, when the script has ended, or on drop.
#[derive(Debug)]
pub(crate) struct ControlGuard {
    root: PathBuf,
    skipped: BTreeSet<PathBuf>,
    before: BTreeMap<PathBuf, Entry>,
    is_done: bool,
}

impl ControlGuard {
    pub(crate) fn new(
        root: PathBuf,
        skipped: BTreeSet<PathBuf>,
        before: BTreeMap<PathBuf, Entry>,
    ) -> Self {
        Self { root, skipped, before, is_done: false }
    }

    /// Disarms the guard, for a trusted program.
    pub(crate) fn release(mut self) {
        self.is_done = true;
    }

    /// Renames new control files, and returns a line for each of them. Call it only when the script has ended.
    pub(crate) fn rename_new(&mut self) -> String {
        self.is_done = true;
        let now = control_files(&self.root, &self.skipped);
        let new = now.iter().filter(|(path, entry)| self.before.get(*path) != Some(entry));
        new.map(|(path, _)| {
            let name = path.strip_prefix(&self.root).unwrap_or(path).display();
            match rename(path) {
                Ok(aside) => format!(
                    "fabro: later runs would obey {name}, so it was renamed to {}\n",
                    aside.file_name().unwrap_or_default().display()
                ),
                Err(error) => format!(
                    "fabro: later runs would obey {name}, and it could not be renamed ({error}): \
                     remove it\n"
                ),
            }
        })
        .collect()
    }
}

impl Drop for ControlGuard {
    fn drop(&mut self) {
        if !self.is_done {
            self.rename_new();
        }
    }
}

/// Gives a file an unused name that nothing obeys.
fn rename(path: &Path) -> std::io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 0_u32.. {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let aside = path.with_file_name(format!("{name}.from-sandbox{number}"));
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, &aside, flags) {
            Err(rustix::io::Errno::EXIST) => {}
            renamed => return renamed.map(|()| aside).map_err(Into::into),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_control_files_are_renamed_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |name: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for name in ["AGENTS.md", "sub/.fabro/config.toml", "docs/notes.md", "own/AGENTS.md"] {
            write(name);
        }
        std::os::unix::fs::symlink("docs/notes.md", root.join("CLAUDE.md")).unwrap();
        let skipped = BTreeSet::from([root.join("own")]);
        let before = control_files(&root, &skipped);
        let expected = ["AGENTS.md", "docs/notes.md", "sub/.fabro"].map(|name| root.join(name));
        assert_eq!(protected_paths(&root, &before), BTreeSet::from(expected));
        let mut guard = ControlGuard::new(root.clone(), skipped.clone(), before);
        for name in ["fabro.toml", "a/b/.fabro/config.toml", "AGENTS.md", "own/fabro.toml", "x.md"]
        {
            write(name);
        }
        fs::remove_file(root.join("CLAUDE.md")).unwrap();
        std::os::unix::fs::symlink("x.md", root.join("CLAUDE.md")).unwrap();
        insta::assert_snapshot!(guard.rename_new(), @r"
        fabro: later runs would obey CLAUDE.md, so it was renamed to CLAUDE.md.from-sandbox
        fabro: later runs would obey a/b/.fabro, so it was renamed to .fabro.from-sandbox
        fabro: later runs would obey fabro.toml, so it was renamed to fabro.toml.from-sandbox
        ");
        assert!(root.join("a/b/.fabro.from-sandbox/config.toml").exists());
        write("fabro.toml");
        insta::assert_snapshot!(guard.rename_new(), @"fabro: later runs would obey fabro.toml, so it was renamed to fabro.toml.from-sandbox-1");
    }
}
