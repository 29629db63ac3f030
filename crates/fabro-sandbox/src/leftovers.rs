use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::runtime::Handle;

/// From SIGTERM to SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Ends the process groups that a killed driver left running: those with a process that was started
/// with `name=value` in its environment. SIGTERM, at most two seconds, SIGKILL; the count
/// of groups is returned.
///
/// Neither the group of this process nor one with an ancestor of it is touched. This blocks the
/// thread while it waits. It needs `/proc`, so outside Linux it finds nothing and returns 0, as it
/// does for processes of other users.
pub fn end_leftovers((name, value): (&str, &str)) -> usize {
    let mut left = Leftovers::ask(name, value);
    let count = left.groups.len();
    left.end_within(GRACE);
    count
}

/// Ends what one agent leaves running, in any process group, when it is dropped.
///
/// Programs that are started with the [`variable`](Self::variable) in their environment, and those
/// that these start, are found by it. They get SIGTERM when the mark is dropped, and SIGKILL two
/// seconds later. The drop waits a tenth of a second for them; longer only where no tokio runtime
/// keeps waiting. As [`end_leftovers`], it finds nothing outside Linux.
///
/// ```
/// use std::os::unix::process::CommandExt;
/// use std::process::Command;
///
/// let mark = fabro_sandbox::Mark::new();
/// let (name, value) = mark.variable();
/// let mut server =
///     Command::new("sleep").arg("30").process_group(0).env(name, value).spawn()?;
/// drop(mark);
/// # #[cfg(not(target_os = "linux"))]
/// # server.kill()?;
/// assert!(!server.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Mark {
    value: String,
}

impl Mark {
    const NAME: &str = "FABRO_AGENT";

    /// For what most programs take to end when they are asked.
    const WAIT: Duration = Duration::from_millis(100);

    /// A mark that nothing else has.
    #[expect(clippy::new_without_default, reason = "no two of them are equal")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Another process may have had the same id.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        Self { value: format!("{}-{now}-{count}", std::process::id()) }
    }

    /// The name and value of the variable that marks a program.
    pub fn variable(&self) -> (String, String) {
        (Self::NAME.to_owned(), self.value.clone())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut left = Leftovers::ask(Self::NAME, &self.value);
        if left.gone_within(Self::WAIT) {
            return;
        }
        let mut rest = move || left.end_within(GRACE.saturating_sub(Self::WAIT));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(rest)),
            Err(_) => rest(),
        }
    }
}

/// Whether the group has a process that has not ended; `true` where that cannot be known.
///
/// `kill(2)` counts processes that have ended but whose parent never asks for them, and so cannot
/// answer this where the first process of a container neglects its orphans.
pub(crate) fn group_runs(group: Pid) -> bool {
    #[cfg(target_os = "linux")]
    return linux::group_runs(group);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = group;
        true
    }
}

/// Process groups that were asked to end.
struct Leftovers {
    groups: BTreeSet<i32>,
}

impl Leftovers {
    const POLL: Duration = Duration::from_millis(10);

    fn ask(name: &str, value: &str) -> Self {
        let left = Self { groups: found(format!("{name}={value}").as_bytes()) };
        left.signal(Signal::TERM);
        // A stopped process receives its SIGTERM only when it continues.
        left.signal(Signal::CONT);
        left
    }

    fn end_within(&mut self, limit: Duration) {
        if !self.gone_within(limit) {
            self.signal(Signal::KILL);
        }
    }

    fn gone_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if !self.groups.is_empty() {
                let running = running();
                self.groups.retain(|group| running.contains(group));
            }
            if self.groups.is_empty() || Instant::now() >= deadline {
                return self.groups.is_empty();
            }
            std::thread::sleep(Self::POLL);
        }
    }

    fn signal(&self, signal: Signal) {
        for &group in &self.groups {
            // Group 0 is that of kernel threads, 1 that of init: neither is a leftover.
            if let Some(group) = Pid::from_raw(group).filter(|group| !group.is_init()) {
                // The one expected error is that the group has just become empty.
                let _ = kill_process_group(group, signal);
            }
        }
    }
}

#[cfg(target_os = "linux")]
use linux::{found, running};

#[cfg(not(target_os = "linux"))]
fn found(_marker: &[u8]) -> BTreeSet<i32> {
    BTreeSet::new()
}

#[cfg(not(target_os = "linux"))]
fn running() -> BTreeSet<i32> {
    BTreeSet::new()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, getpid};

    /// More ancestors than any process has: what bounds the walk if `/proc` changes under it.
    const ANCESTORS: usize = 4096;

    /// How long to wait for processes that are in the middle of `execve(2)`, and how often to look.
    /// An `execve` takes microseconds; on a busy machine it can lose the processor in between.
    const EXEC_LIMIT: Duration = Duration::from_secs(2);
    const EXEC_POLL: Duration = Duration::from_millis(1);

    /// `PF_EXITING` and `PF_KTHREAD` in the kernel's `sched.h`: such a process has no environment
    /// and gets none.
    const EXITING_OR_KERNEL: u64 = 0x0000_0004 | 0x0020_0000;

    /// The groups of processes with this in their environment, but for those of this process and
    /// its ancestors.
    pub(super) fn found(marker: &[u8]) -> BTreeSet<i32> {
        let mut groups = BTreeSet::new();
        let mut unknown: Vec<i32> = processes().collect();
        let deadline = Instant::now() + EXEC_LIMIT;
        loop {
            unknown.retain(|&pid| match std::fs::read(format!("/proc/{pid}/environ")) {
                Ok(environ) if environ.is_empty() => {
                    Stat::read(pid).is_some_and(|stat| stat.in_exec)
                }
                Ok(environ) => {
                    if environ.split(|&byte| byte == 0).any(|entry| entry == marker) {
                        groups.extend(Stat::read(pid).map(|stat| stat.group));
                    }
                    false
                }
                Err(_) => false,
            });
            if unknown.is_empty() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(EXEC_POLL);
        }
        for own in own_groups() {
            groups.remove(&own);
        }
        groups
    }

    pub(super) fn group_runs(group: Pid) -> bool {
        running().contains(&group.as_raw_nonzero().get())
    }

    /// The groups that have a process which has not ended.
    pub(super) fn running() -> BTreeSet<i32> {
        let stats = processes().filter_map(Stat::read);
        stats.filter(|stat| !stat.ended).map(|stat| stat.group).collect()
    }

    fn own_groups() -> BTreeSet<i32> {
        let mut groups = BTreeSet::new();
        let mut pid = getpid().as_raw_nonzero().get();
        for _ in 0..ANCESTORS {
            let Some(stat) = Stat::read(pid) else { break };
            groups.insert(stat.group);
            pid = stat.parent;
        }
        groups
    }

    fn processes() -> impl Iterator<Item = i32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Stat {
        ended: bool,
        parent: i32,
        group: i32,
        /// Its new program has no environment yet, although its parent may already have been told
        /// that it started.
        in_exec: bool,
    }

    impl Stat {
        fn read(pid: i32) -> Option<Self> {
            // The name of the process may be any bytes.
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            Self::parse(&String::from_utf8_lossy(&stat))
        }

        /// `pid (name) state parent group …`, where the name may itself contain `) `: the fields of
        /// `proc_pid_stat(5)`, of which `state` is the third.
        fn parse(stat: &str) -> Option<Self> {
            let (_, fields) = stat.rsplit_once(") ")?;
            let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
            let field = |number: usize| fields.get(number - 3).copied();
            let flags: u64 = field(9)?.parse().ok()?;
            let environment_end = field(51)?;
            Some(Self {
                ended: matches!(field(3)?, "Z" | "X" | "x"),
                parent: field(4)?.parse().ok()?,
                group: field(5)?.parse().ok()?,
                in_exec: environment_end == "0" && flags & EXITING_OR_KERNEL == 0,
            })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn line(start: &str, flags: u64, environment_end: u64) -> String {
            format!("{start} 1 0 -1 {flags} {}{environment_end} 0", "1 ".repeat(41))
        }

        #[test]
        fn a_stat_line_reads_whatever_the_name() {
            let stat = |ended, in_exec| Some(Stat { ended, parent: 7, group: 42, in_exec });
            let cases = [
                (line("9 (sh) S 7 42", 0, 500), stat(false, false)),
                (line("9 (a) Z 1 (b) ) S 7 42", 0, 500), stat(false, false)),
                (line("9 (sh) Z 7 42", 0, 500), stat(true, false)),
                (line("9 (sh) R 7 42", 0x0040_0000, 0), stat(false, true)),
                (line("9 (kworker) I 7 42", 0x0020_8040, 0), stat(false, false)),
                (line("9 (sh) R 7 42", 0x0040_0004, 0), stat(false, false)),
                (String::new(), None),
                ("9 (sh) S 7 42 1".to_owned(), None),
            ];
            for (line, expected) in cases {
                assert_eq!(Stat::parse(&line), expected, "{line}");
            }
        }

        #[test]
        fn this_process_and_its_parents_are_known() {
            let own = rustix::process::getpgrp().as_raw_nonzero().get();
            assert!(own_groups().contains(&own));
            assert!(running().contains(&own));
            let stat = Stat::read(getpid().as_raw_nonzero().get()).expect("own stat");
            assert!(!stat.in_exec);
        }
    }
}
