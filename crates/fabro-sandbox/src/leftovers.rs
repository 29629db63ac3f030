use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::runtime::Handle;

use crate::cgroup;
use crate::group::{self, GRACE};
use crate::proc::{Others, adopt_orphans, clock_ticks, found, own_groups, running};
use crate::record;

/// Ends the process groups that a killed driver left running: those with a process that was started
/// with `name=value` in its environment, and those that it [recorded](crate::record_processes). SIGTERM, at
/// most two seconds, SIGKILL; the count of groups is returned.
///
/// Neither the group of this process nor one with an ancestor of it is touched. This blocks the
/// thread while it waits. It needs `/proc`, so outside Linux it finds nothing and returns 0, as it
/// does for processes of other users.
pub fn end_leftovers((name, value): (&str, &str)) -> usize {
    let recorded = record::take(name, value);
    let cgroups: Vec<_> = recorded.cgroups.iter().filter(|dir| cgroup::is_own(dir)).collect();
    let mut left = Leftovers::find(name, value, None);
    left.groups.extend(recorded.groups);
    left.groups.extend(cgroups.iter().flat_map(|dir| cgroup::groups_in(dir)));
    for own in own_groups() {
        left.groups.remove(&own);
    }
    let count = left.groups.len();
    left.ask();
    left.end_within(GRACE);
    for dir in &cgroups {
        cgroup::remove(dir);
    }
    count
}

/// Ends what one agent leaves running, in any process group, when it is dropped.
///
/// Programs that are started with the [`variable`](Self::variable) in their environment, and those
/// that these start, are found by it. On Linux so are those that removed the variable and left their process
/// group and session: from the first mark on, this process becomes the parent of orphans below it
/// (`PR_SET_CHILD_SUBREAPER`), and an orphan that was started while the mark existed is ended with it, unless it
/// has the variable `FABRO_NODE` of scripts. Whose orphan it is cannot be known while there are several marks: then
/// it is ended with the last of them. Process groups are ended as a whole, so a process that forks again and again does not
/// outrun its end; where it also leaves its group each time, it is killed as an orphan.
///
/// They get SIGTERM when the mark is dropped, and SIGKILL two
/// seconds later. The drop waits a tenth of a second for them; longer only where no tokio runtime
/// keeps waiting, and [`marks_ended`] waits for the rest. As [`end_leftovers`], it finds nothing outside Linux.
///
/// A child of this process in a process group of its own counts as an orphan unless this crate started it: wait for
/// it before the mark is dropped.
///
/// ```
/// use std::os::unix::process::CommandExt;
/// use std::process::Command;
///
/// let mark = fabro_sandbox::Mark::new();
/// let (name, value) = mark.variable();
/// // An agent that leaves a server running.
/// let leave = "sleep 30 > /dev/null & echo $!";
/// let agent = Command::new("sh").args(["-c", leave]).process_group(0).env(name, value).output()?;
/// let server = String::from_utf8_lossy(&agent.stdout).trim().to_owned();
/// drop(mark);
/// // A process that has ended has no command line.
/// # #[cfg(target_os = "linux")]
/// assert!(std::fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default().is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Mark {
    value: String,
    /// For the mark of a server: when it was started.
    server_since: Option<u64>,
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

    /// The start times of orphans that may be killed with this mark: `None` while other marks are live; for a server,
    /// times since its start.
    fn remove(&mut self, value: &str, server_since: Option<u64>) -> Option<OrphanTimes> {
        self.values.remove(value);
        group::servers().remove(value);
        let since = server_since.unwrap_or(self.since);
        self.values.is_empty().then(|| OrphanTimes { since, until: clock_ticks() })
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
    /// For what most programs take to end when they are asked.
    const WAIT: Duration = Duration::from_millis(100);

    /// A mark that nothing else has.
    #[expect(clippy::new_without_default, reason = "no two of them are equal")]
    pub fn new() -> Self {
        let value = Self::unique();
        LiveMarks::lock().add(&value);
        Self { value, server_since: None }
    }

    /// A mark for a server that several agents use in turn. It does not prevent their leftovers from being killed.
    pub fn of_server() -> Self {
        let value = Self::unique();
        group::servers().insert(value.clone(), None);
        Self { value, server_since: Some(clock_ticks()) }
    }

    fn unique() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Another process may have had the same id.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        adopt_orphans();
        format!("{}-{now}-{count}", std::process::id())
    }

    /// The name and value of the variable that marks a program.
    pub fn variable(&self) -> (String, String) {
        (cgroup::MARK.to_owned(), self.value.clone())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let value = self.value.clone();
        let times = LiveMarks::lock().remove(&value, self.server_since);
        let find = {
            let value = value.clone();
            move || {
                let mut found = Leftovers::find(cgroup::MARK, &value, times);
                found.groups.extend(cgroup::groups_of_mark(&value));
                found
            }
        };
        let mut left = find();
        // A scan may see parents that have ended while their children start more.
        if left.groups.is_empty() || {
            left.ask();
            left.gone_within(Self::WAIT) && find().groups.is_empty()
        } {
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
                if let Some(times) = times {
                    end_orphans(times);
                }
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

/// The groups of orphans that were started then.
fn orphans(times: OrphanTimes) -> BTreeSet<i32> {
    // Held, so that no child is seen that is not yet known as one.
    let children = group::children();
    let (started, others) = times.range();
    crate::proc::orphans(started, &children, &others)
}

/// Kills orphans with these start times in a loop, as they may fork as fast, until none is left for a moment.
fn end_orphans(times: OrphanTimes) {
    const LIMIT: Duration = Duration::from_secs(2);
    const QUIET: Duration = Duration::from_millis(20);
    let begin = Instant::now();
    let mut last = begin;
    while begin.elapsed() < LIMIT && last.elapsed() < QUIET {
        let children = group::children();
        let (started, others) = times.range();
        if crate::proc::end_orphans(started, &children, &others) {
            last = Instant::now();
        }
    }
}

impl OrphanTimes {
    /// The range of start times, and whose orphans to spare.
    fn range(self) -> (RangeInclusive<u64>, Others) {
        let live = LiveMarks::lock();
        let until = if live.values.is_empty() { u64::MAX } else { self.until };
        let with_scripts = group::scripts_since(self.since);
        (
            self.since..=until,
            Others { live: live.values.clone(), servers: group::servers().clone(), with_scripts },
        )
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    use super::Mark;
    use crate::group::GroupLeader;

    /// The client of a remote sandbox may belong to another branch than the mark.
    #[test]
    fn a_registered_group_leader_is_not_an_orphan() {
        let mark = Mark::new();
        let mut sleep = Command::new("sleep");
        sleep.arg("30").process_group(0);
        let id = |child: &Child| Some(child.id());
        let (mut child, _leader) = GroupLeader::spawn(|| sleep.spawn(), id).unwrap();
        drop(mark);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
