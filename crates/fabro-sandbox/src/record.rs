//! The record of process groups that run: a driver that was killed leaves it, and its successor ends them.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use crate::leftovers::Identity;

/// The directory in that of a run.
const DIRECTORY: &str = "processes";

/// The variable whose value is the name of a run, and the directory of the runs' directories.
static RUNS: RwLock<Option<(String, PathBuf)>> = RwLock::new(None);

/// Records the process groups that this process starts from now on, as long as they run: those with
/// `variable` in their environment in a directory below `runs_dir` with the name of its value.
/// [`end_leftovers`](crate::end_leftovers) ends them too, although they may have removed the variable.
///
/// A process is known by its id and the time it started, so none that got the id later is ended. There is
/// one such directory in a process: the last one.
pub fn record_processes(variable: &str, runs_dir: &Path) {
    let runs = (variable.to_owned(), runs_dir.to_owned());
    *RUNS.write().unwrap_or_else(PoisonError::into_inner) = Some(runs);
}

/// The directory of the records of a run.
fn directory(variable: &str, value: &str) -> Option<PathBuf> {
    let runs = RUNS.read().unwrap_or_else(PoisonError::into_inner);
    let (name, runs_dir) = runs.as_ref()?;
    let is_name = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (name == variable && is_name).then(|| runs_dir.join(value).join(DIRECTORY))
}

/// The file of a process group; dropping it removes the file.
#[derive(Debug, Default)]
pub(crate) struct Record(Option<PathBuf>);

impl Record {
    /// Records the group that this process, just started with these variables, leads.
    pub(crate) fn new(pid: i32, env: &[(String, String)]) -> Self {
        let dirs = env.iter().rev().find_map(|(name, value)| directory(name, value));
        let Some(dir) = dirs else { return Self::default() };
        let Some(identity) = Identity::of(pid) else { return Self::default() };
        let file = dir.join(pid.to_string());
        let text = identity.to_string();
        let written = std::fs::write(&file, &text).or_else(|_| {
            std::fs::create_dir_all(&dir)?;
            std::fs::write(&file, &text)
        });
        // Without the file the group is still found by the variable.
        Self(written.ok().map(|()| file))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // One that stays names a process that has ended.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The recorded groups of a run that still run; the record is emptied.
pub(crate) fn take(variable: &str, value: &str) -> Vec<i32> {
    let Some(dir) = directory(variable, value) else { return Vec::new() };
    let mut groups = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let group = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if let (Some(group), Some(identity)) = (group, Identity::parse(&text))
            && identity.leads(group)
        {
            groups.push(group);
        }
        let _ = std::fs::remove_file(entry.path());
    }
    groups
}
