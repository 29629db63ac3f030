//! The decisions of a run. No clock, no randomness, no I/O: what happened comes in as an
//! [`Input`], what follows goes out as events that are already part of the state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fabro_blob::READ_LIMIT;
use fabro_events::{Candidate, CompletedStage, Entry, Event, EventBody, Note, PauseReason};
use fabro_graph::{EdgeIx, NodeIx};
use fabro_plan::{Backend, NodeSpec};
use fabro_types::{BlobRef, Failure, FailureClass, Fidelity, NodeKind, OnFailure, Outcome, Status};
use serde_json::Value;

use crate::active_stage::ActiveStage;
use crate::cursor::{Cursor, EnteredBy, Position};
use crate::inconsistent::Inconsistent;
use crate::input::{Commit, Finished, Idle, Input};
use crate::line::{MAIN, is_main};
use crate::offload::offload_patch;
use crate::state::{Phase, RunState};
use crate::{NewBlob, Plan, pause_rule, random, retry};

/// A run's state together with its plan: takes inputs, gives events.
pub struct Machine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) state: RunState,
    /// Large values that conditions need, while one input is handled.
    pub(crate) values: BTreeMap<BlobRef, Result<Value, String>>,
    /// Large values that have to be read before the next transition is decided.
    pub(crate) needs: BTreeSet<BlobRef>,
    /// The most that one of these may have to be of use, in bytes.
    pub(crate) needs_limit: u64,
    /// The branch whose fan-out begins once they are read.
    pub(crate) waiting_fan_out: Option<Arc<str>>,
    /// The finished attempt whose stage ends once they are read.
    waiting_end: Option<(Arc<str>, Finished)>,
    pub(crate) runnable_lines: VecDeque<Arc<str>>,
    pub(crate) commit: Commit,
    pub(crate) now_ms: i64,
    /// By how much the clock was set since the last event.
    clock_set_ms: Option<i64>,
    /// The first event of its own that did not fit the state.
    inconsistent: Option<Inconsistent>,
    /// Branches that wait because no model or agent is available, with the failure.
    pub(crate) waiting_branches: BTreeMap<Arc<str>, Failure>,
}

impl Machine {
    /// A machine for a run in this state.
    pub fn new(plan: Arc<Plan>, state: RunState) -> Self {
        Self {
            plan,
            state,
            values: BTreeMap::new(),
            needs: BTreeSet::new(),
            needs_limit: READ_LIMIT,
            waiting_fan_out: None,
            waiting_end: None,
            runnable_lines: VecDeque::new(),
            commit: Commit::default(),
            now_ms: 0,
            clock_set_ms: None,
            inconsistent: None,
            waiting_branches: BTreeMap::new(),
        }
    }

    /// Records why a branch waits: no model or agent is available. The failure is reported if its
    /// fan-out ends without the branch.
    pub fn branch_waits(&mut self, branch: &Arc<str>, failure: Failure) {
        self.waiting_branches.insert(Arc::clone(branch), failure);
    }

    /// The state, everything handled so far included.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The clock was set by so many milliseconds: the next event records it, and no duration contains it.
    pub fn clock_was_set(&mut self, by_ms: i64) {
        self.clock_set_ms = Some(self.clock_set_ms.unwrap_or(0).saturating_add(by_ms));
    }

    /// What a clock that was never set would show now, in milliseconds.
    pub(crate) fn steady_ms(&self) -> i64 {
        let set_ms = self.state.clock_set_ms.saturating_add(self.clock_set_ms.unwrap_or(0));
        self.now_ms.saturating_sub(set_ms)
    }

    /// Decides what follows from an input at a time (milliseconds since 1970). Inputs for a run or a
    /// branch that has ended are ignored: they were on their way when it ended.
    ///
    /// When [`needs`](Self::needs) names blobs afterwards, the next input is [`Input::Values`].
    pub fn handle(&mut self, now_ms: i64, input: Input) {
        self.now_ms = now_ms;
        if self.has_ended() {
            self.needs.clear();
            return;
        }
        let decided = self.decide(input).and_then(|()| self.advance());
        let inconsistent = decided.err().or_else(|| self.inconsistent.take());
        if let Some(error) = inconsistent.filter(|_| !self.has_ended()) {
            self.needs.clear();
            self.runnable_lines.clear();
            self.fail_run(error.into());
        }
        if self.needs.is_empty() {
            self.values.clear();
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state.phase, Phase::Ended(..))
    }

    /// The blobs that have to be read before the next transition can be decided.
    pub fn needs(&self) -> &BTreeSet<BlobRef> {
        &self.needs
    }

    /// The most that one of these blobs may have to be of use, in bytes: a larger one need not be read.
    pub fn needs_limit(&self) -> u64 {
        self.needs_limit
    }

    pub(crate) fn need(&mut self, blobs: BTreeSet<BlobRef>, limit: u64) {
        self.needs = blobs;
        self.needs_limit = limit;
    }

    fn decide(&mut self, input: Input) -> Result<(), Inconsistent> {
        match input {
            Input::Start => {
                self.emit(MAIN, EventBody::RunStarted {});
                self.runnable_lines.push_back(Arc::from(MAIN));
            }
            Input::Resume { max_cost } => {
                let lines: Vec<_> = self.state.cursors.values().cloned().collect();
                self.emit(MAIN, EventBody::RunResumed { max_cost });
                let plan = Arc::clone(&self.plan);
                for line in lines.iter().filter(|line| line.drops_thread()) {
                    let Some(at) = line.active() else { continue };
                    let node = plan
                        .find(&at.node)
                        .filter(|it| has_thread(line, it, at.thread_id.as_ref()));
                    if let Some(node) = node {
                        self.emit_for(&line.branch, node, at.visit, thread_dropped_warning());
                    }
                }
                self.runnable_lines.extend(self.state.cursors.keys().cloned());
            }
            // A stage or a timer may end after its branch was canceled: where the branch is no longer
            // at this stage, there is nothing to decide.
            Input::Ended { branch, finished } => {
                if self.active_stage(&branch).is_some() {
                    self.ended(&branch, *finished)?;
                }
            }
            Input::Due { branch } => {
                if self.active_stage(&branch).is_some() {
                    self.fan_out(&branch)?;
                }
            }
            Input::Overdue { branch, limit } => {
                if self.fan_out_at(&branch).is_ok() {
                    self.join(&branch, Err(retry::timed_out(limit)))?;
                }
            }
            Input::Note { branch, notes, blobs } => self.note(&branch, notes, blobs)?,
            Input::Values { values } => {
                self.values.extend(values);
                self.needs.clear();
                if let Some(branch) = self.waiting_fan_out.take() {
                    self.fan_out(&branch)?;
                }
                if let Some((branch, finished)) = self.waiting_end.take() {
                    self.ended(&branch, finished)?;
                }
            }
            Input::Idle(idle) => self.pause(*idle),
            Input::Cancel { reason, by_parent } => {
                self.emit(MAIN, EventBody::RunCanceled { reason, by_parent });
            }
            Input::Abort { failure } => self.fail_run(failure),
        }
        Ok(())
    }

    /// The stage that is running on this line, fan-outs aside.
    pub(crate) fn active_stage(&self, branch: &str) -> Option<&ActiveStage> {
        match &self.state.cursors.get(branch)?.position {
            Position::Active(stage) => Some(stage),
            _ => None,
        }
    }

    /// The running stage of this line, which may be a fan-out's.
    pub(crate) fn running_stage(&self, branch: &str) -> Result<&ActiveStage, Inconsistent> {
        let missing = || Inconsistent::new(format!("no stage is running on branch `{branch}`"));
        self.cursor(branch)?.active().ok_or_else(missing)
    }

    pub(crate) fn cursor(&self, branch: &str) -> Result<&Cursor, Inconsistent> {
        let missing = || Inconsistent::new(format!("there is no branch `{branch}`"));
        self.state.cursors.get(branch).ok_or_else(missing)
    }

    /// A node of the plan that an event has named before.
    pub(crate) fn node_index(&self, id: &str) -> Result<NodeIx, Inconsistent> {
        let missing = || Inconsistent::new(format!("there is no node `{id}` in the plan"));
        self.plan.workflow().find(id).ok_or_else(missing)
    }

    /// Takes what has to be committed.
    pub fn take_commit(&mut self) -> Commit {
        std::mem::take(&mut self.commit)
    }

    fn advance(&mut self) -> Result<(), Inconsistent> {
        // Here a line only passes nodes that need no driver, and stops at the first one that does.
        let mut passed: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        while self.needs.is_empty()
            && let Some(branch) = self.runnable_lines.pop_front()
        {
            if self.has_ended() {
                self.runnable_lines.clear();
                return Ok(());
            }
            // The branch may have been joined since it was queued.
            let Some(cursor) = self.state.cursors.get(&branch) else { continue };
            match &cursor.position {
                Position::Created => {
                    let start = Arc::clone(&self.plan.start().id);
                    self.enter(&branch, &start, None, 0)?;
                }
                Position::Ready { node, via } => {
                    let node = Arc::clone(node);
                    let via = via.clone();
                    let entered = passed.entry(Arc::clone(&branch)).or_default();
                    *entered += 1;
                    let before = *entered - 1;
                    self.enter(&branch, &node, via, before)?;
                }
                Position::ChoosingEdge { node, visit } => {
                    let node = Arc::clone(node);
                    let visit = *visit;
                    self.leave_stage(&branch, &node, visit)?;
                }
                Position::Fanned(_) => self.start_or_join_branches(&branch)?,
                Position::Active(_) | Position::Done => {}
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        branch: &Arc<str>,
        id: &str,
        via: Option<EnteredBy>,
        passed: usize,
    ) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let node = plan.spec(self.node_index(id)?);
        if let Some(failure) = self.too_many_visits(self.cursor(branch)?, node, passed)? {
            return self.fail_line(branch, failure.signed(id));
        }
        if self.over_budget() {
            return Ok(());
        }
        if node.kind == NodeKind::Exit {
            return self.exit(branch, node);
        }
        self.start_stage(branch, node, via)?;
        match node.kind {
            NodeKind::Start => self.complete(branch, node, Outcome::succeeded().into()),
            NodeKind::Conditional => {
                let outcome = inherited_outcome(self.cursor(branch)?);
                self.complete(branch, node, outcome.into())
            }
            NodeKind::Parallel => self.fan_out(branch),
            _ => Ok(()),
        }
    }

    /// Starts a stage, and returns which visit of the node it is.
    pub(crate) fn start_stage(
        &mut self,
        branch: &str,
        node: &NodeSpec,
        via: Option<EnteredBy>,
    ) -> Result<u32, Inconsistent> {
        let cursor = self.cursor(branch)?;
        let edge = via.and_then(|via| self.edge(&via, &node.id));
        let (mut fidelity, thread_id) = self.plan.fidelity(edge, node);
        let mut drops_thread = false;
        if cursor.degrade && fidelity == Fidelity::Full {
            // It still is part of the conversation, for the stages after it.
            fidelity = Fidelity::SummaryHigh;
            drops_thread = has_thread(cursor, node, thread_id.as_ref());
        }
        let visit = cursor.visits_of(&node.id) + 1;
        let body = EventBody::StageStarted {
            rank: cursor.ranks.next,
            handler: node.kind,
            fidelity,
            thread_id,
        };
        self.emit_for(branch, node, visit, body);
        if drops_thread {
            self.emit_for(branch, node, visit, thread_dropped_warning());
        }
        Ok(visit)
    }

    fn edge(&self, via: &EnteredBy, to: &str) -> Option<EdgeIx> {
        let workflow = self.plan.workflow();
        let from = workflow.find(&via.from)?;
        let to = workflow.find(to)?;
        if let Some(edge) = via.edge {
            let edge = usize::try_from(edge).ok()?;
            return workflow.outgoing(from).nth(edge).filter(|ix| workflow.edge(*ix).to == to);
        }
        let label = via.label.as_deref();
        let edges = || workflow.outgoing(from).filter(|ix| workflow.edge(*ix).to == to);
        let exact = edges().find(|ix| self.plan.edge(*ix).label.as_deref() == label);
        // A jump has no label; there may still be an edge to its target.
        exact.or_else(|| edges().next().filter(|_| label.is_none()))
    }

    /// An attempt of the running stage has ended: it is retried, or the stage ends.
    pub(crate) fn ended(
        &mut self,
        branch: &Arc<str>,
        mut finished: Finished,
    ) -> Result<(), Inconsistent> {
        let stage = self.running_stage(branch)?;
        let visit = stage.visit;
        let attempt = stage.attempt;
        let plan = Arc::clone(&self.plan);
        let node = plan.spec(self.node_index(&stage.node)?);
        self.commit.blobs.append(&mut finished.blobs);
        let outcome = &mut finished.outcome;
        if outcome.status == Status::Failed {
            let failure = outcome.failure.take().unwrap_or_else(|| {
                Failure::new(FailureClass::Deterministic, "the stage failed without a reason")
            });
            let failure = failure.signed(&node.id);
            if let Some(delay_ms) = self.retry_delay(branch, node, &failure)? {
                let usage = outcome.usage.take();
                let body = EventBody::StageRetrying { attempt, delay_ms, failure, usage };
                self.emit_for(branch, node, visit, body);
                return Ok(());
            }
            apply_failure_leniency(node, outcome, failure);
        }
        if outcome.status == Status::Failed && self.on_failure(node) == OnFailure::Succeed {
            offload_patch(&mut outcome.context_updates, &mut self.commit.blobs);
            match self.takes_specific_edge(branch, node, &finished)? {
                Ok(true) => {}
                Ok(false) => succeed_anyway(&mut finished.outcome),
                Err(needs) => {
                    self.need(needs, READ_LIMIT);
                    self.waiting_end = Some((Arc::clone(branch), finished));
                    return Ok(());
                }
            }
        }
        self.complete(branch, node, finished)
    }

    pub(crate) fn complete(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        mut finished: Finished,
    ) -> Result<(), Inconsistent> {
        offload_patch(&mut finished.outcome.context_updates, &mut self.commit.blobs);
        let failed =
            finished.outcome.status == Status::Failed && node.kind != NodeKind::Conditional;
        if failed {
            self.warn_of_third_failure(branch, node, &finished.outcome)?;
        }
        let stage = self.running_stage(branch)?;
        let visit = stage.visit;
        finished.outcome.artifacts = stage.artifacts.iter().map(ToString::to_string).collect();
        let end = Arc::new(completed(stage, finished));
        let body =
            if failed { EventBody::StageFailed(end) } else { EventBody::StageCompleted(end) };
        self.emit_for(branch, node, visit, body);
        self.runnable_lines.push_back(Arc::clone(branch));
        Ok(())
    }

    /// Warns when a node fails in the same way for the third time, since each failure has a cost.
    fn warn_of_third_failure(
        &mut self,
        branch: &str,
        node: &NodeSpec,
        outcome: &Outcome,
    ) -> Result<(), Inconsistent> {
        let Some(failure) = outcome.failure.as_ref() else { return Ok(()) };
        let cursor = self.cursor(branch)?;
        let before = cursor.equal_failures.get(failure.signature.as_str());
        if before != Some(&2) || failure.class == FailureClass::Canceled {
            return Ok(());
        }
        let visit = self.running_stage(branch)?.visit;
        let message = format!("the same failure for the third time: {}", failure.message);
        let body =
            EventBody::AgentWarning { kind: "repeated_failure".to_owned(), message, window: None };
        self.emit_for(branch, node, visit, body);
        Ok(())
    }

    fn note(
        &mut self,
        branch: &Arc<str>,
        notes: Vec<Note>,
        mut blobs: Vec<NewBlob>,
    ) -> Result<(), Inconsistent> {
        let stage = self.running_stage(branch)?;
        let visit = stage.visit;
        let plan = Arc::clone(&self.plan);
        let node = plan.spec(self.node_index(&stage.node)?);
        self.commit.blobs.append(&mut blobs);
        for note in notes {
            let mut entry = entry_for(branch, node, visit, note.body);
            entry.session_id = note.session_id;
            entry.parent_session_id = note.parent_session_id;
            self.push(entry);
        }
        Ok(())
    }

    /// The delay before the next attempt of the running stage after this failure, in milliseconds;
    /// `None` when the last one has failed.
    pub(crate) fn retry_delay(
        &self,
        branch: &str,
        node: &NodeSpec,
        failure: &Failure,
    ) -> Result<Option<u64>, Inconsistent> {
        let stage = self.running_stage(branch)?;
        let random = self.random(branch, &node.id, stage.visit)?;
        Ok(retry::delay(&node.retry, stage.attempt, stage.attempts_before, failure, &random))
    }

    fn pause(&mut self, idle: Idle) {
        let Idle { gates, unavailable, failed_turns, used, sub_workflows } = idle;
        let (reason, message) = if !unavailable.is_empty() {
            (PauseReason::Unavailable, pause_rule::message(&unavailable))
        } else if gates.is_empty() {
            (PauseReason::Budget, self.spent_message(sub_workflows))
        } else {
            (PauseReason::Human, format!("waiting for an answer to {}", self.gate_names(&gates)))
        };
        self.emit(
            MAIN,
            EventBody::RunPaused {
                reason,
                message,
                gates,
                unavailable,
                failed_turns,
                used,
                sub_workflows,
            },
        );
    }

    /// The gates that wait, each name once: one may be asked in several branches.
    fn gate_names(&self, gates: &[Arc<str>]) -> String {
        let mut counts: Vec<(&Arc<str>, usize)> = Vec::new();
        for gate in gates {
            match counts.iter_mut().find(|(name, _)| *name == gate) {
                Some((_, count)) => *count += 1,
                None => counts.push((gate, 1)),
            }
        }
        let names = counts.into_iter().map(|(gate, count)| match count {
            1 => self.gate_name(gate),
            _ => format!("{} in {count} branches", self.gate_name(gate)),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// What waits for an answer: a gate, or the sub-workflow that has it.
    fn gate_name(&self, node: &str) -> String {
        let is_child = self.plan.find(node).is_some_and(|it| it.kind == NodeKind::ManagerLoop);
        if is_child { format!("a gate in {node}") } else { node.to_owned() }
    }

    /// Ends a line: the run when it is the main line, else the branch.
    pub(crate) fn fail_line(
        &mut self,
        branch: &Arc<str>,
        failure: Failure,
    ) -> Result<(), Inconsistent> {
        if is_main(branch) {
            self.fail_run(failure);
            Ok(())
        } else {
            self.end_branch(branch, Some(failure))
        }
    }

    pub(crate) fn fail_run(&mut self, failure: Failure) {
        let body = self.run_failed(failure, Vec::new());
        self.emit(MAIN, body);
    }

    pub(crate) fn run_failed(&self, failure: Failure, candidates: Vec<Candidate>) -> EventBody {
        EventBody::RunFailed {
            failure,
            cause: self.first_cause(),
            usage: self.state.usage.clone(),
            candidates,
            overridden: self.overridden(),
        }
    }

    pub(crate) fn random<'a>(
        &self,
        branch: &'a str,
        node: &'a str,
        visit: u32,
    ) -> Result<random::Source<'a>, Inconsistent> {
        Ok(random::Source { seed: self.state.created()?.seed, branch, node, visit })
    }

    /// Adds an event about the run itself, or a branch.
    pub(crate) fn emit(&mut self, branch: &str, body: EventBody) {
        let mut entry = Entry::new(body);
        entry.branch = (!is_main(branch)).then(|| Arc::from(branch));
        self.push(entry);
    }

    /// Adds an event about a stage.
    pub(crate) fn emit_for(&mut self, branch: &str, node: &NodeSpec, visit: u32, body: EventBody) {
        self.push(entry_for(branch, node, visit, body));
    }

    fn push(&mut self, mut entry: Entry) {
        entry.clock_set_ms = self.clock_set_ms.take();
        entry.clock_set_total_ms = self.state.clock_set_total(entry.clock_set_ms.unwrap_or(0));
        let seq = self.state.last_seq + 1;
        let event = Event { run_id: self.state.run_id, seq, ts_ms: self.now_ms, entry };
        if let Err(error) = self.state.try_apply(&event) {
            self.inconsistent.get_or_insert(error);
        }
        self.commit.events.push(event);
    }
}

/// Whether there is a conversation to continue: an earlier stage of the line used this thread.
fn has_thread(line: &Cursor, node: &NodeSpec, thread: Option<&Arc<str>>) -> bool {
    let is_api = node.llm().is_some_and(|llm| llm.backend == Backend::Api);
    is_api && line.history.iter().any(|it| thread.is_some() && it.thread_id.as_ref() == thread)
}

/// The warning that a stage does not continue the conversation of its thread.
fn thread_dropped_warning() -> EventBody {
    let message = "the first stage after a resume sees summary:high instead of fidelity=full; \
                   [run] resume_threads = true keeps the conversation of its thread";
    EventBody::AgentWarning { kind: "thread".to_owned(), message: message.to_owned(), window: None }
}

pub(crate) fn entry_for(branch: &str, node: &NodeSpec, visit: u32, body: EventBody) -> Entry {
    let mut entry = Entry::new(body);
    entry.branch = (!is_main(branch)).then(|| Arc::from(branch));
    entry.node_id = Some(Arc::clone(&node.id));
    entry.node_label = Some(Arc::clone(&node.label)).filter(|label| *label != node.id);
    entry.visit = Some(visit);
    entry
}

/// What is recorded of the end of a stage.
pub(crate) fn completed(stage: &ActiveStage, finished: Finished) -> CompletedStage {
    CompletedStage {
        rank: stage.rank,
        attempts: stage.attempt,
        outcome: finished.outcome,
        prompt: finished.prompt,
        script: finished.script,
        env: finished.env,
    }
}

/// The outcome of a conditional node: that of the stage before it.
fn inherited_outcome(cursor: &Cursor) -> Outcome {
    // A conditional node right after the start.
    let Some(last) = &cursor.last else { return Outcome::succeeded() };
    let before = last.outcome();
    Outcome {
        status: before.status,
        word: before.word.clone(),
        preferred_label: before.preferred_label.clone(),
        suggested_next_ids: before.suggested_next_ids.clone(),
        failure: before.failure.clone(),
        ..Outcome::succeeded()
    }
}

/// Turns a failure without a matching edge into a success, for `on_failure=succeed`. The failure
/// stays in the record.
fn succeed_anyway(outcome: &mut Outcome) {
    outcome.status = Status::Succeeded;
    if let Some(failure) = &outcome.failure {
        let message = &failure.message;
        outcome.notes.get_or_insert_with(|| format!("on_failure=succeed: {message}"));
    }
}

/// Gives an outcome that failed in its last attempt the status that the node allows instead.
fn apply_failure_leniency(node: &NodeSpec, outcome: &mut Outcome, failure: Failure) {
    let closed = matches!(failure.class, FailureClass::Canceled | FailureClass::Structural);
    if node.auto_status && !failure.stated && failure.class != FailureClass::Canceled {
        outcome.status = Status::Succeeded;
        outcome.notes.get_or_insert_with(|| format!("auto_status: {}", failure.message));
        return;
    }
    if node.allow_partial && !closed {
        outcome.status = Status::PartiallySucceeded;
        outcome.notes.get_or_insert_with(|| format!("partial: {}", failure.message));
    }
    outcome.failure = Some(failure);
}
