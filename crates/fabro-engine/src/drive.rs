//! The driver: runs what the machine asks for, commits what it decides, and only then reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fabro_blob::{BlobError, BlobStore, READ_LIMIT, ReadError, read_blob};
use fabro_events::{EventSink, PauseReason};
use fabro_store::{Batch, ChangeMark, InboxId, Message, Store, StoreError};
use fabro_types::{BlobRef, BranchPath, Failure, NodeKind, RunId, RunStatus};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::active_stage::ActiveStage;
use crate::attempt::{Attempt, AttemptResult};
use crate::budget::{Budget, StageBudget};
use crate::clock::{Clock, ClockWatch};
use crate::deadlines::Deadlines;
use crate::handler::{Handler, Report, ReportError, Reporter, StageEnd};
use crate::in_flight::InFlight;
use crate::inconsistent::Inconsistent;
use crate::input::{Idle, Input};
use crate::key::Key;
use crate::machine::Machine;
use crate::stage_builder::Connections;
use crate::state::Phase;
use crate::unavailable::UnavailableStage;

/// How often the inbox is read while stages are running.
pub(crate) const INBOX_PERIOD: Duration = Duration::from_millis(100);

/// How long the driver waits for canceled handlers when it ends. Longer than the grace of one
/// attempt, so that a timeout that is being handled still ends.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// What a driver works with.
pub struct World {
    /// Where the log, the blobs and the inbox are.
    pub store: Arc<dyn Store>,
    /// Runs the stages.
    pub handler: Arc<dyn Handler>,
    /// Receives every event once it is on stable storage.
    pub sink: Arc<dyn EventSink>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The run's directory.
    pub run_dir: PathBuf,
    /// Fires to stop cleanly: stages are ended, nothing is recorded of them, and the run can be
    /// resumed.
    pub stop: CancellationToken,
}

/// Why a driver could not continue. What was committed stands, and the run can be resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What a stage did cannot be recorded, or what it needs is lost.
    #[error("stage `{stage}` cannot continue: {message}")]
    Record {
        /// The stage.
        stage: Arc<str>,
        /// What happened, with what to do.
        message: String,
    },
}

impl From<DriveError> for StageEnd {
    fn from(error: DriveError) -> Self {
        Self::CannotRecord { message: error.to_string() }
    }
}

/// Why a driver ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    /// The run has ended: succeeded, failed or canceled, with the reason of a failure.
    Over(RunStatus, Option<Failure>),
    /// It waits for a person, a budget, or a model that can be asked.
    Paused(PauseReason),
    /// The driver was stopped; the run can be resumed.
    Stopped,
}

/// Reads the blobs that conditions need and hands them to the machine, until it needs no more. Fails
/// with [`BlobError`] when one is lost or damaged; the machine then still needs it.
pub fn read_needs(
    machine: &mut Machine,
    now_ms: i64,
    blobs: &dyn BlobStore,
) -> Result<(), BlobError> {
    while !machine.needs().is_empty() {
        let values = read_values(machine.needs(), machine.needs_limit(), blobs)?;
        machine.handle(now_ms, Input::Values { values });
    }
    Ok(())
}

fn read_values(
    needs: &BTreeSet<BlobRef>,
    limit: u64,
    blobs: &dyn BlobStore,
) -> Result<BTreeMap<BlobRef, Result<Value, String>>, BlobError> {
    let read = |blob| {
        let is_large = |bytes| limit < READ_LIMIT && bytes > limit;
        if blobs.len(blob).is_ok_and(is_large) {
            return Ok(Err("it is not needed".to_owned()));
        }
        match read_blob(blobs, blob) {
            Err(ReadError::Blob(error)) => Err(error),
            value => Ok(value.map_err(|error| error.to_string())),
        }
    };
    needs.iter().map(|blob| Ok((*blob, read(blob)?))).collect()
}

/// What the driver keeps of a running attempt.
pub(crate) struct Running {
    cancel: CancellationToken,
    pub(crate) activity: Arc<tokio::sync::Notify>,
    pub(crate) messages: mpsc::UnboundedSender<(InboxId, Message)>,
    pub(crate) is_agent: bool,
    pub(crate) delivered: BTreeSet<InboxId>,
    /// Fires when its handler has ended.
    ended: CancellationToken,
}

pub(crate) struct Driver {
    pub(crate) world: World,
    pub(crate) machine: Machine,
    budget: Budget,
    clock_watch: ClockWatch,
    pub(crate) in_flight: InFlight,
    pub(crate) running: BTreeMap<Key, Running>,
    /// Branches of the stages that were canceled and whose handlers may still be ending.
    ending: Vec<(Arc<str>, CancellationToken)>,
    /// Stages that wait for an answer from outside, or for a larger budget.
    pub(crate) suspended: BTreeMap<Key, PauseReason>,
    /// Answers for gates of sub-workflows that have ended the suspension of their stage.
    pub(crate) woken_by: BTreeSet<(RunId, InboxId)>,
    /// Stages for which no model or agent is available; they wait for a resume.
    unavailable: BTreeMap<Key, UnavailableStage>,
    deadlines: Deadlines,
    reports: mpsc::UnboundedSender<Report>,
    pub(crate) stop: CancellationToken,
    pub(crate) mark: Option<ChangeMark>,
    /// The state of the store when ancestors were last checked for a cancellation.
    pub(crate) ancestor_mark: Option<ChangeMark>,
    pub(crate) consumed: Vec<InboxId>,
    pub(crate) acks: Vec<oneshot::Sender<Result<(), ReportError>>>,
    /// A value that the next decision needs is lost or damaged: the driver ends once what was decided
    /// before is committed.
    damage: Option<BlobError>,
}

/// Drives a run to its end, or until it has to wait. `first` is what the driver begins with:
/// [`Input::Start`] or [`Input::Resume`]. Fails with [`DriveError`] when something cannot be
/// recorded.
pub async fn drive(machine: Machine, first: Input, world: World) -> Result<RunEnd, DriveError> {
    let budget = Budget::new(&machine);
    drive_within(machine, first, world, budget).await
}

/// Drives the sub-workflow of a stage, like [`drive`]. The spending limits of the parent run apply to
/// it too. Fails with [`DriveError`] when something cannot be recorded.
pub fn drive_sub_workflow(
    machine: Machine,
    first: Input,
    world: World,
    stage: &StageBudget,
) -> impl Future<Output = Result<RunEnd, DriveError>> + Send + use<> {
    let budget = stage.sub_workflow(&machine);
    // Not an `async fn`: sub-workflows nest, and each future layer needs more stack.
    drive_within(machine, first, world, budget)
}

async fn drive_within(
    machine: Machine,
    first: Input,
    world: World,
    budget: Budget,
) -> Result<RunEnd, DriveError> {
    let (reports, inbound) = mpsc::unbounded_channel();
    let stop = world.stop.child_token();
    let clock_watch = ClockWatch::new(&*world.clock);
    let mut driver = Driver {
        clock_watch,
        world,
        machine,
        budget,
        in_flight: InFlight::default(),
        running: BTreeMap::new(),
        ending: Vec::new(),
        suspended: BTreeMap::new(),
        woken_by: BTreeSet::new(),
        unavailable: BTreeMap::new(),
        deadlines: Deadlines::default(),
        reports,
        stop,
        mark: None,
        ancestor_mark: None,
        consumed: Vec::new(),
        acks: Vec::new(),
        damage: None,
    };
    let end = driver.run(first, inbound).await;
    if let Ok(RunEnd::Over(..)) = end {
        driver.running.values().for_each(|running| running.cancel.cancel());
    } else {
        driver.stop.cancel();
    }
    let mut in_flight = std::mem::take(&mut driver.in_flight);
    // Handlers that wait for a report to be recorded must not wait forever.
    drop(driver);
    // A handler that does not end soon after its cancellation is dropped. After a stop they had their time.
    if !matches!(end, Ok(RunEnd::Stopped)) {
        let ending = async { while in_flight.next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP_GRACE, ending).await;
    }
    end
}

impl Driver {
    async fn run(
        &mut self,
        first: Input,
        mut inbound: mpsc::UnboundedReceiver<Report>,
    ) -> Result<RunEnd, DriveError> {
        self.decide(first).await;
        self.commit().await?;
        let mut period = tokio::time::interval(INBOX_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if let Some(end) = self.finished() {
                return Ok(end);
            }
            self.launch().await?;
            if self.finished().is_some() {
                self.commit().await?;
                continue;
            }
            if self.running.is_empty() {
                if self.stop.is_cancelled() {
                    return self.stopped(&mut inbound).await;
                }
                self.idle().await?;
                continue;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return self.stopped(&mut inbound).await,
                Some((key, ended)) = self.in_flight.next() => self.ended(key, ended).await?,
                Some(report) = inbound.recv() => self.report(report).await?,
                _ = period.tick() => self.read_inbox().await?,
            }
            // Everything that is ready goes into the same commit.
            while !self.stop.is_cancelled()
                && let Some((key, ended)) = self.in_flight.try_next()
            {
                self.ended(key, ended).await?;
            }
            while let Ok(report) = inbound.try_recv() {
                self.report(report).await?;
            }
            if self.stop.is_cancelled() {
                return self.stopped(&mut inbound).await;
            }
            self.commit().await?;
        }
    }

    /// Nothing is running: pauses the run, unless a message has arrived that changes this.
    async fn idle(&mut self) -> Result<(), StoreError> {
        self.read_inbox().await?;
        if self.can_continue() {
            return self.commit().await;
        }
        if self.may_get_more_budget() {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep(INBOX_PERIOD) => {}
            }
        } else {
            let waits = self.suspended.iter().filter(|(_, it)| **it == PauseReason::Human);
            let gates = waits.map(|(key, _)| Arc::clone(&key.node)).collect();
            let stages = &self.unavailable;
            let unavailable = stages.values().map(|stage| stage.failure.clone()).collect();
            let turns = stages.iter().map(|(key, it)| (Arc::clone(&key.branch), it.failed_turns()));
            let failed_turns = turns.filter(|(_, turns)| *turns > 0).collect();
            let used = stages.iter().map(|(key, it)| (Arc::clone(&key.branch), it.used.clone()));
            let used = used.filter(|(_, used)| !used.is_nothing()).collect();
            let sub_workflows = self.budget.spent_below();
            let idle = Idle { gates, unavailable, failed_turns, used, sub_workflows };
            self.decide(Input::Idle(Box::new(idle))).await;
        }
        self.commit().await
    }

    /// Commits what had ended before the stop: what was paid for is not asked for again.
    async fn stopped(
        &mut self,
        inbound: &mut mpsc::UnboundedReceiver<Report>,
    ) -> Result<RunEnd, DriveError> {
        while let Some((key, ended)) = self.in_flight.take_done() {
            self.ended(key, ended).await?;
        }
        self.commit().await?;
        let until = tokio::time::Instant::now() + STOP_GRACE;
        while let Ok(Some(report)) = tokio::time::timeout_at(until, self.last_report(inbound)).await
        {
            self.report(report).await?;
            self.commit().await?;
        }
        Ok(RunEnd::Stopped)
    }

    /// The next report of what a stage has spent that the stop ends; `None` when all have ended. Other
    /// reports are refused: the stage runs again when the run is resumed.
    async fn last_report(
        &mut self,
        inbound: &mut mpsc::UnboundedReceiver<Report>,
    ) -> Option<Report> {
        loop {
            tokio::select! {
                biased;
                report = inbound.recv() => {
                    let report = report?;
                    if report.notes.last().is_some_and(|note| note.body.request_usage().is_some()) {
                        return Some(report);
                    }
                    let _ = report.done.send(Err(ReportError::Ending));
                }
                ended = self.in_flight.next() => {
                    ended?;
                }
            }
        }
    }

    pub(crate) fn finished(&self) -> Option<RunEnd> {
        match &self.machine.state().phase {
            Phase::Ended(status, failure) => Some(RunEnd::Over(*status, failure.clone())),
            Phase::Paused(reason) => Some(RunEnd::Paused(*reason)),
            Phase::Created | Phase::Running => None,
        }
    }

    /// Hands an input to the machine, with the blobs that it then needs. They are read off the
    /// runtime's thread, for they may be large.
    pub(crate) async fn decide(&mut self, input: Input) {
        if self.damage.is_some() {
            return;
        }
        let clock = &*self.world.clock;
        let now_ms = clock.now_ms();
        if let Some(set_ms) = self.clock_watch.set_ms(now_ms, clock) {
            self.machine.clock_was_set(set_ms);
        }
        self.machine.handle(now_ms, input);
        self.budget.record(&self.machine);
        while !self.machine.needs().is_empty() {
            let needs = self.machine.needs().clone();
            let limit = self.machine.needs_limit();
            let store = Arc::clone(&self.world.store);
            let read = tokio::task::spawn_blocking(move || read_values(&needs, limit, &*store));
            let values = self.in_flight.during(read).await;
            let values =
                values.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            match values {
                Ok(values) => self.machine.handle(now_ms, Input::Values { values }),
                Err(error) => {
                    self.damage = Some(error);
                    return;
                }
            }
        }
    }

    /// Makes everything decided so far durable, then reports it. Running stages continue meanwhile;
    /// no stage is started, and results are handled afterwards.
    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        let commit = self.machine.take_commit();
        if let Some(first) = commit.events.first() {
            let consumed = std::mem::take(&mut self.consumed);
            let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &consumed };
            let append = self.world.store.append(first.run_id, first.seq - 1, &batch);
            self.in_flight.during(append).await?;
        }
        for event in &commit.events {
            self.world.sink.event(event);
        }
        for ack in self.acks.drain(..) {
            // The handler may have given up waiting; then nothing needs the answer.
            let _ = ack.send(Ok(()));
        }
        self.damage.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Starts every stage that is to run by the state and does not run yet, and cancels those that the
    /// state no longer has.
    async fn launch(&mut self) -> Result<(), StoreError> {
        let budget = &self.budget;
        self.suspended.retain(|key, _| !budget.has_more_for(key));
        let mut wanted = Vec::new();
        for (branch, at) in self.machine.state().active() {
            let key = Key::of(branch, at);
            let waits = self.waits(&key) || self.is_over_budget(&key, at);
            if !self.running.contains_key(&key) && !waits {
                wanted.push((key, at.handler, self.delay_left(at)));
            }
        }
        let state = self.machine.state();
        self.ending.retain(|(_, ended)| !ended.is_cancelled());
        self.running.retain(|key, running| {
            let live = state.is_current(key);
            if !live {
                running.cancel.cancel();
                self.ending.push((Arc::clone(&key.branch), running.ended.clone()));
            }
            live
        });
        self.suspended.retain(|key, _| state.is_current(key));
        self.unavailable.retain(|key, _| state.is_current(key));
        self.deadlines.watch(state, self.machine.plan(), &self.stop, &self.in_flight);
        let mut started = Vec::new();
        let mut any_listener = false;
        for (key, kind, delay) in wanted {
            any_listener |= matches!(kind, NodeKind::Human | NodeKind::Agent);
            let earlier = self.earlier_stages(&key);
            match self.attempt(&key, delay) {
                Ok(attempt) => started.push((key, attempt, earlier)),
                Err(error) => self.decide(Input::Abort { failure: error.into() }).await,
            }
        }
        if any_listener {
            // Forces a read of the inbox: an answer that has already arrived counts even after the
            // gate's timeout, and an agent receives messages sent before it started.
            self.mark = None;
        }
        self.share_budget();
        if !started.is_empty() {
            self.wait_for_ancestor_cancel().await?;
            self.read_inbox().await?;
            if self.finished().is_some() || self.stop.is_cancelled() {
                // No stage starts after the run was canceled.
                for (key, ..) in started {
                    self.running.remove(&key);
                }
                return Ok(());
            }
        }
        for (key, (attempt, ended), earlier) in started {
            let handler = Arc::clone(&self.world.handler);
            let clock = Arc::clone(&self.world.clock);
            self.in_flight.push(async move {
                for stage in earlier {
                    stage.cancelled().await;
                }
                let end = attempt.run(&*handler, &*clock).await;
                drop(ended);
                (key, end)
            });
        }
        Ok(())
    }

    /// Fire when the stages of earlier attempts of this fan-out have ended: two attempts never run side
    /// by side.
    fn earlier_stages(&self, key: &Key) -> Vec<CancellationToken> {
        let is_earlier = |branch: &str| {
            let line = BranchPath::new(&key.branch);
            BranchPath::new(branch).is_of_fan_out(line, &key.node, key.visit)
        };
        let earlier = self.ending.iter().filter(|(branch, _)| is_earlier(branch));
        earlier.map(|(_, ended)| ended.clone()).collect()
    }

    /// An attempt of a running stage; its guard is dropped when its handler has ended.
    fn attempt(
        &mut self,
        key: &Key,
        delay: Duration,
    ) -> Result<(Attempt, DropGuard), Inconsistent> {
        let plan = Arc::clone(self.machine.plan());
        let node = plan.spec(self.machine.node_index(&key.node)?);
        let (messages, inbound) = mpsc::unbounded_channel();
        let cancel = self.stop.child_token();
        let activity = Arc::new(tokio::sync::Notify::new());
        let stage = self.machine.stage(
            &key.branch,
            Connections {
                store: Arc::clone(&self.world.store),
                run_dir: self.world.run_dir.clone(),
                cancel: cancel.clone(),
                stop: self.stop.clone(),
                reporter: Reporter {
                    key: key.clone(),
                    reports: self.reports.clone(),
                    activity: Arc::clone(&activity),
                },
                messages: inbound,
                budget: self.budget.of_stage(key.clone()),
            },
        )?;
        let ended = CancellationToken::new();
        let running = Running {
            cancel,
            activity: Arc::clone(&activity),
            messages,
            is_agent: node.kind == NodeKind::Agent,
            delivered: BTreeSet::new(),
            ended: ended.clone(),
        };
        self.running.insert(key.clone(), running);
        let attempt = Attempt {
            stage,
            delay,
            // A gate's time runs from the question, over a restart too: its handler sees to it.
            timeout: node.timeout.filter(|_| node.kind != NodeKind::Human),
            stall_timeout: plan.graph().stall_timeout.filter(|_| node.kind.is_llm()),
            activity,
        };
        Ok((attempt, ended.drop_guard()))
    }

    async fn ended(&mut self, key: Key, ended: AttemptResult) -> Result<(), DriveError> {
        if self.stop.is_cancelled()
            && let AttemptResult::Finished(finished) = &ended
            && !finished.outcome.status.is_good()
        {
            // The stop ended it: it runs again when the run is resumed.
            return Ok(());
        }
        if let AttemptResult::Overdue(limit) = ended {
            // The fan-out may have ended at the same moment.
            if self.machine.state().is_running_fan_out(&key) {
                self.decide(Input::Overdue { branch: key.branch, limit }).await;
            }
            return Ok(());
        }
        // A stage of a branch that was canceled has no result.
        if self.running.remove(&key).is_none() || !self.machine.state().is_current(&key) {
            return Ok(());
        }
        self.budget.ended(&key, false);
        self.share_budget();
        match ended {
            AttemptResult::Canceled | AttemptResult::Overdue(_) => {}
            AttemptResult::Due => self.decide(Input::Due { branch: key.branch }).await,
            AttemptResult::Suspended(reason) => {
                self.suspended.insert(key, reason);
                // An answer may have arrived before the stage was suspended.
                self.mark = None;
            }
            AttemptResult::Finished(finished) => match self.machine.unavailable(&key, &finished) {
                Ok(Some(stage)) => {
                    self.machine.branch_waits(&key.branch, stage.failure.failure.clone());
                    self.unavailable.insert(key, stage);
                }
                Ok(None) => {
                    self.budget.ended(&key, true);
                    self.decide(Input::Ended { branch: key.branch, finished }).await;
                }
                Err(error) => self.decide(Input::Abort { failure: error.into() }).await,
            },
            AttemptResult::CannotRecord(message) => {
                // The results of other stages are recorded all the same.
                self.commit().await?;
                return Err(DriveError::Record { stage: key.node, message });
            }
        }
        Ok(())
    }

    /// True when a stage can start, or the run has ended.
    fn can_continue(&self) -> bool {
        let starts = |(branch, at): (&Arc<str>, &ActiveStage)| {
            let key = Key::of(branch, at);
            !self.is_over_budget(&key, at) && !self.waits(&key)
        };
        self.finished().is_some() || self.machine.state().active().any(starts)
    }

    /// True for a stage that waits for something from outside.
    fn waits(&self, key: &Key) -> bool {
        self.suspended.contains_key(key) || self.unavailable.contains_key(key)
    }

    /// True if the budget does not allow this attempt. A gate that was asked stays open.
    fn is_over_budget(&self, key: &Key, at: &ActiveStage) -> bool {
        let is_over = if self.may_spend(key, at.handler) {
            !self.budget.has_room()
        } else {
            self.budget.is_over()
        };
        is_over && at.gate_asked_ms.is_none()
    }

    /// True if a stage waits for budget that running programs have reserved.
    fn may_get_more_budget(&self) -> bool {
        let waits = |(branch, at): (&Arc<str>, &ActiveStage)| {
            let key = Key::of(branch, at);
            if self.waits(&key) {
                self.budget.may_get_more_for(&key)
            } else {
                self.is_over_budget(&key, at) && self.budget.may_get_more()
            }
        };
        self.finished().is_none() && self.machine.state().active().any(waits)
    }

    /// Whether a stage may spend money or tokens.
    fn may_spend(&self, key: &Key, kind: NodeKind) -> bool {
        let node = self.machine.plan().find(&key.node);
        kind == NodeKind::ManagerLoop || node.is_some_and(|node| node.llm().is_some())
    }

    /// Shares the remaining budget among the running stages.
    fn share_budget(&self) {
        let state = self.machine.state();
        let active = state.active().map(|(branch, at)| (Key::of(branch, at), at.handler));
        let running = active
            .filter(|(key, kind)| self.running.contains_key(key) && self.may_spend(key, *kind));
        self.budget.set_running(running.map(|(key, _)| key).collect());
    }

    /// The rest of a stage's retry delay; time that passed under an earlier driver counts.
    fn delay_left(&self, at: &ActiveStage) -> Duration {
        let due_ms = at.attempt_ms.saturating_add_unsigned(at.delay_ms);
        let left_ms = due_ms.saturating_sub(self.machine.steady_ms());
        Duration::from_millis(u64::try_from(left_ms).unwrap_or_default().min(at.delay_ms))
    }
}
