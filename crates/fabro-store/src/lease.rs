//! Leases: the right of one process to drive a run, for a limited time.
//!
//! A lease is renewed while its owner works. It can be taken over when it is released, when it has
//! expired, or at once when its owner has provably ended: on Linux, another process of the same boot
//! and PID namespace sees that. Each new owner increases the epoch, and a commit names the epoch it
//! was made under, so a driver that was suspended for longer than its lease cannot write any more.
//!
//! Expiry is judged by the monotonic clock of the machine where the owner runs on this one since the
//! same boot: setting a clock or sleeping (suspend) neither ends nor prolongs such a lease. Of an owner
//! elsewhere the wall clock decides. One that is set forward can then end a lease early: its owner stops
//! at its next commit, and nothing is recorded twice. One that is set back ends no lease, and delays a
//! takeover by at most one time to live.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use fabro_types::RunId;
use serde::{Deserialize, Serialize};

use crate::{Batch, StoreError};

/// The right to drive a run and its sub-workflows. Only the latest one of a run is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run: RunId,
    /// Increases with every owner.
    pub epoch: u64,
}

/// The process that holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOwner {
    /// The boot of a machine and the PID namespace in which `pid` means something; empty when the
    /// system does not name them.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// When the process started, in ticks since that boot: process ids are reused.
    pub started: u64,
}

impl LeaseOwner {
    /// This process.
    pub fn this_process() -> Self {
        let pid = std::process::id();
        Self { host: host(), pid, started: start_time(pid).unwrap_or_default() }
    }

    /// Whether the process has certainly ended. False for a process of another machine, and where
    /// `/proc` hides the processes of other users (`hidepid`), which it does if it hides process 1.
    pub fn has_ended(&self) -> bool {
        self.is_of_this_host()
            && start_time(self.pid) != Some(self.started)
            && start_time(1).is_some()
    }

    /// Whether `pid` and the monotonic clock mean the same for this process.
    fn is_of_this_host(&self) -> bool {
        let host = host();
        !host.is_empty() && host == self.host
    }
}

fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = fs::read_link("/proc/self/ns/pid");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{} {}", boot.trim(), namespace.display()),
        _ => String::new(),
    }
}

/// When a running process started. The format is that of `proc_pid_stat(5)`: field 3 is the state,
/// field 22 the start time, and field 2, the name, may hold any bytes.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let has_ended = matches!(state, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !has_ended)
}

/// What a store keeps of a run's lease. An implementation reads it, decides with the methods here, and
/// writes it, all in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The epoch of the latest owner.
    pub epoch: u64,
    /// That owner; absent once the lease is released.
    pub owner: Option<LeaseOwner>,
    /// When it expires unless it is renewed.
    pub expires: LeaseTime,
}

/// A time by the two clocks that leases are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTime {
    /// The wall clock: milliseconds since 1970.
    pub wall_ms: i64,
    /// The monotonic clock of the machine, which is never set, and stands still while the machine sleeps:
    /// milliseconds. Absent where processes share none, and for leases of earlier versions.
    pub monotonic_ms: Option<i64>,
}

impl LeaseTime {
    /// The time now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            wall_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            monotonic_ms: monotonic_ms(),
        }
    }

    /// The time after `ttl`.
    pub fn after(self, ttl: Duration) -> Self {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        Self {
            wall_ms: self.wall_ms.saturating_add(ttl_ms),
            monotonic_ms: self.monotonic_ms.map(|now| now.saturating_add(ttl_ms)),
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
fn monotonic_ms() -> Option<i64> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Some(now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000))
}

#[cfg(not(target_os = "linux"))]
fn monotonic_ms() -> Option<i64> {
    None
}

/// The answer to a process that wants a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// It gets the lease: the store has to keep this.
    Granted(LeaseRecord),
    /// Another process has it: the store has to keep this.
    Refused(LeaseRecord),
}

impl LeaseRecord {
    /// Decides whether `owner` gets the lease.
    pub fn request(
        current: Option<Self>,
        owner: &LeaseOwner,
        ttl: Duration,
        now: LeaseTime,
    ) -> LeaseRequest {
        let expires = now.after(ttl);
        match current {
            // A later expiry was written before the clock was set back. Its owner keeps the lease by
            // renewing it; if it has ended, the lease does not last longer than usual.
            Some(mut held) if held.owner(now).is_some() => {
                held.expires.wall_ms = held.expires.wall_ms.min(expires.wall_ms);
                LeaseRequest::Refused(held)
            }
            current => LeaseRequest::Granted(Self {
                epoch: current.map_or(0, |earlier| earlier.epoch) + 1,
                owner: Some(owner.clone()),
                expires,
            }),
        }
    }

    /// The process that has the lease, unless it has expired or its owner has ended.
    pub fn owner(&self, now: LeaseTime) -> Option<&LeaseOwner> {
        let owner = self.owner.as_ref()?;
        let has_expired = match (self.expires.monotonic_ms, now.monotonic_ms) {
            (Some(expires), Some(now)) if owner.is_of_this_host() => now >= expires,
            _ => now.wall_ms >= self.expires.wall_ms,
        };
        (!has_expired && !owner.has_ended()).then_some(owner)
    }

    /// Checks what a commit is made under: `lease`, or none where no process may have one. `now` tells the time.
    pub fn check(
        current: Option<&Self>,
        run: RunId,
        lease: Option<Lease>,
        now: impl FnOnce() -> LeaseTime,
    ) -> Result<(), StoreError> {
        match (lease, current) {
            (Some(lease), Some(held)) if held.epoch == lease.epoch && held.owner.is_some() => {
                Ok(())
            }
            (Some(lease), held) => {
                let pid = held.and_then(|held| held.owner.as_ref()).map(|owner| owner.pid);
                Err(StoreError::LeaseLost { run: lease.run, pid })
            }
            (None, held) => match held.and_then(|held| held.owner(now())) {
                Some(owner) => Err(StoreError::Driven { run, pid: Some(owner.pid) }),
                None => Ok(()),
            },
        }
    }
}

/// Who drives which run. One lease covers a run and all its sub-workflows.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Gives a run's lease to `owner` for the time `ttl`; the run may be one that is still to be
    /// created. Fails at once with [`StoreError::Driven`] while another owner has it.
    ///
    /// A lease has to be visible to other processes when this returns, but need not be on stable
    /// storage: no owner survives the end of the machine.
    async fn acquire(
        &self,
        run: RunId,
        owner: &LeaseOwner,
        ttl: Duration,
    ) -> Result<Lease, StoreError>;

    /// Extends a lease to the time `ttl` from now. Also possible after it has expired, as long as no
    /// other process has it; then fails with [`StoreError::LeaseLost`].
    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError>;

    /// Ends a lease; nothing happens when another process has it.
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// The process that drives a run at the moment. For a sub-workflow, ask for its root.
    async fn driver(&self, run: RunId) -> Result<Option<LeaseOwner>, StoreError>;

    /// [`RunLog::append`](crate::RunLog::append) to a run that the lease covers. Fails with
    /// [`StoreError::LeaseLost`], in the same transaction, when another process has the lease.
    async fn append_leased(
        &self,
        lease: Lease,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn elsewhere() -> LeaseOwner {
        LeaseOwner { host: "elsewhere".into(), pid: 7, started: 1 }
    }

    fn at(wall_ms: i64, monotonic_ms: Option<i64>) -> LeaseTime {
        LeaseTime { wall_ms, monotonic_ms }
    }

    fn held(owner: LeaseOwner, expires_ms: i64) -> LeaseRecord {
        LeaseRecord { epoch: 4, owner: Some(owner), expires: at(expires_ms, None) }
    }

    /// The epoch that is granted or in force at 1,000,000 ms, and when it expires.
    fn request(current: Option<LeaseRecord>) -> (&'static str, u64, i64) {
        let now = at(1_000_000, None);
        match LeaseRecord::request(current, &LeaseOwner::this_process(), TTL, now) {
            LeaseRequest::Granted(it) => ("granted", it.epoch, it.expires.wall_ms),
            LeaseRequest::Refused(it) => ("refused", it.epoch, it.expires.wall_ms),
        }
    }

    #[test]
    fn a_lease_is_granted_when_no_other_process_has_it() {
        let this = LeaseOwner::this_process();
        let ended = LeaseOwner { started: this.started - 1, ..this.clone() };
        let released = LeaseRecord { epoch: 4, owner: None, expires: at(2_000_000, None) };
        assert_eq!(request(None), ("granted", 1, 1_030_000));
        assert_eq!(request(Some(released)), ("granted", 5, 1_030_000));
        assert_eq!(request(Some(held(elsewhere(), 1_000_000))), ("granted", 5, 1_030_000));
        assert_eq!(request(Some(held(elsewhere(), 1_000_001))), ("refused", 4, 1_000_001));
        assert_eq!(request(Some(held(this, 1_020_000))), ("refused", 4, 1_020_000));
        assert_eq!(request(Some(held(ended, 1_020_000))), ("granted", 5, 1_030_000));
    }

    #[test]
    fn a_clock_that_was_set_back_neither_ends_nor_prolongs_a_lease() {
        assert_eq!(request(Some(held(elsewhere(), 90_000_000))), ("refused", 4, 1_030_000));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn setting_the_clock_neither_ends_nor_prolongs_a_lease_of_this_machine() {
        let is_held = |owner: LeaseOwner, now| {
            let expires = at(1_030_000, Some(50_000));
            LeaseRecord { epoch: 4, owner: Some(owner), expires }.owner(now).is_some()
        };
        let this = LeaseOwner::this_process();
        assert!(is_held(this.clone(), at(90_000_000, Some(49_999))), "set forward");
        assert!(!is_held(this.clone(), at(1_000, Some(50_000))), "set back");
        assert!(!is_held(this, at(1_030_000, None)), "without a monotonic clock");
        assert!(!is_held(elsewhere(), at(1_030_000, Some(10))), "the clock of another machine");
        assert!(is_held(elsewhere(), at(1_029_999, Some(60_000))), "the clock of another machine");
    }

    #[test]
    fn a_commit_needs_the_latest_epoch() {
        let run = RunId::from_parts(0, 1);
        let lease = |epoch| Some(Lease { run, epoch });
        let check = |current: Option<LeaseRecord>, lease| match LeaseRecord::check(
            current.as_ref(),
            run,
            lease,
            || at(1_000_000, None),
        ) {
            Ok(()) => "ok",
            Err(StoreError::LeaseLost { .. }) => "lost",
            Err(StoreError::Driven { .. }) => "driven",
            Err(_) => "other",
        };
        assert_eq!(
            check(Some(held(elsewhere(), 1)), lease(4)),
            "ok",
            "expired, and not taken over"
        );
        assert_eq!(check(Some(held(elsewhere(), 1)), lease(3)), "lost");
        assert_eq!(check(None, lease(4)), "lost");
        assert_eq!(check(None, None), "ok");
        assert_eq!(check(Some(held(elsewhere(), 1)), None), "ok");
        assert_eq!(check(Some(held(elsewhere(), 2_000_000)), None), "driven");
    }

    #[test]
    fn a_process_that_has_ended_is_known_by_pid_and_start() {
        let this = LeaseOwner::this_process();
        assert!(!this.has_ended() && !elsewhere().has_ended());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        let owner = LeaseOwner { pid: child.id(), started, ..this };
        assert!(!owner.has_ended());
        child.kill().unwrap();
        // Before it is waited for as well, when it still has an entry in the list of processes.
        while !owner.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(owner.has_ended());
    }
}
