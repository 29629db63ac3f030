//! The control files that were there before scripts in a sandbox started. While these run, no other run or agent of the
//! process may read one that they have created: it is renamed when they end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which link it was: its inode and ctime, as inodes are reused.
pub type LinkId = (u64, i64, i64);

/// Control files and directories by their paths. A script may replace a link, and no other file.
pub type ControlFiles = BTreeMap<PathBuf, Option<LinkId>>;

#[derive(Debug)]
struct Running {
    before: ControlFiles,
    link_id: fn(&Path) -> Option<LinkId>,
    /// How many guards have announced scripts there.
    guards: usize,
}

/// By working directory.
static RUNNING: Mutex<BTreeMap<PathBuf, Running>> = Mutex::new(BTreeMap::new());

fn running() -> MutexGuard<'static, BTreeMap<PathBuf, Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Scripts run in a working directory, in which these control files were before. `link_id` finds which link a path
/// is now; `None` if it is none.
pub fn scripts_run(root: &Path, before: ControlFiles, link_id: fn(&Path) -> Option<LinkId>) {
    let mut running = running();
    let new = Running { before, link_id, guards: 0 };
    running.entry(root.to_owned()).or_insert(new).guards += 1;
}

/// These scripts have ended, and what they created has been renamed.
pub fn scripts_ended(root: &Path) {
    let mut running = running();
    if let Some(at) = running.get_mut(root) {
        at.guards -= 1;
        if at.guards == 0 {
            running.remove(root);
        }
    }
}

/// Whether a control file may be that of a script which still runs: it is in its working directory, and was not there
/// before.
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
    fn only_files_from_before_are_not_of_a_script() {
        let root = Path::new("/of/the/test");
        let check = |path: &str| may_be_of_script(&root.join(path));
        assert!(!check("fabro.toml"));
        let before =
            [("sub/.fabro", None), ("CLAUDE.md", Some((1, 2, 3))), ("GEMINI.md", Some((4, 5, 6)))];
        let before: ControlFiles = before.map(|(path, link)| (root.join(path), link)).into();
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
