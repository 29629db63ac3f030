//! The record of process groups that run: a driver that was killed leaves it, and its successor ends them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fs::OFlags;

use crate::proc::Identity;

/// The file in the directory of a run.
const FILE: &str = "processes.txt";

/// The length of a line of the file, in bytes: two ids, the time of a start, the id of a boot.
const LINE: usize = 96;

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

/// The files that this process has open.
static OPEN: Mutex<BTreeMap<PathBuf, Arc<Mutex<Lines>>>> = Mutex::new(BTreeMap::new());

/// The file of a run: a line for each group that runs, and blank ones. A file that stays open costs a
/// stage less than one that is created and removed.
#[derive(Debug)]
struct Lines {
    file: File,
    /// Which lines name a group.
    used: Vec<bool>,
}

impl Lines {
    /// The open file of a run, which is created if need be.
    fn open(path: &Path) -> io::Result<Arc<Mutex<Self>>> {
        let mut open = lock(&OPEN);
        if let Some(lines) = open.get(path) {
            return Ok(Arc::clone(lines));
        }
        open.retain(|_, lines| lock(lines).used.contains(&true));
        let create = || options().write(true).truncate(true).open(path);
        let file = create().or_else(|_| {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            create()
        })?;
        let lines = Arc::new(Mutex::new(Self { file, used: Vec::new() }));
        open.insert(path.to_owned(), Arc::clone(&lines));
        Ok(lines)
    }

    /// Writes a line, and returns its number.
    fn add(&mut self, text: &str) -> io::Result<usize> {
        let free = self.used.iter().position(|used| !used);
        let number = free.unwrap_or(self.used.len());
        self.write(number, text)?;
        if free.is_none() {
            self.used.push(false);
        }
        self.used[number] = true;
        Ok(number)
    }

    fn write(&self, number: usize, text: &str) -> io::Result<()> {
        let width = LINE - 1;
        self.file.write_all_at(format!("{text:<width$}\n").as_bytes(), (number * LINE) as u64)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is created if need be. A pipe in its place, which nothing reads, is an error: it would block.
fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

/// The file of a run.
fn file(variable: &str, value: &str) -> Option<PathBuf> {
    let runs = RUNS.read().unwrap_or_else(PoisonError::into_inner);
    let (name, runs_dir) = runs.as_ref()?;
    let is_name = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (name == variable && is_name).then(|| runs_dir.join(value).join(FILE))
}

/// The line of a process group; dropping it makes it blank.
#[derive(Debug, Default)]
pub(crate) struct Record(Option<(Arc<Mutex<Lines>>, usize)>);

impl Record {
    /// Records the group that this process, just started with these variables, leads.
    pub(crate) fn new(pid: i32, env: &[(String, String)]) -> Self {
        let file = env.iter().rev().find_map(|(name, value)| file(name, value));
        let Some(file) = file else { return Self::default() };
        let Some(identity) = Identity::of(pid) else { return Self::default() };
        let written = Lines::open(&file).and_then(|lines| {
            let number = lock(&lines).add(&format!("{pid} {identity}"))?;
            Ok((lines, number))
        });
        // Without the line the group is still found by the variable.
        Self(written.ok())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some((lines, number)) = self.0.take() {
            let mut lines = lock(&lines);
            // A line that stays names a process that has ended.
            let _ = lines.write(number, "");
            lines.used[number] = false;
        }
    }
}

/// The file in the directory of a run with the control groups of its agents, one a line.
const CGROUPS: &str = "cgroups.txt";

/// Records a control group of the run that is named by these variables.
pub(crate) fn add_cgroup(env: &[(String, String)], dir: &Path) {
    let file = env.iter().rev().find_map(|(name, value)| file(name, value));
    let Some(file) = file.map(|file| file.with_file_name(CGROUPS)) else { return };
    let opened = options().append(true).open(file);
    // Without the line, what is in the control group is ended by this process only.
    let _ = opened.and_then(|mut file| writeln!(file, "{}", dir.display()));
}

/// What the driver of a run recorded.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Process groups that still run.
    pub(crate) groups: Vec<i32>,
    /// Directories of control groups, as they were written down.
    pub(crate) cgroups: Vec<PathBuf>,
}

/// The text of a record; none where something else took its place: a pipe would block.
fn read(path: &Path) -> String {
    let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
    if is_file { fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

/// What is recorded of a run; the record is removed.
pub(crate) fn take(variable: &str, value: &str) -> Recorded {
    let Some(file) = file(variable, value) else { return Recorded::default() };
    let cgroups = file.with_file_name(CGROUPS);
    let dirs = read(&cgroups);
    let _ = fs::remove_file(&cgroups);
    let dirs = dirs.lines().map(PathBuf::from);
    lock(&OPEN).remove(&file);
    let text = read(&file);
    let _ = fs::remove_file(&file);
    let running = text.lines().filter_map(|line| {
        let (group, identity) = line.split_once(' ')?;
        let group = group.parse().ok()?;
        Identity::parse(identity)?.leads(group).then_some(group)
    });
    Recorded { groups: running.collect(), cgroups: dirs.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        assert_eq!(read(&file), "");
        fs::write(&file, "1 2\n").unwrap();
        assert_eq!(read(&file), "1 2\n");
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert_eq!(read(&file), "");
    }

    #[test]
    fn a_pipe_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        Lines::open(&file).unwrap_err();
        options().append(true).open(&file).unwrap_err();
        fs::remove_file(&file).unwrap();
        lock(&Lines::open(&file).unwrap()).add("1 2").unwrap();
        assert!(read(&file).starts_with("1 2 "));
    }
}
