//! Working directories that a run may not have.

use std::path::Path;

use fabro_config::project_dir;
use fabro_types::control_files::{FABRO_DIR, USER_DIR};

use crate::error::SetupError;
use crate::sandbox::store_of;

/// Refuses a working directory in a store, or with Fabro's settings. Control files are protected by their path in the
/// working directory, so those above it would not be recognized. A project in such a directory is allowed, for example
/// the worktree of a run.
///
/// # Errors
///
/// The working directory is refused.
pub(crate) fn check_work_dir(work_dir: &Path, runs_dir: &Path) -> Result<(), SetupError> {
    let Ok(dir) = work_dir.canonicalize() else { return Ok(()) };
    let store = store_of(runs_dir).canonicalize().ok();
    let root = project_dir(&dir).unwrap_or(Path::new("/"));
    let mut in_project = dir.ancestors().take_while(|dir| dir.starts_with(root));
    let is_store = |dir: &Path| Some(dir) == store.as_deref();
    let is_refused =
        |dir: &&Path| is_store(dir) || dir.ends_with(FABRO_DIR) || dir.ends_with(USER_DIR);
    let Some(refused) = in_project.find(is_refused) else { return Ok(()) };
    let kind = if is_store(refused) { "the store" } else { "the settings directory" };
    Err(SetupError::new(
        format!(
            "the working directory {} is in {kind} {}, which agents may not write",
            dir.display(),
            refused.display()
        ),
        "run in the directory of the project",
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_run_does_not_work_in_a_store_or_in_settings() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("store/runs");
        let run = runs.join("1");
        fs::create_dir_all(&run).unwrap();
        fs::write(dir.path().join("store/fabro.db"), "").unwrap();
        assert!(check_work_dir(&run, &runs).is_err());
        let project = dir.path().join("project");
        let put = |path: &str| {
            let path = project.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        for path in [
            ".fabro/config.toml",
            ".fabro/workflows/x.fabro",
            ".fabro/state/fabro.db",
            ".fabro/state/runs/1/worktree/.git",
            "store/fabro.db",
            "store/runs/1/log",
            "sub/.config/fabro/config.toml",
        ] {
            put(path);
        }
        let check = |work_dir: &str, runs: &str, expect: bool| {
            let checked = check_work_dir(&project.join(work_dir), &project.join(runs));
            assert_eq!(checked.is_ok(), expect, "{work_dir} {checked:?}");
        };
        let runs = ".fabro/state/runs";
        check("", runs, true);
        check("store", runs, true);
        check(".fabro", runs, false);
        check(".fabro/workflows", runs, false);
        check(".fabro/state/runs/1", "store/runs", false);
        check(".fabro/state/runs/1/worktree", runs, true);
        check("store", "store/runs", false);
        check("store/runs/1", "store/runs", false);
        check("sub/.config/fabro", runs, false);
        check("missing", runs, true);
    }
}
