//! What a run is right now, as a fold over its events.
//!
//! [`RunState::apply`] is the only code that changes it. It needs nothing but the event, so a
//! resume, a fork and a report all reach the same state.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_context::{Context, keys};
use fabro_events::{
    CreatedRun, Entry, Event, EventBody, ForEach, ForkPoint, PauseReason, Spent, StageFailure,
};
use fabro_types::{BranchPath, Failure, Fidelity, RunId, RunStatus, Status, Usage};
use imbl::{OrdMap, Vector};
use serde_json::Value;

use crate::active_stage::ActiveStage;
use crate::clock::duration_ms;
use crate::cursor::{Cursor, Position, last_failed};
use crate::fanout::{BranchEnd, FanOut};
use crate::inconsistent::Inconsistent;
use crate::key::Key;
use crate::line::MAIN;
use crate::worktrees::{Worktrees, work_dir_of};

/// A run after some prefix of its log.
#[derive(Clone, Debug)]
pub struct RunState {
    /// The run.
    pub run_id: RunId,
    /// How it began; `None` before its first event.
    pub created: Option<Arc<CreatedRun>>,
    /// Where it stands.
    pub phase: Phase,
    /// The main line (under [`MAIN`]) and every branch that has begun and not ended, by name.
    pub cursors: BTreeMap<Arc<str>, Cursor>,
    /// The branches that have ended and are not joined yet.
    ended: BTreeMap<Arc<str>, Cursor>,
    /// Model usage of all attempts that ended.
    pub usage: Usage,
    /// How many values were offloaded so far.
    pub artifact_count: u64,
    /// The spending limit in US dollars, when there is one.
    pub max_cost: Option<f64>,
    /// A limit given on resuming has taken the place of the workflow's limit of tokens.
    pub tokens_lifted: bool,
    /// When the first event was committed, in milliseconds since 1970.
    pub started_ms: i64,
    /// When the last one was.
    pub updated_ms: i64,
    /// By how much the clock was set since the first event, all told, in milliseconds.
    pub clock_set_ms: i64,
    /// The part of it that the run had before it was forked from another one.
    pub(crate) forked_clock_set_ms: i64,
    /// Total time without a driver, in milliseconds: the gap before each resume, rewind and retry.
    pub(crate) undriven_ms: u64,
    /// The last event's place in the log.
    pub last_seq: u64,
    /// The stage failures that the end of the run names, the first cause first: those that nothing
    /// handled, or what a failed run began with.
    pub causes: Vec<StageFailure>,
    /// The last rewind's place in the log; 0 when there was none.
    pub rewound_seq: u64,
    /// The git worktrees of its lines.
    pub worktrees: Worktrees,
}

/// Where a run stands, without regard to whether a driver is alive.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Created, nothing executed.
    Created,
    /// Under way.
    Running,
    /// Waiting for a person, a budget, or a model that can be asked.
    Paused(PauseReason),
    /// Over, with the reason of a failure or, when it succeeded partially, the first unhandled one.
    Ended(RunStatus, Option<Failure>),
}

impl RunState {
    /// A run before its first event.
    pub fn new(run_id: RunId) -> Self {
        Self {
            run_id,
            created: None,
            phase: Phase::Created,
            cursors: BTreeMap::new(),
            ended: BTreeMap::new(),
            usage: Usage::default(),
            artifact_count: 0,
            max_cost: None,
            tokens_lifted: false,
            started_ms: 0,
            updated_ms: 0,
            clock_set_ms: 0,
            forked_clock_set_ms: 0,
            undriven_ms: 0,
            last_seq: 0,
            causes: Vec::new(),
            rewound_seq: 0,
            worktrees: Worktrees::default(),
        }
    }

    /// The state after these events, which must be one run's whole log. Events that a rewind took
    /// back are left out, and of an event that does not fit only what fits is taken: for readers.
    pub fn replay<'a>(run_id: RunId, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::new(run_id);
        for event in crate::checkpoint::effective(events) {
            state.apply(event);
        }
        state
    }

    /// The same, where an event that does not fit is an error: for those who continue the run.
    ///
    /// # Errors
    ///
    /// The log is not one that this engine has written, or it is damaged.
    pub fn try_replay<'a>(
        run_id: RunId,
        events: impl IntoIterator<Item = &'a Event>,
    ) -> Result<Self, Inconsistent> {
        let mut state = Self::new(run_id);
        for event in crate::checkpoint::effective(events) {
            state.try_apply(event)?;
        }
        Ok(state)
    }

    /// The main line; `None` before the first event.
    pub fn main(&self) -> Option<&Cursor> {
        self.cursors.get(MAIN)
    }

    /// The cursor of a branch, `None` meaning the main line.
    pub fn cursor(&self, branch: Option<&str>) -> Option<&Cursor> {
        self.cursors.get(branch.unwrap_or(MAIN))
    }

    /// The status, given whether a driver runs it.
    pub fn status(&self, driven: bool) -> RunStatus {
        match &self.phase {
            Phase::Ended(status, _) => *status,
            // Its driver may be waiting to retry.
            Phase::Paused(PauseReason::Unavailable) => RunStatus::Paused,
            Phase::Paused(_) if !driven => RunStatus::Paused,
            _ if driven => RunStatus::Running,
            _ => RunStatus::Interrupted,
        }
    }

    /// Model usage so far, that of the running stages included.
    pub fn usage_so_far(&self) -> Usage {
        let mut usage = self.usage.clone();
        for (_, stage) in self.active() {
            usage.add(&stage.spent);
        }
        usage
    }

    /// What counts towards the spending limits: the usage of finished and running stages.
    pub(crate) fn spent(&self) -> Spent {
        let mut spent = Spent::of(&self.usage);
        for (_, stage) in self.active() {
            spent.add(Spent::of(&stage.spent));
        }
        spent
    }

    /// Every running stage, the main line's first, then by branch name.
    pub fn active(&self) -> impl Iterator<Item = (&Arc<str>, &ActiveStage)> {
        self.cursors.iter().filter_map(|(name, cursor)| match &cursor.position {
            Position::Active(stage) => Some((name, stage)),
            _ => None,
        })
    }

    /// Whether this attempt of a stage, not a fan-out, is running.
    pub(crate) fn is_current(&self, key: &Key) -> bool {
        match self.cursors.get(&key.branch).map(|cursor| &cursor.position) {
            Some(Position::Active(at)) => Key::of(&key.branch, at) == *key,
            _ => false,
        }
    }

    /// Whether this attempt of a fan-out is running.
    pub(crate) fn is_running_fan_out(&self, key: &Key) -> bool {
        match self.cursors.get(&key.branch).map(|cursor| &cursor.position) {
            Some(Position::Fanned(fan)) => Key::of(&key.branch, &fan.stage) == *key,
            _ => false,
        }
    }

    /// Drops what stages wrote: contexts, histories, outputs. For readers that only ask where the run stands, so
    /// that their memory does not grow with the log.
    pub fn forget_values(&mut self) {
        for cursor in self.cursors.values_mut().chain(self.ended.values_mut()) {
            cursor.forget_values();
        }
    }

    /// Drops the histories of its lines, which preambles are made of, and keeps contexts: for readers of contexts,
    /// so that their memory does not grow with every stage.
    pub fn forget_histories(&mut self) {
        for cursor in self.cursors.values_mut().chain(self.ended.values_mut()) {
            cursor.history = Vector::new();
        }
    }

    /// What the next event has as [`Entry::clock_set_total_ms`](fabro_events::Entry::clock_set_total_ms) when
    /// the clock was set by so many milliseconds since the last one.
    pub fn clock_set_total(&self, set_ms: i64) -> Option<i64> {
        let own_ms = self.clock_set_ms.saturating_sub(self.forked_clock_set_ms);
        Some(own_ms.saturating_add(set_ms)).filter(|total_ms| *total_ms != 0)
    }

    /// About what the values in its contexts take, in bytes. Branches share the context that they begin with, so of
    /// them only what they wrote counts.
    pub fn value_bytes(&self) -> usize {
        let main = self.cursors.get(MAIN).map(|main| &main.context);
        let main = main.into_iter().flat_map(Context::iter);
        let shared: usize = main.map(|(key, value)| key.len() + bytes_of(value)).sum();
        let branches = self.cursors.values().chain(self.ended.values());
        let own = branches.flat_map(|cursor| cursor.updates.iter());
        shared + own.map(|(key, value)| key.len() + bytes_of(value)).sum::<usize>()
    }

    /// Takes one event in. Of an event that does not fit the state, as in a log that is read from
    /// its middle, only what fits is taken.
    pub fn apply(&mut self, event: &Event) {
        // The reader of a damaged log still wants to see the rest of it.
        let _ = self.try_apply(event);
    }

    /// The same, where an event that does not fit is an error.
    pub(crate) fn try_apply(&mut self, event: &Event) -> Result<(), Inconsistent> {
        if self.last_seq == 0 {
            self.started_ms = event.ts_ms;
        }
        self.last_seq = event.seq;
        let before_ms = self.updated_ms.saturating_sub(self.clock_set_ms);
        self.updated_ms = event.ts_ms;
        self.clock_set_ms = match event.entry.clock_set_total_ms {
            // Counts what a rewind took back, too: the clock stays as it was set.
            Some(total_ms) => self.forked_clock_set_ms.saturating_add(total_ms),
            None => self.clock_set_ms.saturating_add(event.entry.clock_set_ms.unwrap_or(0)),
        };
        self.worktrees.apply(event);
        let entry = &event.entry;
        if matches!(entry.body, EventBody::RunResumed { .. } | EventBody::CheckpointForked(_)) {
            let now_ms = self.updated_ms.saturating_sub(self.clock_set_ms);
            self.undriven_ms = self.undriven_ms.saturating_add(duration_ms(before_ms, now_ms));
        }
        match &entry.body {
            EventBody::RunCreated(created) => self.create(created),
            EventBody::RunStarted {} => self.phase = Phase::Running,
            EventBody::RunResumed { max_cost } => self.resumed(*max_cost),
            EventBody::RunPaused { reason, unavailable, failed_turns, used, .. } => {
                self.phase = Phase::Paused(*reason);
                for used in used.values() {
                    self.usage.add(used);
                }
                for (line, turns) in failed_turns {
                    self.line_mut(line)?.count_failed_turns(*turns);
                }
                for stage in unavailable {
                    let line = stage.branch.as_deref().unwrap_or(MAIN);
                    self.line_mut(line)?.allow_fresh_attempts(&stage.node);
                }
            }
            EventBody::RunCompleted { status, unhandled, .. } => {
                let first = unhandled.first().map(|stage| stage.failure.clone());
                self.phase = Phase::Ended(RunStatus::of_completed(*status), first);
                self.causes.clone_from(unhandled);
            }
            EventBody::RunFailed { failure, .. } => {
                self.causes = entry.body.causes().to_vec();
                self.phase = Phase::Ended(RunStatus::Failed, Some(failure.clone()));
            }
            EventBody::RunCanceled { .. } => self.phase = Phase::Ended(RunStatus::Canceled, None),
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                self.usage.add(&end.outcome.usage.clone().unwrap_or_default());
                self.artifact_count += crate::offload::blobs_in(&end.outcome.context_updates);
                self.cursor_mut(entry)?.ended(event, end)?;
            }
            EventBody::StageRetrying { attempt, delay_ms, failure, usage } => {
                let usage = usage.clone().unwrap_or_default();
                self.usage.add(&usage);
                let at = (event.seq, event.ts_ms.saturating_sub(self.clock_set_ms));
                self.cursor_mut(entry)?.retrying(at, *attempt, *delay_ms, failure, &usage)?;
            }
            EventBody::ParallelStarted { branches, join, max_parallel, for_each, .. } => {
                self.fan_out(entry, for_each.as_ref(), |stage| {
                    FanOut::new(stage, branches, join.clone(), *max_parallel)
                })?;
            }
            EventBody::BranchStarted {} => self.begin_branch(branch_of(entry)?)?,
            EventBody::BranchCompleted { status, failure, canceled, .. } => {
                let failure = failure.clone();
                let end = BranchEnd { status: *status, failure, canceled: *canceled };
                self.branch_ended(entry, end)?;
            }
            EventBody::ParallelCompleted { status } => {
                let line = entry.branch.as_deref().unwrap_or(MAIN);
                if !self.merge(line, Some(*status)) {
                    let message = format!("no fan-out is running on branch `{line}`");
                    return Err(Inconsistent::new(message));
                }
            }
            EventBody::LoopRestart { .. } => self.restart(entry)?,
            EventBody::CheckpointForked(point) => {
                self.continue_from(event.seq, point);
            }
            _ => {
                let steady_ms = event.ts_ms.saturating_sub(self.clock_set_ms);
                let rewound_seq = self.rewound_seq;
                let undriven_ms = self.undriven_ms;
                let cursor = self.cursor_mut(entry)?;
                cursor.apply(event, steady_ms)?;
                if let (EventBody::StageStarted { .. }, Position::Active(stage)) =
                    (&entry.body, &mut cursor.position)
                {
                    stage.rewound_seq = rewound_seq;
                    stage.undriven_ms = undriven_ms;
                }
            }
        }
        Ok(())
    }

    /// The run continues from an earlier point, of another run or its own.
    fn continue_from(&mut self, seq: u64, point: &ForkPoint) {
        for cursor in self.cursors.values_mut() {
            cursor.context.apply(&point.set);
            // After a retry, stages that continue keep their sub-workflows.
            if let Position::Active(stage) = &mut cursor.position
                && point.in_place
                && point.retry.is_none()
            {
                stage.rewound_seq = seq;
            }
        }
        if point.in_place {
            self.rewound_seq = seq;
        } else {
            self.forked_clock_set_ms = self.clock_set_ms;
        }
        self.phase = Phase::Running;
        self.causes.clear();
    }

    /// How the run began, which its first event says.
    pub(crate) fn created(&self) -> Result<&Arc<CreatedRun>, Inconsistent> {
        let missing = || Inconsistent::new("the run was not created");
        self.created.as_ref().ok_or_else(missing)
    }

    fn cursor_mut(&mut self, entry: &Entry) -> Result<&mut Cursor, Inconsistent> {
        self.line_mut(entry.branch.as_deref().unwrap_or(MAIN))
    }

    fn line_mut(&mut self, branch: &str) -> Result<&mut Cursor, Inconsistent> {
        let missing = || Inconsistent::new(format!("there is no branch `{branch}`"));
        self.cursors.get_mut(branch).ok_or_else(missing)
    }

    /// The fan-out that a branch belongs to.
    fn fan_out_of(&mut self, branch: &str) -> Result<&mut FanOut, Inconsistent> {
        let parent = BranchPath::new(branch).parent();
        match self.cursors.get_mut(parent.as_str()).map(|cursor| &mut cursor.position) {
            Some(Position::Fanned(fan)) => Ok(fan),
            _ => Err(Inconsistent::new(format!("branch `{branch}` is of no running fan-out"))),
        }
    }

    fn create(&mut self, created: &Arc<CreatedRun>) {
        self.max_cost = created.max_cost;
        let context = initial_context(self.run_id, created);
        let cursor = Cursor { context, ..Cursor::default() };
        self.cursors.insert(Arc::from(MAIN), cursor);
        self.created = Some(Arc::clone(created));
    }

    fn resumed(&mut self, max_cost: Option<f64>) {
        self.phase = Phase::Running;
        self.max_cost = max_cost.or(self.max_cost);
        self.tokens_lifted |= max_cost.is_some();
        for cursor in self.cursors.values_mut() {
            if cursor.resumes_threads() {
                continue;
            }
            cursor.degrade = true;
            let drops_thread = cursor.drops_thread();
            // A gate that was asked still waits; it is the model stage after it that starts first.
            if let Position::Active(stage) = &mut cursor.position
                && drops_thread
            {
                stage.fidelity = Fidelity::SummaryHigh;
                cursor.degrade = false;
                let word = Value::from(Fidelity::SummaryHigh.as_str());
                cursor.context.set(keys::FIDELITY, word);
            }
        }
    }

    fn restart(&mut self, entry: &Entry) -> Result<(), Inconsistent> {
        let created = Arc::clone(self.created()?);
        let run_id = self.run_id;
        let cursor = self.cursor_mut(entry)?;
        cursor.restarted_by = last_failed(cursor.history.iter().rev().take(1));
        cursor.context = initial_context(run_id, &created);
        cursor.history = Vector::new();
        cursor.ends = OrdMap::new();
        cursor.joined = None;
        cursor.last = None;
        Ok(())
    }

    fn fan_out(
        &mut self,
        entry: &Entry,
        for_each: Option<&Arc<ForEach>>,
        fan_out: impl FnOnce(ActiveStage) -> FanOut,
    ) -> Result<(), Inconsistent> {
        let parent = self.cursor_mut(entry)?;
        let Position::Active(stage) = &parent.position else {
            return Err(Inconsistent::new("a fan-out begins without its stage"));
        };
        let stage = ActiveStage { for_each: for_each.cloned(), ..stage.clone() };
        parent.position = Position::Fanned(fan_out(stage));
        Ok(())
    }

    fn begin_branch(&mut self, name: &str) -> Result<(), Inconsistent> {
        let place = self.fan_out_of(name)?.begin(name)?;
        let parent = self.line_mut(BranchPath::new(name).parent().as_str())?;
        if let Position::Fanned(fan_out) = &parent.position {
            let mut branch = parent.branch(fan_out, place);
            let created = self.created.as_ref().filter(|_| self.worktrees.head(name).is_some());
            if let Some(dir) = created.and_then(|created| work_dir_of(created, name)) {
                branch.context.set(keys::WORK_DIR, Value::from(dir));
            }
            self.cursors.insert(Arc::clone(&branch.branch), branch);
        }
        Ok(())
    }

    fn branch_ended(&mut self, entry: &Entry, end: BranchEnd) -> Result<(), Inconsistent> {
        let name = branch_of(entry)?;
        // `/` is followed by `0`: these are all the names that begin with this one and a slash.
        let inner = Arc::from(format!("{name}/"))..Arc::from(format!("{name}0"));
        let inner: Vec<Arc<str>> =
            self.cursors.range::<Arc<str>, _>(inner).map(|(name, _)| Arc::clone(name)).collect();
        // A branch may be canceled while it fans out itself: what the inner branches did stays
        // counted, or later stages would take their ranks and visits again.
        for inner in inner.iter().rev() {
            self.merge(inner, None);
        }
        self.merge(name, None);
        if let Some((name, mut cursor)) = self.cursors.remove_entry(name) {
            if let Some(failure) = end.failure.as_ref().filter(|_| !end.canceled) {
                cursor.branch_failed(failure, self.last_seq);
            }
            if let Position::Active(stage) = std::mem::replace(&mut cursor.position, Position::Done)
            {
                // It is canceled in the middle of a stage, whose cost is a cost all the same. A goal
                // gate that was visited and came to no result is not met.
                self.usage.add(&stage.spent);
                cursor.canceled(&stage);
            }
            self.ended.insert(name, cursor);
        }
        if self.fan_out_of(name)?.end(name, end)? && !self.ended.contains_key(name) {
            return Err(Inconsistent::new(format!("there is no branch `{name}`")));
        }
        Ok(())
    }

    /// A line by its name, also that of a branch that has ended.
    pub(crate) fn line(&self, name: &str) -> Option<&Cursor> {
        self.cursors.get(name).or_else(|| self.ended.get(name))
    }

    /// Adds what the branches of a fan-out did to the line they came from; of branches that a
    /// fan-out could succeed without, failures are forgotten. `joined` is its status if it was
    /// joined. False on a line without a running fan-out, as most branches are when they end.
    fn merge(&mut self, name: &str, joined: Option<Status>) -> bool {
        let running =
            self.cursors.get(name).filter(|line| matches!(line.position, Position::Fanned(_)));
        let Some(base) = running.cloned() else { return false };
        let Position::Fanned(fan) = &base.position else { return false };
        let mut merged = base.clone();
        merged.position = Position::Active(fan.stage.clone());
        let succeeded = joined == Some(Status::Succeeded);
        if succeeded {
            merged.open_failures.remove_under(&fan.stage.node);
        }
        for (index, branch) in fan.branches.iter().enumerate() {
            let ended = self.ended.remove(&branch.name);
            if let Some(mut cursor) = ended.or_else(|| self.cursors.remove(&branch.name)) {
                if let Position::Active(stage) = &cursor.position {
                    let stage = stage.clone();
                    cursor.canceled(&stage);
                }
                let good = branch.end.as_ref().is_some_and(|end| end.status.is_good());
                let element = fan.for_each.as_ref().map(|_| (&fan.stage.node, index));
                merged.absorb(&base, &cursor, good || !succeeded, element);
                // The response of a branch is also that of the best of its own branches.
                if merged.is_branch() && good && merged.response == base.response {
                    merged.response = cursor.response.or(merged.response);
                }
            }
        }
        self.cursors.insert(Arc::from(name), merged);
        true
    }
}

fn branch_of(entry: &Entry) -> Result<&str, Inconsistent> {
    let missing = || Inconsistent::new("an event about a branch does not name it");
    entry.branch.as_deref().ok_or_else(missing)
}

/// The context a run starts, and restarts, with.
fn initial_context(run_id: RunId, created: &CreatedRun) -> Context {
    let mut context = Context::new();
    context.apply(&created.context);
    context.set(keys::RUN_ID, Value::from(run_id.to_string()));
    context.set(keys::WORK_DIR, Value::from(created.work_dir.as_str()));
    context
}

/// About what a value takes in memory, in bytes.
fn bytes_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes_of).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| key.len() + bytes_of(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}
