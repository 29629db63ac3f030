//! Files that control git and fabro.

use std::io::Read as _;
use std::path::{Component, Path};

use fabro_types::ControlFile;
use fabro_types::control_files::FABRO_DIR;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::resolve::{Last, resolve};
use super::{FileError, beneath};

/// Which files may not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Files that control git, fabro or later agents: hooks, settings, workflows, instructions; and the run store.
    Control,
    /// The record of runs.
    Record,
}

impl Protection {
    /// Refuses a change of a protected file, by the name that was given: a link may lead there under
    /// another name, also to what has yet to be made.
    pub(super) fn check_write(self, root: &Path, path: &str) -> Result<(), FileError> {
        // Before the rest, because this refuses paths that are too long.
        let inside = resolve(root, path, Last::Followed)?;
        self.check(root, path, &inside)?;
        self.check_remove(root, path)
    }

    /// The same for a removal, which acts on a link itself: checks the name, link or not, and all
    /// directories above it.
    pub(super) fn check_remove(self, root: &Path, path: &str) -> Result<(), FileError> {
        let is_protected_name = |path: &Path| {
            let path = path.to_str().filter(|_| path.file_name().is_some());
            // Paths outside of the root are refused anyway.
            let inside = path.and_then(|path| resolve(root, path, Last::Kept).ok());
            inside.is_some_and(|inside| self.covers(root, &inside))
        };
        refuse_if(path, Path::new(path).ancestors().any(is_protected_name))
    }

    /// Refuses a change of this file, whose path has no links in it.
    pub(super) fn check(self, root: &Path, path: &str, inside: &Path) -> Result<(), FileError> {
        refuse_if(path, self.covers(root, inside))?;
        refuse_if(path, self == Self::Control && makes_repository(root, inside))
    }

    fn covers(self, root: &Path, path: &Path) -> bool {
        let names: Vec<_> = path
            .components()
            .filter_map(|component| match component {
                Component::Normal(name) => Some(name.to_string_lossy()),
                _ => None,
            })
            .collect();
        let names = names.iter().map(|name| &**name);
        match self {
            Self::Record => {
                let mut pairs = names.clone().zip(names.skip(1));
                pairs.any(|(first, second)| {
                    first.eq_ignore_ascii_case(FABRO_DIR) && second.eq_ignore_ascii_case("state")
                })
            }
            Self::Control => match ControlFile::of(names) {
                Some(ControlFile::Git | ControlFile::Found) => true,
                Some(ControlFile::Graph) => is_workflow(root, path),
                None => false,
            },
        }
    }
}

/// Whether a Graphviz file exists and may be a workflow, which has a start.
pub(crate) fn is_workflow(root: &Path, inside: &Path) -> bool {
    const MAX_BYTES: u64 = 16 << 20;
    let Some(name) = inside.file_name() else { return false };
    let parent = inside.parent().unwrap_or(Path::new(""));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = beneath::directory(root, parent)
        .and_then(|directory| rustix::fs::openat(directory, name, flags, Mode::empty()))
    else {
        return false;
    };
    let file = std::fs::File::from(file);
    let mut text = Vec::new();
    let read = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES)
        && file.take(MAX_BYTES).read_to_end(&mut text).is_ok();
    let text = text.to_ascii_lowercase();
    read && ["mdiamond", "start"]
        .iter()
        .any(|word| text.windows(word.len()).any(|part| part == word.as_bytes()))
}

/// Whether git would take a directory above this file for a repository once the file is there: one with
/// a `HEAD`, and with `objects` and `refs`, or a `commondir` that names where they are.
fn makes_repository(root: &Path, inside: &Path) -> bool {
    let mut above = Path::new("").to_owned();
    for name in inside.components() {
        // Where there is no directory yet there is nothing in it.
        let Ok(directory) = beneath::directory(root, &above) else { return false };
        let will_have = |part: &str| {
            name.as_os_str().eq_ignore_ascii_case(part)
                || rustix::fs::statat(&directory, part, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        if will_have("HEAD")
            && (will_have("commondir") || will_have("objects") && will_have("refs"))
        {
            return true;
        }
        above.push(name);
    }
    false
}

fn refuse_if(path: &str, is_protected: bool) -> Result<(), FileError> {
    if is_protected { Err(FileError::Protected(path.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use rustix::fs::CWD;

    use super::*;
    use crate::{Files, LocalFiles};

    #[test]
    fn files_that_control_git_and_fabro_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        let check = |path: &str, expected: bool| {
            assert_eq!(files.write(path, b"x").is_ok(), expected, "{path}");
        };
        check(".gitignore", true);
        check("src/.github/x.yml", true);
        check(".fabro/workflows/x/workflow.toml", false);
        check("sub/.FABRO/x", false);
        check(".git\u{200d}/config", false);
        check(".git. /config", false);
        check("git~1/config", false);
        check(".config/fabro/config.toml", false);
        check(".config/other.toml", true);
        check(".git", false);
        check(".git/config", false);
        check("vendor/dep/.GIT/hooks/pre-push", false);
        check("./a/../.git/config", false);
        check(".fabro/state/fabro.db", false);
        check(".fabro/config.toml", false);
        let full = files.with_full_access();
        for (path, expected) in
            [(".git/config", true), (".fabro/x/workflow.toml", true), (".fabro/state/x", false)]
        {
            assert_eq!(full.write(path, b"x").is_ok(), expected, "{path}");
        }
    }

    #[test]
    fn settings_skills_and_instructions_are_not_written_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("flow.dot"), "digraph { s [shape=Mdiamond] }").unwrap();
        std::fs::write(dir.path().join("calls.dot"), "digraph { main -> open }").unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        for path in [
            "fabro.toml",
            "sub/Fabro.toml",
            "run.toml",
            "flows/x/workflow.toml",
            "flows/release.fabro",
            "AGENTS.md",
            "sub/claude.md",
            ".github/copilot-instructions.md",
            ".claude/skills/pdf/SKILL.md",
            "docs/skills/pdf/SKILL.md",
            ".claude/settings.json",
            ".mcp.json",
            "flow.dot",
        ] {
            assert!(matches!(files.write(path, b"x"), Err(FileError::Protected(_))), "{path}");
            assert!(files.may_write(path).is_err(), "{path}");
        }
        for path in ["calls.dot", "new.dot", "docs/agents.txt"] {
            files.write(path, b"x").unwrap();
        }
        assert!(matches!(files.remove("flow.dot"), Err(FileError::Protected(_))));
        let full = files.with_full_access();
        full.write("fabro.toml", b"x").unwrap();
    }

    #[test]
    fn no_file_makes_a_repository() {
        let parts =
            ["HEAD", "config", "objects/x", "refs/heads/main", "description", "hooks/update"];
        // Whichever comes last, and whether the folder is the root or another.
        for folder in ["", "a/b/", "."] {
            for last in 0..parts.len() {
                let dir = tempfile::tempdir().unwrap();
                let files = LocalFiles::new(dir.path()).unwrap();
                let mut order = parts.to_vec();
                let moved = order.remove(last);
                order.push(moved);
                let path = |part: &str| {
                    if folder == "." { format!("./{part}") } else { format!("{folder}{part}") }
                };
                let written = order.iter().filter(|part| files.write(&path(part), b"x").is_ok());
                let missing = parts.len() - written.count();
                assert!(missing > 0, "{folder} {order:?}");
                let at = dir.path().join(folder);
                let is_repository =
                    ["HEAD", "objects", "refs"].iter().all(|part| at.join(part).exists());
                assert!(!is_repository, "{folder} {order:?}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        files.write("x/commondir", b"../y").unwrap();
        assert!(files.write("x/head", b"ref: refs/heads/main").is_err());
        // One that is there already is not changed.
        std::fs::create_dir_all(dir.path().join("bare.git/refs")).unwrap();
        std::fs::create_dir(dir.path().join("bare.git/objects")).unwrap();
        std::fs::write(dir.path().join("bare.git/HEAD"), "ref: refs/heads/main").unwrap();
        for path in ["bare.git/config", "bare.git/hooks/update"] {
            assert!(matches!(files.write(path, b"x"), Err(FileError::Protected(_))), "{path}");
        }
        assert!(files.with_full_access().write("bare.git/config", b"x").is_ok());
    }

    #[test]
    fn files_written_at_the_same_time_make_no_repository() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let files = LocalFiles::new(dir.path()).unwrap();
            std::thread::scope(|scope| {
                for path in ["HEAD", "objects/x", "refs/x"] {
                    let files = &files;
                    scope.spawn(move || files.write(path, b"x"));
                }
            });
            assert!(!["HEAD", "objects", "refs"].iter().all(|part| dir.path().join(part).exists()));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_directory_swapped_for_a_link_opens_no_protected_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path(".git/hooks")).unwrap();
        std::fs::create_dir(path("sub")).unwrap();
        std::os::unix::fs::symlink(".git/hooks", path("link")).unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let sub = path("sub");
                    let link = path("link");
                    rustix::fs::renameat_with(CWD, &sub, CWD, &link, exchange).unwrap();
                }
            });
            for n in 0..1_500 {
                // Any result, but not there.
                let _ = files.write(&format!("sub/post-merge-{n}"), b"x");
                let _ = files.write("sub/new/post-merge", b"x");
                let _ = files.remove("sub/post-merge-0");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let written: Vec<_> = std::fs::read_dir(path(".git/hooks")).unwrap().collect();
        assert!(written.is_empty(), "{} written", written.len());
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
