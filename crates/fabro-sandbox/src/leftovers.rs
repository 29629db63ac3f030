use rustix::process::Pid;

/// Ends the process groups that a driver which died left behind: those with a process whose
/// environment has `name=value` as it was started. SIGTERM, at most two seconds, SIGKILL; the count
/// of groups is returned.
///
/// Neither the group of this process nor one with an ancestor of it is touched. This blocks the
/// thread while it waits. It needs `/proc`, so outside Linux it finds nothing and returns 0, as it
/// does for processes of other users.
pub fn end_leftovers((name, value): (&str, &str)) -> usize {
    #[cfg(target_os = "linux")]
    return linux::end_leftovers(format!("{name}={value}").as_bytes());
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (name, value);
        0
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

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, getpid, kill_process_group};

    use crate::group::GRACE;

    const POLL: Duration = Duration::from_millis(10);

    /// More ancestors than any process has: what bounds the walk if `/proc` changes under it.
    const ANCESTORS: usize = 4096;

    pub(super) fn end_leftovers(marker: &[u8]) -> usize {
        let mut groups: BTreeSet<i32> =
            processes().filter(|&pid| has_marker(pid, marker)).filter_map(group_of).collect();
        for own in own_groups() {
            groups.remove(&own);
        }
        let count = groups.len();
        signal(&groups, Signal::TERM);
        // A stopped process takes its SIGTERM only once it goes on.
        signal(&groups, Signal::CONT);
        let deadline = Instant::now() + GRACE;
        loop {
            let alive = running();
            groups.retain(|group| alive.contains(group));
            if groups.is_empty() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(POLL);
        }
        signal(&groups, Signal::KILL);
        count
    }

    pub(super) fn group_runs(group: Pid) -> bool {
        running().contains(&group.as_raw_nonzero().get())
    }

    fn signal(groups: &BTreeSet<i32>, signal: Signal) {
        for &group in groups {
            // Group 0 is that of kernel threads, 1 that of init: neither is anybody's leftover.
            if let Some(group) = Pid::from_raw(group).filter(|group| !group.is_init()) {
                // The one expected error is that the group has just become empty.
                let _ = kill_process_group(group, signal);
            }
        }
    }

    /// The groups that have a process which has not ended.
    fn running() -> BTreeSet<i32> {
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

    fn has_marker(pid: i32, marker: &[u8]) -> bool {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|entry| entry == marker))
    }

    fn group_of(pid: i32) -> Option<i32> {
        Stat::read(pid).map(|stat| stat.group)
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Stat {
        ended: bool,
        parent: i32,
        group: i32,
    }

    impl Stat {
        fn read(pid: i32) -> Option<Self> {
            // The name of the process may be any bytes.
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            Self::parse(&String::from_utf8_lossy(&stat))
        }

        /// `pid (name) state parent group …`, where the name may itself contain `) `.
        fn parse(stat: &str) -> Option<Self> {
            let (_, fields) = stat.rsplit_once(") ")?;
            let mut fields = fields.split(' ');
            let ended = matches!(fields.next()?, "Z" | "X" | "x");
            let parent = fields.next()?.parse().ok()?;
            let group = fields.next()?.parse().ok()?;
            Some(Self { ended, parent, group })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_stat_line_reads_whatever_the_name() {
            let expected = Some(Stat { ended: false, parent: 7, group: 42 });
            assert_eq!(Stat::parse("9 (sh) S 7 42 1 0 -1"), expected);
            assert_eq!(Stat::parse("9 (a) Z 1 (b) ) S 7 42 1 0 -1"), expected);
            assert_eq!(
                Stat::parse("9 (sh) Z 7 42 1"),
                Some(Stat { ended: true, parent: 7, group: 42 })
            );
            assert_eq!(Stat::parse(""), None);
            assert_eq!(Stat::parse("9 (sh) S"), None);
        }

        #[test]
        fn this_process_and_its_parents_are_known() {
            let own = rustix::process::getpgrp().as_raw_nonzero().get();
            assert!(own_groups().contains(&own));
            assert!(running().contains(&own));
        }
    }
}
