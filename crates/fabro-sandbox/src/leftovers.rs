use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::runtime::Handle;

use crate::cgroup;

/// From SIGTERM to SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Ends the process groups that a killed driver left running: those with a process that was started
/// with `name=value` in its environment, and those that it [recorded](crate::record_processes). SIGTERM, at
/// most two seconds, SIGKILL; the count of groups is returned.
///
/// Neither the group of this process nor one with an ancestor of it is touched. This blocks the
/// thread while it waits. It needs `/proc`, so outside Linux it finds nothing and returns 0, as it
/// does for processes of other users.
pub fn end_leftovers((name, value): (&str, &str)) -> usize {
    let recorded = crate::record::take(name, value);
    let mut left = Leftovers::find(name, value, None);
    left.groups.extend(recorded.groups);
    left.groups.extend(recorded.cgroups.iter().flat_map(|dir| cgroup::groups_in(dir)));
    for own in own_groups() {
        left.groups.remove(&own);
    }
    let count = left.groups.len();
    left.ask();
    left.end_within(GRACE);
    recorded.cgroups.iter().for_each(|dir| cgroup::remove(dir));
    count
}

/// Ends what one agent leaves running, in any process group, when it is dropped.
///
/// Programs that are started with the [`variable`](Self::variable) in their environment, and those
/// that these start, are found by it. On Linux so are those that removed the variable and left their process
/// group and session: from the first mark on, this process becomes the parent of orphans below it
/// (`PR_SET_CHILD_SUBREAPER`), and an orphan that was started while the mark existed is ended with it, unless it
/// has the variable `FABRO_NODE` of scripts. Whose orphan it is cannot be known while there are several marks: then
/// it is ended with the last of them.
///
/// They get SIGTERM when the mark is dropped, and SIGKILL two
/// seconds later. The drop waits a tenth of a second for them; longer only where no tokio runtime
/// keeps waiting, and [`marks_ended`] waits for the rest. As [`end_leftovers`], it finds nothing outside Linux.
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

/// The marks that exist.
static LIVE: Mutex<LiveMarks> = Mutex::new(LiveMarks { values: BTreeSet::new(), since: 0 });

struct LiveMarks {
    values: BTreeSet<String>,
    /// When the first of them was created after there had been none, as the start times of processes are
    /// given.
    since: u64,
}

impl LiveMarks {
    fn lock() -> MutexGuard<'static, Self> {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&mut self, value: &str) {
        if self.values.is_empty() {
            self.since = clock_ticks();
        }
        self.values.insert(value.to_owned());
    }

    /// The orphans that may be ended with this mark: none while there are others.
    fn remove(&mut self, value: &str) -> Option<OrphanTimes> {
        self.values.remove(value);
        let times = OrphanTimes { since: self.since, until: clock_ticks() };
        self.values.is_empty().then_some(times)
    }
}

/// When orphans were started that no mark is left for. Those that were started later may be those of new marks.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "orphans are found in /proc"))]
struct OrphanTimes {
    since: u64,
    until: u64,
}

impl Mark {
    pub(crate) const NAME: &str = "FABRO_AGENT";

    /// For what most programs take to end when they are asked.
    const WAIT: Duration = Duration::from_millis(100);

    /// A mark that nothing else has.
    #[expect(clippy::new_without_default, reason = "no two of them are equal")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Another process may have had the same id.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        adopt_orphans();
        let value = format!("{}-{now}-{count}", std::process::id());
        LiveMarks::lock().add(&value);
        Self { value }
    }

    /// The name and value of the variable that marks a program.
    pub fn variable(&self) -> (String, String) {
        (Self::NAME.to_owned(), self.value.clone())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let find = {
            let value = self.value.clone();
            let times = LiveMarks::lock().remove(&value);
            move || {
                let mut found = Leftovers::find(Self::NAME, &value, times);
                found.groups.extend(cgroup::groups_of_mark(&value));
                found
            }
        };
        let value = self.value.clone();
        let mut left = find();
        left.ask();
        if left.gone_within(Self::WAIT) {
            cgroup::remove_of_mark(&value);
            return;
        }
        let pending = Pending::new();
        let rest = move || {
            left.end_within(GRACE.saturating_sub(Self::WAIT));
            // What they started in the meantime has this process as its parent now.
            for _ in 0..Leftovers::ROUNDS {
                let mut more = find();
                if more.groups.is_empty() {
                    break;
                }
                more.signal(Signal::KILL);
                more.gone_within(Self::WAIT);
            }
            cgroup::remove_of_mark(&value);
            drop(pending);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(rest)),
            Err(_) => rest(),
        }
    }
}

/// The marks whose processes have not all ended.
static PENDING: Mutex<usize> = Mutex::new(0);
static PENDING_ENDED: Condvar = Condvar::new();

struct Pending;

impl Pending {
    fn new() -> Self {
        *PENDING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        *PENDING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        PENDING_ENDED.notify_all();
    }
}

/// Waits until the processes of all dropped [`Mark`]s have ended: a few seconds at most. To be called before
/// this process exits.
pub async fn marks_ended() {
    if *PENDING.lock().unwrap_or_else(PoisonError::into_inner) == 0 {
        return;
    }
    let wait = || {
        let pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
        drop(PENDING_ENDED.wait_while(pending, |pending| *pending > 0));
    };
    if let Err(panic) = tokio::task::spawn_blocking(wait).await {
        std::panic::resume_unwind(panic.into_panic());
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

    /// How often what is left is looked for, when it starts more while it is ended.
    const ROUNDS: usize = 20;

    /// The groups with the variable, and those of orphans that were started then.
    fn find(name: &str, value: &str, times: Option<OrphanTimes>) -> Self {
        let mut groups = found(format!("{name}={value}").as_bytes());
        groups.extend(times.into_iter().flat_map(orphans));
        Self { groups }
    }

    fn ask(&self) {
        self.signal(Signal::TERM);
        // A stopped process receives its SIGTERM only when it continues.
        self.signal(Signal::CONT);
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
pub(crate) use linux::Identity;
#[cfg(target_os = "linux")]
pub(crate) use linux::group_of;
#[cfg(target_os = "linux")]
use linux::{adopt_orphans, clock_ticks, found, orphans, own_groups, running};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::Identity;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::group_of;
#[cfg(not(target_os = "linux"))]
use other::{adopt_orphans, clock_ticks, found, orphans, own_groups, running};

/// Without `/proc` nothing is found.
#[cfg(not(target_os = "linux"))]
mod other {
    use std::collections::BTreeSet;

    pub(crate) struct Identity;

    impl Identity {
        pub(crate) fn of(_pid: i32) -> Option<Self> {
            None
        }

        pub(crate) fn parse(_text: &str) -> Option<Self> {
            None
        }

        pub(crate) fn leads(&self, _group: i32) -> bool {
            false
        }
    }

    impl std::fmt::Display for Identity {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Ok(())
        }
    }

    pub(crate) fn group_of(_pid: i32) -> Option<i32> {
        None
    }

    pub(super) fn adopt_orphans() {}

    pub(super) fn clock_ticks() -> u64 {
        0
    }

    pub(super) fn found(_marker: &[u8]) -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub(super) fn orphans(_times: super::OrphanTimes) -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub(super) fn own_groups() -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub(super) fn running() -> BTreeSet<i32> {
        BTreeSet::new()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt;
    use std::sync::{LazyLock, Once};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, WaitOptions, getpgrp, getpid, set_child_subreaper, waitpid};
    use rustix::time::{ClockId, clock_gettime};

    use super::{LiveMarks, OrphanTimes};

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

    /// The process group of a process that runs, unless this process or an ancestor of it is in that group.
    pub(crate) fn group_of(pid: i32) -> Option<i32> {
        let stat = Stat::read(pid).filter(|stat| !stat.ended)?;
        (!own_groups().contains(&stat.group)).then_some(stat.group)
    }

    pub(super) fn group_runs(group: Pid) -> bool {
        running().contains(&group.as_raw_nonzero().get())
    }

    /// The groups that have a process which has not ended.
    pub(super) fn running() -> BTreeSet<i32> {
        let stats = processes().filter_map(Stat::read);
        stats.filter(|stat| !stat.ended).map(|stat| stat.group).collect()
    }

    /// Makes this process the parent of the orphans below it, once.
    pub(super) fn adopt_orphans() {
        static ADOPTING: Once = Once::new();
        // A kernel that refuses it (before 3.4) leaves those that have the variable.
        ADOPTING.call_once(|| {
            let _ = set_child_subreaper(Some(getpid()));
        });
    }

    /// The time since the system started, in the unit of start times: a hundredth of a second, for every
    /// program.
    pub(super) fn clock_ticks() -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec.cast_unsigned() * 100 + now.tv_nsec.cast_unsigned() / 10_000_000
    }

    /// The groups of orphans that this process has adopted and that were started then, and of all below
    /// them. Those of scripts and of other marks are left out. What has ended is removed from the table of processes.
    pub(super) fn orphans(times: OrphanTimes) -> BTreeSet<i32> {
        // Held, so that no child is seen that is not yet known as one.
        let children = crate::group::children();
        let live = LiveMarks::lock().values.clone();
        let until = if live.is_empty() { u64::MAX } else { times.until };
        let own = getpid().as_raw_nonzero().get();
        let own_group = getpgrp().as_raw_nonzero().get();
        let stats: BTreeMap<i32, Stat> =
            processes().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        let is_orphan = |(pid, stat): &(&i32, &Stat)| {
            stat.parent == own
                && (times.since..=until).contains(&stat.start)
                && stat.group != own_group
                && !children.contains(*pid)
        };
        let mut groups = BTreeSet::new();
        let mut pending = Vec::new();
        for (pid, stat) in stats.iter().filter(is_orphan) {
            if stat.ended {
                // The one expected error is that another thread was faster.
                let _ = waitpid(Pid::from_raw(*pid), WaitOptions::NOHANG);
            } else if !is_of_others(*pid, &live) {
                pending.push(*pid);
            }
        }
        while let Some(pid) = pending.pop() {
            groups.extend(stats.get(&pid).map(|stat| stat.group));
            let below = stats.iter().filter(|(_, stat)| stat.parent == pid && !stat.ended);
            pending.extend(below.map(|(pid, _)| *pid));
        }
        groups.retain(|group| !children.contains(group));
        drop(children);
        for own in own_groups() {
            groups.remove(&own);
        }
        groups
    }

    /// Whether the author's script started it, which may leave a server for later stages, or an agent
    /// that has not ended.
    fn is_of_others(pid: i32, live: &BTreeSet<String>) -> bool {
        let is_of_live = |entry: &[u8]| {
            let value = entry.strip_prefix(b"FABRO_AGENT=").and_then(|it| str::from_utf8(it).ok());
            value.is_some_and(|value| live.contains(value))
        };
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            let mut entries = environ.split(|byte| *byte == 0);
            entries.any(|entry| entry.starts_with(b"FABRO_NODE=") || is_of_live(entry))
        })
    }

    /// What distinguishes a process from a later one of the same id: when it was started, in which
    /// session, and since which start of the system.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Identity {
        start: u64,
        session: i32,
        boot: String,
    }

    impl Identity {
        pub(crate) fn of(pid: i32) -> Option<Self> {
            let stat = Stat::read(pid)?;
            Some(Self { start: stat.start, session: stat.session, boot: boot()?.to_owned() })
        }

        pub(crate) fn parse(text: &str) -> Option<Self> {
            let mut words = text.split_ascii_whitespace();
            let start = words.next()?.parse().ok()?;
            let session = words.next()?.parse().ok()?;
            Some(Self { start, session, boot: words.next()?.to_owned() })
        }

        /// Whether the process group is still the one that this process was started as the leader of.
        pub(crate) fn leads(&self, group: i32) -> bool {
            if boot().is_none_or(|boot| boot != self.boot) {
                return false;
            }
            if let Some(leader) = Stat::read(group) {
                return leader.start == self.start && leader.group == group;
            }
            // No process gets the id of a group that exists.
            let members = processes().filter_map(Stat::read).filter(|stat| stat.group == group);
            let mut members = members.peekable();
            members.peek().is_some()
                && members.all(|stat| stat.session == self.session && stat.start >= self.start)
        }
    }

    impl fmt::Display for Identity {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {} {}", self.start, self.session, self.boot)
        }
    }

    fn boot() -> Option<&'static str> {
        static BOOT: LazyLock<Option<String>> = LazyLock::new(|| {
            let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            Some(id.trim().to_owned())
        });
        BOOT.as_deref()
    }

    pub(super) fn own_groups() -> BTreeSet<i32> {
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
        session: i32,
        /// In hundredths of a second since the system started.
        start: u64,
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
                session: field(6)?.parse().ok()?,
                start: field(22)?.parse().ok()?,
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
            let stat = |ended, in_exec| {
                Some(Stat { ended, parent: 7, group: 42, session: 1, start: 1, in_exec })
            };
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
