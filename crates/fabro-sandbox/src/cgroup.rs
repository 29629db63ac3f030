//! Control groups of marked programs: what these start stays in the group, in any process group, session or
//! environment it chooses, and is found there after this process was killed.
//!
//! They need cgroup v2 and a directory of it that this process may write: as root, in most containers, and under
//! `systemd-run --user --scope -p Delegate=yes`. Elsewhere there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::proc::group_of;
use crate::record;

/// The control group that this process is in.
static OWN: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    own_dir(&mounts, &groups).filter(|dir| dir.join("cgroup.procs").exists())
});

/// The directories of marks; none where it could not be created.
static DIRS: Mutex<BTreeMap<String, Option<PathBuf>>> = Mutex::new(BTreeMap::new());

/// The variable that marks the programs of an agent.
pub(crate) const MARK: &str = "FABRO_AGENT";

/// How a directory of ours begins.
const PREFIX: &str = "fabro-";

/// The mount of cgroup v2, and below it the group of a process, by its `mountinfo` and `cgroup` in `/proc`.
fn own_dir(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (about, kind) = line.split_once(" - ")?;
        let mut about = about.split(' ').skip(3);
        let root = about.next()?;
        let point = about.next()?;
        kind.starts_with("cgroup2 ").then_some((root, point))
    });
    let (root, point) = mount?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let below = group.strip_prefix(root.trim_end_matches('/')).unwrap_or(group);
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

/// The control group of the mark among these variables; it is created for the first program.
pub(crate) fn of(env: &[(String, String)]) -> Option<PathBuf> {
    let (_, mark) = env.iter().rev().find(|(name, _)| name == MARK)?;
    let mut dirs = DIRS.lock().unwrap_or_else(PoisonError::into_inner);
    if !dirs.contains_key(mark) {
        let dir = OWN.as_ref().map(|own| own.join(format!("{PREFIX}{mark}")));
        let dir = dir.filter(|dir| fs::create_dir(dir).is_ok());
        if let Some(dir) = &dir {
            record::add_cgroup(env, dir);
        }
        dirs.insert(mark.clone(), dir);
    }
    let dir = dirs.get(mark).cloned().flatten()?;
    // A process that is moved first waits for the kernel, a few milliseconds; one that is moved right behind it
    // does not. This process stays where it is.
    let _ = fs::write(dir.with_file_name("cgroup.procs"), "0");
    Some(dir)
}

/// A script for `sh` that enters the control group whose `cgroup.procs` is its `$0`, and becomes the program in
/// its arguments. So a program is in the group before it starts anything, however long this process
/// waits for the processor.
pub(crate) const ENTER: &str = r#"{ echo 0 > "$0"; } 2>/dev/null; exec "$@""#;

/// The shell for [`ENTER`].
pub(crate) const ENTER_SHELL: &str = "/bin/sh";

/// The most processes that are moved for one that has just started.
const MOST_MOVED: usize = 1_000;

/// Puts a process that has just started into a control group, with all that it has started and will start.
pub(crate) fn enter(dir: &Path, pid: i32) {
    let mut open = vec![pid];
    for _ in 0..MOST_MOVED {
        let Some(pid) = open.pop() else { return };
        // What cannot be moved is still found by its variable, its parent or its process group.
        let _ = fs::write(dir.join("cgroup.procs"), pid.to_string());
        // Those that it starts from here on are in the group.
        open.extend(children(pid));
    }
}

/// The children of a process, as far as the kernel lists them (`CONFIG_PROC_CHILDREN`).
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The process groups of the processes in the control group of a mark.
pub(crate) fn groups_of_mark(mark: &str) -> BTreeSet<i32> {
    let dirs = DIRS.lock().unwrap_or_else(PoisonError::into_inner);
    dirs.get(mark).and_then(|dir| Some(groups_in(dir.as_ref()?))).unwrap_or_default()
}

/// The process groups of the processes in a control group and those below it.
pub(crate) fn groups_in(dir: &Path) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        groups.extend(pids.lines().filter_map(|pid| group_of(pid.parse().ok()?)));
        open.extend(below(&dir));
    }
    groups
}

/// The control groups right below one.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

/// Ends what is left in the control group of a mark, and removes it.
pub(crate) fn remove_of_mark(mark: &str) {
    let dir = DIRS.lock().unwrap_or_else(PoisonError::into_inner).remove(mark);
    if let Some(dir) = dir.flatten() {
        remove(&dir);
    }
}

/// Ends what is left in a control group of ours, and removes it.
pub(crate) fn remove(dir: &Path) {
    const ROUNDS: usize = 50;
    const POLL: Duration = Duration::from_millis(2);
    let _ = fs::write(dir.join("cgroup.kill"), "1");
    for _ in 0..ROUNDS {
        if remove_tree(dir) {
            return;
        }
        std::thread::sleep(POLL);
    }
}

/// Whether the control group is gone.
fn remove_tree(dir: &Path) -> bool {
    let is_empty = below(dir).iter().all(|dir| remove_tree(dir));
    is_empty && (fs::remove_dir(dir).is_ok() || !dir.exists())
}

/// Whether this is the path of a control group of ours.
pub(crate) fn is_own(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX)) && dir.join("cgroup.procs").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_enters_its_group_before_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let procs = dir.path().join("cgroup.procs");
        let enter = |procs: &Path, program: &[&str]| {
            let mut shell = std::process::Command::new(ENTER_SHELL);
            shell.args(["-c", ENTER]).arg(procs).args(program).output().unwrap()
        };
        let seen = enter(&procs, &["cat", &procs.to_string_lossy()]);
        assert_eq!(seen.stdout, b"0\n", "itself, and before the program");
        let words = enter(Path::new("/none/cgroup.procs"), &["printf", "<%s>", "a b", "", "$x"]);
        assert_eq!((&*words.stdout, &*words.stderr), (&b"<a b><><$x>"[..], &b""[..]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_process_has_started_already_is_moved_with_it() {
        let script = "sleep 60 & sleep 60 & echo; wait";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script]).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut line).unwrap();
        let started = children(shell.id().cast_signed());
        for pid in &started {
            let pid = rustix::process::Pid::from_raw(*pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        if Path::new("/proc/self/task")
            .join(std::process::id().to_string())
            .join("children")
            .exists()
        {
            assert_eq!(started.len(), 2);
        }
    }

    #[test]
    fn the_own_group_is_below_the_mount() {
        let hybrid = "31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw\n";
        let bound = "40 24 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let old = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let dir =
            |mounts: &str, groups: &str| own_dir(mounts, groups).map(|it| it.display().to_string());
        assert_eq!(dir(hybrid, "1:cpu:/a\n0::/\n").as_deref(), Some("/sys/fs/cgroup/unified/"));
        assert_eq!(dir(unified, "0::/user/x\n").as_deref(), Some("/sys/fs/cgroup/user/x"));
        assert_eq!(dir(bound, "0::/docker/1/a\n").as_deref(), Some("/sys/fs/cgroup/a"));
        assert_eq!(dir(old, "4:cpu:/a\n"), None);
        assert_eq!(dir("", ""), None);
    }
}
