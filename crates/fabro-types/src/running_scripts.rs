//! Control files that existed before sandboxed scripts started. While the scripts run, no other run
//! or agent of this process may read a control file that they created: it is renamed when they end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Identifies a symbolic link: its inode, and its ctime in seconds and nanoseconds, as inodes are
/// reused.
pub type LinkId = (u64, i64, i64);

/// Control files and directories by path. Only symbolic links have an id: a script can replace a
/// link, but no other existing control file.
pub type FilesBefore = BTreeMap<PathBuf, Option<LinkId>>;

#[derive(Debug)]
struct Running {
    before: FilesBefore,
    link_id: fn(&Path) -> Option<LinkId>,
    /// How many guards have registered running scripts.
    guards: usize,
}

/// Registered scripts by working directory.
static RUNNING: Mutex<BTreeMap<PathBuf, Running>> = Mutex::new(BTreeMap::new());

fn running() -> MutexGuard<'static, BTreeMap<PathBuf, Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers scripts that start in the working directory `root`. `before` are the control files
/// that exist there now; a later registration for the same directory keeps the first list. `link_id` returns the current id of a
/// symbolic link, and `None` for other files.
pub fn scripts_run(root: &Path, before: FilesBefore, link_id: fn(&Path) -> Option<LinkId>) {
    let mut running = running();
    let new = Running { before, link_id, guards: 0 };
    running.entry(root.to_owned()).or_insert(new).guards += 1;
}

/// Removes one registration, after its scripts have ended and the files that they created were
/// renamed.
pub fn scripts_ended(root: &Path) {
    let mut running = running();
    if let Some(at) = running.get_mut(root) {
        at.guards -= 1;
        if at.guards == 0 {
            running.remove(root);
        }
    }
}

/// Whether a script that is still running may have created a control file: the file is in the
/// working directory of the script, and did not exist before.
pub fn may_be_of_script(path: &Path) -> bool {
    running().iter().filter(|(root, _)| path.starts_with(root)).any(|(root, at)| {
        let is_old = |it: &Path| {
            let before = at.before.get(it);
            before.is_some_and(|link| link.is_none() || *link == (at.link_id)(it))
        };
        !path.ancestors().take_while(|it| it != root).any(is_old)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_may_be_those_of_a_running_script() {
        let root = Path::new("/of/the/test");
        let check = |path: &str| may_be_of_script(&root.join(path));
        assert!(!check("fabro.toml"));
        let before =
            [("sub/.fabro", None), ("CLAUDE.md", Some((1, 2, 3))), ("GEMINI.md", Some((4, 5, 6)))];
        let before: FilesBefore = before.map(|(path, link)| (root.join(path), link)).into();
        for _ in 0..2 {
            // `GEMINI.md` has been replaced.
            scripts_run(root, before.clone(), |_| Some((1, 2, 3)));
        }
        for path in ["fabro.toml", "other/.fabro/config.toml", "sub/AGENTS.md", "GEMINI.md"] {
            assert!(check(path), "{path}");
        }
        assert!(!check("sub/.fabro/config.toml") && !check("CLAUDE.md"));
        assert!(!may_be_of_script(Path::new("/else/fabro.toml")));
        scripts_ended(root);
        assert!(check("fabro.toml"));
        scripts_ended(root);
        assert!(!check("fabro.toml"));
    }
}
