use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process_group, waitpgid,
};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::cgroup;
use crate::proc::{clock_ticks, group_runs};
use crate::record::Record;

/// From SIGTERM to SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The leaders of groups. The other children of this process in groups of their own are orphans that it has
/// adopted.
static CHILDREN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The leaders of groups; none is started while this is held.
pub(crate) fn children() -> MutexGuard<'static, BTreeSet<i32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks of servers, each with the leader of its process group once it runs. They outlive agents, and do not prevent
/// the agents' orphans from being killed.
static SERVERS: Mutex<BTreeMap<String, Option<i32>>> = Mutex::new(BTreeMap::new());

/// The marks of servers.
pub(crate) fn servers() -> MutexGuard<'static, BTreeMap<String, Option<i32>>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child of this process that leads a process group. It does not count as an orphan while this exists.
#[derive(Debug)]
pub(crate) struct GroupLeader(i32);

impl GroupLeader {
    /// Registers the process that `spawn` starts, before orphans are looked for again.
    pub(crate) fn spawn<C>(
        spawn: impl FnOnce() -> io::Result<C>,
        id: impl FnOnce(&C) -> Option<u32>,
    ) -> io::Result<(C, Self)> {
        let mut children = children();
        let child = spawn()?;
        let id = id(&child).ok_or(io::ErrorKind::NotFound)?.cast_signed();
        children.insert(id);
        Ok((child, Self(id)))
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        children().remove(&self.0);
    }
}

/// The number of running scripts of the author, and when the last one ended, in the unit of process start times.
static SCRIPTS: Mutex<(usize, u64)> = Mutex::new((0, 0));

fn scripts() -> MutexGuard<'static, (usize, u64)> {
    SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a script of the author was running at or after this time.
pub(crate) fn scripts_since(time: u64) -> bool {
    let (running, last) = *scripts();
    running > 0 || last >= time
}

/// A script of the author while it runs.
#[derive(Debug)]
struct RunningScript;

impl RunningScript {
    /// `Some` if a process with these variables is a script of the author.
    fn of(env: &[(String, String)]) -> Option<Self> {
        let has = |wanted: &str| env.iter().any(|(name, _)| name == wanted);
        (has("FABRO_NODE") && !has(cgroup::MARK)).then(|| {
            scripts().0 += 1;
            Self
        })
    }
}

impl Drop for RunningScript {
    fn drop(&mut self) {
        let mut scripts = scripts();
        *scripts = (scripts.0 - 1, clock_ticks());
    }
}

/// How long processes left by a shell may keep running after it: time for the `tee` of a `> >(tee log)` to write
/// its last lines.
const LINGER: Duration = Duration::from_millis(100);

/// How long the system may take over a SIGKILL; longer only for a process stuck in a driver.
const KILL_WAIT: Duration = Duration::from_secs(2);

const FIRST_POLL: Duration = Duration::from_millis(1);
const LAST_POLL: Duration = Duration::from_millis(50);

/// The process group of a script. Dropping it before its end kills it.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    leader_reaped: bool,
    ended: bool,
    _leader: GroupLeader,
    _record: Record,
    _script: Option<RunningScript>,
}

impl Group {
    /// Starts a program as the leader of a group. `env` are the variables that it is given. One that is not
    /// `trusted` can read neither the memory nor the environment of this process, also where both are
    /// of the administrator.
    #[expect(clippy::expect_used, reason = "the id of a child is above 0")]
    pub(crate) fn start(
        command: &mut Command,
        env: &[(String, String)],
        trusted: bool,
    ) -> io::Result<(Child, Self)> {
        let cgroup = cgroup::of(env);
        let command = command.process_group(0);
        let spawn = || if trusted { command.spawn() } else { spawn_untrusted(command) };
        let (child, leader) = GroupLeader::spawn(spawn, Child::id)?;
        if let Some((_, mark)) = env.iter().rev().find(|(name, _)| name == cgroup::MARK)
            && let Some(server) = servers().get_mut(mark)
        {
            *server = Some(leader.0);
        }
        let id = Pid::from_raw(leader.0).expect("the id of a child is above 0");
        if let Some(dir) = cgroup {
            cgroup::enter(&dir, leader.0);
        }
        let record = Record::new(id.as_raw_nonzero().get(), env);
        let script = RunningScript::of(env);
        Ok((
            child,
            Self {
                id,
                leader_reaped: false,
                ended: false,
                _leader: leader,
                _record: record,
                _script: script,
            },
        ))
    }

    /// Ends what the leader left, after it was waited for: usually nothing, which costs one system
    /// call.
    pub(crate) async fn end_rest(&mut self) {
        self.leader_reaped = true;
        if exists(self.id) && timeout(LINGER, self.emptied()).await.is_err() {
            self.terminate();
            if timeout(GRACE, self.emptied()).await.is_err() {
                self.kill();
                // A timeout here means a process that even SIGKILL does not end at once.
                let _ = timeout(KILL_WAIT, self.emptied()).await;
            }
        }
        self.ended = true;
    }

    /// Ends the leader and the rest of the group.
    pub(crate) async fn end(&mut self, leader: &mut Child) {
        self.terminate();
        if timeout(GRACE, self.left_by(leader)).await.is_err() {
            self.kill();
            // As in `end_rest`.
            let _ = timeout(KILL_WAIT, self.left_by(leader)).await;
        }
        self.ended = true;
    }

    async fn left_by(&mut self, leader: &mut Child) {
        // An error means that there is nothing to wait for.
        let _ = leader.wait().await;
        self.leader_reaped = true;
        self.emptied().await;
    }

    /// Waits until no process of the group runs; only after the leader was reaped.
    async fn emptied(&self) {
        let mut pause = FIRST_POLL;
        while exists(self.id) {
            self.reap_adopted();
            if pause >= LAST_POLL && !group_runs(self.id) {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_POLL);
        }
    }

    /// Where this process adopts orphans (as the first one of a container does), no other process
    /// removes those that have ended, and the group would never become empty.
    fn reap_adopted(&self) {
        while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
    }

    fn terminate(&self) {
        signal(self.id, Signal::TERM);
        // A stopped process receives its SIGTERM only when it continues.
        signal(self.id, Signal::CONT);
    }

    fn kill(&self) {
        signal(self.id, Signal::KILL);
        if !self.leader_reaped {
            // A leader may have moved to another group of its session. Until it is reaped, its
            // process id cannot be reused.
            let _ = kill_process(self.id, Signal::KILL);
        }
    }
}

/// Starts a program without the privileges by which an administrator reads other processes. They are taken
/// from a thread of its own: the program inherits them from the thread that starts it.
#[cfg(target_os = "linux")]
#[expect(clippy::expect_used, reason = "starting a program does not panic")]
fn spawn_untrusted(command: &mut Command) -> io::Result<Child> {
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

    // `CAP_SYS_ADMIN` and, from Linux 6.14 on, `CAP_PERFMON` open `/proc/PID/environ`, too.
    const WITHHELD: [CapabilitySet; 3] =
        [CapabilitySet::SYS_PTRACE, CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN];
    if !rustix::process::geteuid().is_root() {
        return command.spawn();
    }
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            let _guard = runtime.enter();
            for capability in WITHHELD {
                // An error means that it is withheld from this process already.
                let _ = remove_capability_from_bounding_set(capability);
            }
            command.spawn()
        });
        started.join().expect("starting a program does not panic")
    })
}

#[cfg(not(target_os = "linux"))]
fn spawn_untrusted(command: &mut Command) -> io::Result<Child> {
    command.spawn()
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

fn exists(group: Pid) -> bool {
    // EPERM also means that the group exists.
    test_kill_process_group(group) != Err(rustix::io::Errno::SRCH)
}

fn signal(group: Pid, signal: Signal) {
    // The one expected error is that the group has just become empty.
    let _ = kill_process_group(group, signal);
}
