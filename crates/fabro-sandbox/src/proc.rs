//! What `/proc` says of processes: process groups, environments, and who a process is. Without `/proc` nothing is found.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Pid;

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

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    Identity, adopt_orphans, clock_ticks, end_orphans, found, group_of, orphans, own_groups,
    running,
};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{
    Identity, adopt_orphans, clock_ticks, end_orphans, found, group_of, orphans, own_groups,
    running,
};

/// Whose orphans to spare.
pub(crate) struct Others {
    /// The marks of agents that have not ended.
    pub(crate) live: BTreeSet<String>,
    /// The marks of servers, each with the leader of its process group once it runs.
    pub(crate) servers: BTreeMap<String, Option<i32>>,
    /// Whether a script of the author ran at the same time: it may leave a server for later stages.
    pub(crate) with_scripts: bool,
}

/// Without `/proc` nothing is found.
#[cfg(not(target_os = "linux"))]
mod other {
    use std::collections::BTreeSet;

    use super::Others;

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

    pub(crate) fn adopt_orphans() {}

    pub(crate) fn clock_ticks() -> u64 {
        0
    }

    pub(crate) fn found(_marker: &[u8]) -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub(crate) fn orphans(
        _started: std::ops::RangeInclusive<u64>,
        _children: &BTreeSet<i32>,
        _others: &Others,
    ) -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub(crate) fn end_orphans(
        _started: std::ops::RangeInclusive<u64>,
        _children: &BTreeSet<i32>,
        _others: &Others,
    ) -> bool {
        false
    }

    pub(crate) fn own_groups() -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub(crate) fn running() -> BTreeSet<i32> {
        BTreeSet::new()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt;
    use std::ops::RangeInclusive;
    use std::sync::{LazyLock, Once};
    use std::time::{Duration, Instant};

    use rustix::process::{
        Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper,
        waitpid,
    };
    use rustix::time::{ClockId, clock_gettime};

    use super::Others;

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
    pub(crate) fn found(marker: &[u8]) -> BTreeSet<i32> {
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
    pub(crate) fn running() -> BTreeSet<i32> {
        let stats = processes().filter_map(Stat::read);
        stats.filter(|stat| !stat.ended).map(|stat| stat.group).collect()
    }

    /// Makes this process the parent of the orphans below it, once.
    pub(crate) fn adopt_orphans() {
        static ADOPTING: Once = Once::new();
        // A kernel that refuses it (before 3.4) leaves those that have the variable.
        ADOPTING.call_once(|| {
            let _ = set_child_subreaper(Some(getpid()));
        });
    }

    /// The time since the system started, in the unit of start times: a hundredth of a second, for every
    /// program.
    pub(crate) fn clock_ticks() -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec.cast_unsigned() * 100 + now.tv_nsec.cast_unsigned() / 10_000_000
    }

    /// The groups of orphans that this process has adopted and that were started then, and of all below them. Left out
    /// are those of scripts, of agents with a live mark, and children that this process has started itself. What has ended
    /// is removed from the table of processes, and its group is among them: a process that forks again and again is gone
    /// before it is looked at, but leaves its parents here, in its group.
    pub(crate) fn orphans(
        started: RangeInclusive<u64>,
        children: &BTreeSet<i32>,
        others: &Others,
    ) -> BTreeSet<i32> {
        let since = *started.start();
        let own = getpid().as_raw_nonzero().get();
        let own_group = own_group();
        let stats: BTreeMap<i32, Stat> =
            processes().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        let is_orphan = |(pid, stat): &(&i32, &Stat)| {
            stat.parent == own
                && started.contains(&stat.start)
                && stat.group != own_group
                && !children.contains(*pid)
        };
        let mut groups = BTreeSet::new();
        let mut pending = Vec::new();
        for (pid, stat) in stats.iter().filter(is_orphan) {
            if stat.ended {
                let mut members =
                    stats.iter().filter(|(_, it)| it.group == stat.group && !it.ended);
                if !members.any(|(pid, it)| is_of_others(*pid, it, since, others)) {
                    groups.insert(stat.group);
                }
            } else if !is_of_others(*pid, stat, since, others) {
                pending.push(*pid);
            }
        }
        while let Some(pid) = pending.pop() {
            groups.extend(stats.get(&pid).map(|stat| stat.group));
            let below = stats.iter().filter(|(_, stat)| stat.parent == pid && !stat.ended);
            pending.extend(below.map(|(pid, _)| *pid));
        }
        groups.retain(|group| !children.contains(group));
        for own in own_groups() {
            groups.remove(&own);
        }
        groups
    }

    /// Kills the orphans that this process has adopted and that have these start times, without scanning all processes:
    /// one that forks repeatedly, each time into a new group, has ended before `/proc` is read. Returns whether there
    /// were any. Spares the same processes as [`orphans`].
    pub(crate) fn end_orphans(
        started: RangeInclusive<u64>,
        children: &BTreeSet<i32>,
        others: &Others,
    ) -> bool {
        let since = *started.start();
        let own_group = own_group();
        let mut any = false;
        let mut spared = BTreeSet::from([own_group]);
        let mut ended = Vec::new();
        for pid in own_children().filter(|pid| !children.contains(pid)) {
            let Some(stat) = Stat::read(pid) else { continue };
            let is_orphan = started.contains(&stat.start) && stat.group != own_group;
            let Some(id) = Pid::from_raw(pid).filter(|_| is_orphan) else { continue };
            if stat.ended {
                ended.push((id, stat.group));
            } else if is_of_others(pid, &stat, since, others) {
                spared.insert(stat.group);
            } else {
                any = true;
                // The only expected error: it has just ended.
                let _ = kill_process(id, Signal::KILL);
            }
        }
        for (id, group) in ended {
            any = true;
            if !spared.contains(&group)
                && !children.contains(&group)
                && let Some(group) = Pid::from_raw(group)
            {
                // As long as the process is not reaped, no other group gets the id.
                let _ = kill_process_group(group, Signal::KILL);
            }
            // The only expected error: another thread reaped it first.
            let _ = waitpid(Some(id), WaitOptions::NOHANG);
        }
        any
    }

    /// The children of this process; all processes where the kernel has no such list.
    fn own_children() -> Box<dyn Iterator<Item = i32>> {
        let own = getpid().as_raw_nonzero().get();
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let lists: Result<Vec<_>, _> =
            threads.map(|thread| std::fs::read_to_string(thread.path().join("children"))).collect();
        match lists {
            Ok(lists) => {
                let ids = lists.concat();
                let ids: Vec<i32> =
                    ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
                Box::new(ids.into_iter())
            }
            Err(_) => Box::new(
                processes().filter(move |pid| Stat::read(*pid).is_some_and(|it| it.parent == own)),
            ),
        }
    }

    /// Whether the author's script started it, which may leave a server for later stages, or an agent
    /// that has not ended, or a server. The variable of scripts alone says little, for any program can set it: a script has
    /// to have run at the same time, or the process belongs to a session that began before the agent, and is not that of
    /// fabro, in which agents are too. An agent can read the mark of a server: its process has to be one of the server.
    fn is_of_others(pid: i32, stat: &Stat, since: u64, others: &Others) -> bool {
        let is_of_marked = |entry: &[u8]| {
            let value = entry.strip_prefix(b"FABRO_AGENT=").and_then(|it| str::from_utf8(it).ok());
            value.is_some_and(|value| {
                others.live.contains(value)
                    || others.servers.get(value).is_some_and(|leader| {
                        leader.is_some_and(|leader| stat.group == leader || descends(pid, leader))
                    })
            })
        };
        let is_of_script = || {
            others.with_scripts
                || stat.session != own_session()
                    && Stat::read(stat.session).is_some_and(|leader| leader.start < since)
        };
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            let mut entries = environ.split(|byte| *byte == 0);
            entries.any(|entry| {
                is_of_marked(entry) || entry.starts_with(b"FABRO_NODE=") && is_of_script()
            })
        })
    }

    /// Whether a process was started by this ancestor, or by one that this ancestor started.
    fn descends(mut pid: i32, ancestor: i32) -> bool {
        for _ in 0..ANCESTORS {
            if pid == ancestor {
                return true;
            }
            let Some(stat) = Stat::read(pid) else { break };
            pid = stat.parent;
        }
        false
    }

    /// The group of this process; 0 in a container that was started in a group from outside, which
    /// `getpgrp` of rustix does not accept.
    fn own_group() -> i32 {
        Stat::read(getpid().as_raw_nonzero().get()).map_or(0, |stat| stat.group)
    }

    /// The session of this process; 0 as for [`own_group`].
    fn own_session() -> i32 {
        Stat::read(getpid().as_raw_nonzero().get()).map_or(0, |stat| stat.session)
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

    pub(crate) fn own_groups() -> BTreeSet<i32> {
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
            let own = own_group();
            assert!(own_groups().contains(&own));
            assert!(running().contains(&own));
            let stat = Stat::read(getpid().as_raw_nonzero().get()).expect("own stat");
            assert!(!stat.in_exec);
        }
    }
}
