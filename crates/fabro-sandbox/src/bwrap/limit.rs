//! The limit on processes: a control group with the controller `pids` where this process may create one, and
//! `RLIMIT_NPROC`, which does not hold for root.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

/// How a directory of ours begins; the id of the process that created it follows.
const PREFIX: &str = "fabro-pids-";

#[derive(Debug)]
pub(super) struct ProcessLimit {
    max: u32,
    cgroup: Option<PathBuf>,
}

impl ProcessLimit {
    pub(super) fn new(max: u32) -> Self {
        Self { max, cgroup: parent().and_then(|parent| create(&parent, max)) }
    }

    /// What precedes the command: a shell that enters the control group.
    pub(super) fn outer_arguments(&self) -> io::Result<Vec<OsString>> {
        let Some(dir) = &self.cgroup else { return Ok(Vec::new()) };
        let procs = dir.join("cgroup.procs");
        // Where it was removed, the limit would not hold.
        fs::metadata(&procs)?;
        let enter = "echo 0 > \"$0\" && exec \"$@\"";
        Ok(vec!["/bin/sh".into(), "-c".into(), enter.into(), procs.into()])
    }

    /// What precedes the program in the sandbox: a shell that sets the limit of the user. The count is that of the
    /// sandbox, because it is a user namespace of its own.
    pub(super) fn inner_arguments(&self) -> Vec<OsString> {
        if self.cgroup.is_some() {
            return Vec::new();
        }
        let limit = "ulimit -u \"$0\" 2>/dev/null || ulimit -p \"$0\" 2>/dev/null; exec \"$@\"";
        vec!["/bin/sh".into(), "-c".into(), limit.into(), self.max.to_string().into()]
    }
}

impl Drop for ProcessLimit {
    fn drop(&mut self) {
        const ROUNDS: usize = 20;
        let Some(dir) = &self.cgroup else { return };
        for _ in 0..ROUNDS {
            match fs::remove_dir(dir) {
                // The last processes have just been killed.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

/// The directory in which a control group with a limit of processes can be created.
fn parent() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    parent_in(&mounts, &groups, |dir| {
        fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default()
    })
}

/// Of version 1 the group of this process in the hierarchy `pids`; of version 2 its group, if that gives the
/// controller to groups below it.
fn parent_in(
    mounts: &str,
    groups: &str,
    controllers_below: impl Fn(&Path) -> String,
) -> Option<PathBuf> {
    let mounted = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let (about, system) = line.split_once(" - ")?;
            let mut system = system.split(' ');
            let is_it = system.next() == Some(kind)
                && option.is_none_or(|option| {
                    system.next_back().is_some_and(|it| it.split(',').any(|it| it == option))
                });
            let mut about = about.split(' ').skip(3);
            let root = about.next()?;
            let point = about.next()?;
            is_it.then_some((root, point))
        })
    };
    let own = |(root, point): (&str, &str), group: &str| {
        let below = group.strip_prefix(root.trim_end_matches('/')).unwrap_or(group);
        Path::new(point).join(below.trim_start_matches('/'))
    };
    let group = |is_it: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, group) = rest.split_once(':')?;
            is_it(controllers).then_some(group)
        })
    };
    if let Some(mount) = mounted("cgroup", Some("pids")) {
        return Some(own(mount, group(&|it| it.split(',').any(|it| it == "pids"))?));
    }
    let dir = own(mounted("cgroup2", None)?, group(&str::is_empty)?);
    controllers_below(&dir).split_whitespace().any(|it| it == "pids").then_some(dir)
}

fn create(parent: &Path, max: u32) -> Option<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    remove_left(parent);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = parent.join(format!("{PREFIX}{}-{count}", std::process::id()));
    match fs::create_dir(&dir) {
        Ok(()) => {}
        // Of a process that had the same id.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(_) => return None,
    }
    if fs::write(dir.join("pids.max"), max.to_string()).is_ok() {
        return Some(dir);
    }
    let _ = fs::remove_dir(&dir);
    None
}

/// Removes the groups that killed processes left; one with processes in it stays.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let owner = owner.and_then(|id| Pid::from_raw(id.parse().ok()?));
        if owner.is_some_and(|id| test_kill_process(id) == Err(rustix::io::Errno::SRCH)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_processes_can_be_limited() {
        let v1 = "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw\n";
        let check = |mounts: &str, groups: &str, below: &str, expected: Option<&str>| {
            let dir = parent_in(mounts, groups, |_| below.to_owned());
            assert_eq!(dir.as_deref(), expected.map(Path::new));
        };
        check(v1, "8:pids:/a\n0::/\n", "", Some("/sys/fs/cgroup/pids/a"));
        check(v1, "0::/\n", "", None);
        check(v2, "0::/user/x\n", "memory pids\n", Some("/sys/fs/cgroup/user/x"));
        check(v2, "0::/user/x\n", "memory\n", None);
        check("", "", "pids", None);
    }
}
