//! The driver: runs what the machine asks for, commits what it decides, and only then tells
//! anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fabro_blob::{BlobStore, read_blob};
use fabro_events::{EventBody, EventSink, Note, PauseReason};
use fabro_store::{Batch, ChangeMark, InboxId, Message, Store, StoreError};
use fabro_types::{BlobRef, BranchPath, Failure, NodeKind, RunStatus};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::attempt::{self, Attempt, Key};
use crate::cursor::ActiveStage;
use crate::deadlines::{Deadlines, is_at_work};
use crate::handler::{Handler, Letter, Mailbox, Report, ReportError, Reporter, Stage};
use crate::input::Input;
use crate::machine::Machine;
use crate::state::Phase;

/// How often the inbox is looked into while stages are at work.
const INBOX_PERIOD: Duration = Duration::from_millis(100);

/// How long the driver waits for canceled handlers when it ends. Longer than the grace of one
/// attempt, so that a timeout that is being handled still ends.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;
}

impl<F: Fn() -> i64 + Send + Sync> Clock for F {
    fn now_ms(&self) -> i64 {
        self()
    }
}

/// What a driver works with.
pub struct World {
    /// Where the log, the blobs and the inbox are.
    pub store: Arc<dyn Store>,
    /// Runs the stages.
    pub handler: Arc<dyn Handler>,
    /// Is told of every event once it is on stable storage.
    pub sink: Arc<dyn EventSink>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The run's directory.
    pub run_dir: PathBuf,
    /// Fires to stop cleanly: stages are ended, nothing is recorded of them, and the run can be
    /// resumed.
    pub stop: CancellationToken,
}

/// Why a driver could not go on. What was committed stands, and the run can be resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What a stage did cannot be recorded.
    #[error("stage `{stage}` cannot be recorded: {message}")]
    Record {
        /// The stage.
        stage: Arc<str>,
        /// What happened, with what to do.
        message: String,
    },
}

/// Why a driver ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    /// The run is over: succeeded, failed or canceled, with the reason of a failure.
    Over(RunStatus, Option<Failure>),
    /// It waits for a person or a budget.
    Paused(PauseReason),
    /// It was told to stop.
    Stopped,
}

/// Reads the blobs that conditions need and hands them to the machine, until it needs no more.
pub fn read_needs(machine: &mut Machine, now_ms: i64, blobs: &dyn BlobStore) {
    while !machine.needs().is_empty() {
        let read = |blob: &BlobRef| {
            let value = read_blob(blobs, blob).map_err(|error| error.to_string());
            (*blob, value)
        };
        let values = machine.needs().iter().map(read).collect();
        machine.handle(now_ms, Input::Values { values });
    }
}

type Done = (Key, attempt::Ended);
pub(crate) type InFlight = FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>;

struct Running {
    cancel: CancellationToken,
    activity: Arc<tokio::sync::Notify>,
    letters: mpsc::UnboundedSender<Letter>,
    is_agent: bool,
    delivered: BTreeSet<InboxId>,
    /// Fires when its handler has ended.
    ended: CancellationToken,
}

struct Driver {
    world: World,
    machine: Machine,
    running: BTreeMap<Key, Running>,
    /// Branches of the stages that were called off and whose handlers may still be ending.
    ending: Vec<(Arc<str>, CancellationToken)>,
    /// Stages that wait for an answer nobody here can give, or for a larger budget.
    suspended: BTreeMap<Key, PauseReason>,
    deadlines: Deadlines,
    reports: mpsc::UnboundedSender<Report>,
    stop: CancellationToken,
    mark: Option<ChangeMark>,
    consumed: Vec<InboxId>,
    acks: Vec<oneshot::Sender<Result<(), ReportError>>>,
}

/// Drives a run to its end, or until it has to wait. `first` is what the driver begins with:
/// [`Input::Start`] or [`Input::Resume`]. Fails with [`DriveError`] when something cannot be
/// recorded.
pub async fn drive(machine: Machine, first: Input, world: World) -> Result<RunEnd, DriveError> {
    let (reports, inbound) = mpsc::unbounded_channel();
    let stop = world.stop.child_token();
    let mut driver = Driver {
        world,
        machine,
        running: BTreeMap::new(),
        ending: Vec::new(),
        suspended: BTreeMap::new(),
        deadlines: Deadlines::default(),
        reports,
        stop,
        mark: None,
        consumed: Vec::new(),
        acks: Vec::new(),
    };
    let mut in_flight = InFlight::new();
    let end = driver.run(first, inbound, &mut in_flight).await;
    if let Ok(RunEnd::Over(..)) = end {
        driver.running.values().for_each(|running| running.cancel.cancel());
    } else {
        driver.stop.cancel();
    }
    drop(driver);
    // A handler that does not end soon after its cancellation is dropped.
    let ending = async { while in_flight.next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_GRACE, ending).await;
    end
}

impl Driver {
    async fn run(
        &mut self,
        first: Input,
        mut inbound: mpsc::UnboundedReceiver<Report>,
        in_flight: &mut InFlight,
    ) -> Result<RunEnd, DriveError> {
        self.decide(first);
        self.commit().await?;
        let mut period = tokio::time::interval(INBOX_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if let Some(end) = self.finished() {
                return Ok(end);
            }
            if self.launch(in_flight) {
                // An answer that is there already counts, even if the gate's time is over; and an agent
                // is told what was said before it began.
                self.read_inbox().await?;
            }
            if self.running.is_empty() {
                self.read_inbox().await?;
                if self.suspended_again() {
                    self.commit().await?;
                    continue;
                }
                let mut gates = Vec::new();
                for (key, reason) in &self.suspended {
                    if *reason == PauseReason::Human {
                        gates.push(Arc::clone(&key.node));
                    }
                }
                self.decide(Input::Idle { gates });
                self.commit().await?;
                continue;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return self.stopped().await,
                Some((key, ended)) = in_flight.next() => self.ended(key, ended).await?,
                Some(report) = inbound.recv() => self.report(report).await?,
                _ = period.tick() => self.read_inbox().await?,
            }
            // Everything that is ready goes into the same commit.
            while !self.stop.is_cancelled()
                && let Some(Some((key, ended))) = in_flight.next().now_or_never()
            {
                self.ended(key, ended).await?;
            }
            while let Ok(report) = inbound.try_recv() {
                self.report(report).await?;
            }
            if self.stop.is_cancelled() {
                return self.stopped().await;
            }
            self.commit().await?;
        }
    }

    /// Commits what was decided before the stop: what was paid for is not asked for again.
    async fn stopped(&mut self) -> Result<RunEnd, DriveError> {
        self.commit().await?;
        Ok(RunEnd::Stopped)
    }

    fn finished(&self) -> Option<RunEnd> {
        match &self.machine.state().phase {
            Phase::Ended(status, failure) => Some(RunEnd::Over(*status, failure.clone())),
            Phase::Paused(reason) => Some(RunEnd::Paused(*reason)),
            Phase::Created | Phase::Running => None,
        }
    }

    fn decide(&mut self, input: Input) {
        let now_ms = self.world.clock.now_ms();
        self.machine.handle(now_ms, input);
        read_needs(&mut self.machine, now_ms, &*self.world.store);
    }

    /// Makes everything decided so far durable, then tells of it.
    async fn commit(&mut self) -> Result<(), StoreError> {
        let commit = self.machine.take_commit();
        let consumed = std::mem::take(&mut self.consumed);
        if let Some(first) = commit.events.first() {
            let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &consumed };
            self.world.store.append(first.run_id, first.seq - 1, &batch).await?;
        }
        for event in &commit.events {
            self.world.sink.event(event);
        }
        for ack in self.acks.drain(..) {
            // The handler may have given up waiting; then nobody needs to know.
            let _ = ack.send(Ok(()));
        }
        Ok(())
    }

    /// Starts every stage that the state says is at work and that is not, and ends those that the
    /// state no longer knows. True when one of those it started
    /// listens to what is said from outside.
    fn launch(&mut self, in_flight: &mut InFlight) -> bool {
        let mut wanted = Vec::new();
        for (branch, at) in self.machine.state().active() {
            let key = Key::of(branch, at);
            let waits = self.suspended.contains_key(&key) || self.is_held(at);
            if !self.running.contains_key(&key) && !waits {
                wanted.push((key, at.clone()));
            }
        }
        let state = self.machine.state();
        self.ending.retain(|(_, ended)| !ended.is_cancelled());
        self.running.retain(|key, running| {
            let live = key.is_current(state);
            if !live {
                running.cancel.cancel();
                self.ending.push((Arc::clone(&key.branch), running.ended.clone()));
            }
            live
        });
        self.suspended.retain(|key, _| key.is_current(state));
        self.deadlines.watch(state, self.machine.plan(), &self.stop, in_flight);
        let mut any_listener = false;
        for (key, at) in wanted {
            any_listener |= matches!(at.handler, NodeKind::Human | NodeKind::Agent);
            let ended = CancellationToken::new();
            if let Some(attempt) = self.prepare(&key, at, ended.clone()) {
                let handler = Arc::clone(&self.world.handler);
                let clock = Arc::clone(&self.world.clock);
                let earlier = self.earlier_stages(&key);
                let ended = ended.drop_guard();
                in_flight.push(Box::pin(async move {
                    for stage in earlier {
                        stage.cancelled().await;
                    }
                    let end = attempt.run(&*handler, &*clock).await;
                    drop(ended);
                    (key, end)
                }));
            }
        }
        any_listener
    }

    /// The ends of what is left of a fan-out's earlier attempts: two of them never work side by side.
    fn earlier_stages(&self, key: &Key) -> Vec<CancellationToken> {
        let is_earlier = |branch: &str| {
            let line = BranchPath::new(&key.branch);
            BranchPath::new(branch).is_of_fan_out(line, &key.node, key.visit)
        };
        let earlier = self.ending.iter().filter(|(branch, _)| is_earlier(branch));
        earlier.map(|(_, ended)| ended.clone()).collect()
    }

    fn prepare(&mut self, key: &Key, at: ActiveStage, ended: CancellationToken) -> Option<Attempt> {
        let run = self.machine.state();
        let cursor = run.cursors.get(&key.branch)?;
        let plan = Arc::clone(self.machine.plan());
        let node = plan.find(&key.node)?;
        let (letters, mail) = mpsc::unbounded_channel();
        let cancel = self.stop.child_token();
        let activity = Arc::new(tokio::sync::Notify::new());
        let silence = plan.graph().stall_timeout.filter(|_| node.kind.is_llm());
        // A gate's time runs from the question, over a restart too: its handler sees to it.
        let timeout = node.timeout.filter(|_| node.kind != NodeKind::Human);
        let delay = Duration::from_millis(at.delay_ms);
        let stage = Stage {
            run_id: run.run_id,
            run: run.created.clone()?,
            at,
            branch: (!key.branch.is_empty()).then(|| Arc::clone(&key.branch)),
            context: cursor.context.clone(),
            history: cursor.history.clone(),
            turns: cursor.turns.clone(),
            rewound_seq: run.rewound_seq,
            budget: self.machine.budget(),
            tokens_left: self.machine.tokens_left(),
            budget_lifted: run.tokens_lifted,
            started_ms: 0,
            run_dir: self.world.run_dir.clone(),
            store: Arc::clone(&self.world.store),
            cancel: cancel.clone(),
            stop: self.stop.clone(),
            reporter: Reporter {
                branch: Arc::clone(&key.branch),
                reports: self.reports.clone(),
                activity: Arc::clone(&activity),
            },
            mailbox: Mailbox { letters: mail },
            plan: Arc::clone(&plan),
        };
        let running = Running {
            cancel,
            activity: Arc::clone(&activity),
            letters,
            is_agent: node.kind == NodeKind::Agent,
            delivered: BTreeSet::new(),
            ended,
        };
        self.running.insert(key.clone(), running);
        self.mark = None;
        Some(Attempt { stage, delay, timeout, silence, activity })
    }

    async fn ended(&mut self, key: Key, ended: attempt::Ended) -> Result<(), DriveError> {
        if self.stop.is_cancelled()
            && let attempt::Ended::Finished(finished) = &ended
            && !finished.outcome.status.is_good()
        {
            // The stop ended it: it runs again when the run is resumed.
            return Ok(());
        }
        if let attempt::Ended::Overdue(limit) = ended
            && is_at_work(&key, self.machine.state())
        {
            self.decide(Input::Overdue { branch: key.branch, limit });
            return Ok(());
        }
        if self.running.remove(&key).is_none() || !key.is_current(self.machine.state()) {
            return Ok(());
        }
        match ended {
            attempt::Ended::Canceled | attempt::Ended::Overdue(_) => {}
            attempt::Ended::Due => self.decide(Input::Due { branch: key.branch }),
            attempt::Ended::Suspended(reason) => {
                self.suspended.insert(key, reason);
            }
            attempt::Ended::Finished(finished) => {
                self.decide(Input::Ended { branch: key.branch, finished });
            }
            attempt::Ended::CannotRecord(message) => {
                // What other stages came to is still worth its place in the log.
                self.commit().await?;
                return Err(DriveError::Record { stage: key.node, message });
            }
        }
        Ok(())
    }

    async fn report(&mut self, report: Report) -> Result<(), StoreError> {
        let Report { branch, notes, blobs, letters, done } = report;
        let active = self.machine.state().cursors.get(&branch).and_then(|cursor| cursor.active());
        let Some(key) = active.map(|at| Key::of(&branch, at)) else {
            // The branch ended while the report was on its way; its handler is being ended too.
            let _ = done.send(Err(ReportError::Ending));
            return Ok(());
        };
        if let Some(running) = self.running.get(&key) {
            running.activity.notify_one();
        }
        if let Some(Note { body: EventBody::GateAnswered { source, label, text, .. }, .. }) =
            notes.first()
        {
            let choice = text.clone().unwrap_or_else(|| label.clone());
            let Some(id) =
                self.claim(&key, letters.first().copied(), choice, source.clone()).await?
            else {
                // As above: a handler that is gone needs no answer.
                let _ = done.send(Err(ReportError::AlreadyAnswered));
                self.mark = None;
                return Ok(());
            };
            self.consumed.push(id);
        } else {
            self.consumed.extend(letters);
        }
        self.decide(Input::Note { branch, notes, blobs });
        self.acks.push(done);
        Ok(())
    }

    /// Every answer goes through the inbox, whose one place a gate decides who was first.
    async fn claim(
        &self,
        key: &Key,
        letter: Option<InboxId>,
        choice: String,
        source: String,
    ) -> Result<Option<InboxId>, StoreError> {
        if letter.is_some() {
            return Ok(letter);
        }
        let message = Message::Answer {
            node: key.node.to_string(),
            visit: key.visit,
            branch: (!key.branch.is_empty()).then(|| key.branch.to_string()),
            choice,
            source,
        };
        match self.world.store.post(self.machine.state().run_id, &message).await {
            Ok(id) => Ok(Some(id)),
            Err(StoreError::AlreadyAnswered { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let mark = self.world.store.mark().await?;
        if self.mark == Some(mark) {
            return Ok(());
        }
        self.mark = Some(mark);
        for (id, message) in self.world.store.pending(self.machine.state().run_id).await? {
            match message {
                // What was read before and is not committed yet is still pending.
                Message::Cancel { .. } if self.consumed.contains(&id) => {}
                Message::Cancel { reason } => {
                    self.consumed.push(id);
                    self.decide(Input::Cancel { reason });
                }
                Message::Answer { node, visit, branch, choice, source } => {
                    let branch = branch.unwrap_or_default();
                    self.deliver(id, (&branch, &node, visit), &choice, &source);
                }
                Message::Steer { text, node } => self.steer(id, node.as_deref(), &text),
                _ => {}
            }
        }
        Ok(())
    }

    fn deliver(&mut self, id: InboxId, gate: (&str, &str, u32), choice: &str, source: &str) {
        let is_gate = |key: &Key| (key.branch.as_ref(), key.node.as_ref(), key.visit) == gate;
        self.suspended.retain(|key, _| !is_gate(key));
        for (_, running) in self.running.iter_mut().filter(|(key, _)| is_gate(key)) {
            if running.delivered.insert(id) {
                let letter =
                    Letter::Answer { id, choice: choice.to_owned(), source: source.to_owned() };
                // A stage that has just ended has no use for it.
                let _ = running.letters.send(letter);
            }
        }
    }

    /// Tells the agents at work, or those of one node. Without any, the letter waits for the next.
    fn steer(&mut self, id: InboxId, node: Option<&str>, text: &str) {
        let is_meant = |key: &Key| node.is_none_or(|node| node == &*key.node);
        let agents = self.running.iter_mut().filter(|(_, running)| running.is_agent);
        for (_, running) in agents.filter(|(key, _)| is_meant(key)) {
            if running.delivered.insert(id) {
                let letter = Letter::Steer { id, text: text.to_owned() };
                // As above.
                let _ = running.letters.send(letter);
            }
        }
    }

    /// True when a stage that was suspended can go on after all, or the run has ended.
    fn suspended_again(&mut self) -> bool {
        if self.finished().is_some() {
            return true;
        }
        self.machine.state().active().any(|(branch, at)| {
            !self.is_held(at) && !self.suspended.contains_key(&Key::of(branch, at))
        })
    }

    /// True for another attempt that the budget does not allow.
    fn is_held(&self, at: &ActiveStage) -> bool {
        at.attempt > 1 && self.machine.over_budget()
    }
}
