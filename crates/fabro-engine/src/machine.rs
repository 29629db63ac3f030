//! The decisions of a run. No clock, no randomness, no I/O: what happened comes in as an
//! [`Input`], what follows goes out as events that are already part of the state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fabro_events::{Candidate, CompletedStage, Entry, Event, EventBody, Note, PauseReason};
use fabro_graph::NodeIx;
use fabro_plan::NodeSpec;
use fabro_types::{BlobRef, BranchPath, Failure, FailureClass, NodeKind, Outcome, Status};
use serde_json::Value;

use crate::attempt::time_limit;
use crate::cursor::{ActiveStage, Cursor, Position};
use crate::inconsistent::Inconsistent;
use crate::input::{Commit, Finished, Input};
use crate::offload::offload_patch;
use crate::state::{MAIN, Phase, RunState};
use crate::{NewBlob, Plan, RunOptions, random, retry};

/// Nodes that a line may pass one after the other without a stage that does something.
const MAX_PASSED: usize = 1_000;

/// The visit limit of a dry run, where nothing a stage would write ends a loop.
const DRY_RUN_VISITS: u32 = 10;

/// A run's state together with its plan: takes inputs, gives events.
pub struct Machine {
    pub(crate) plan: Arc<Plan>,
    pub(crate) state: RunState,
    /// Large values that conditions need, while one input is handled.
    pub(crate) values: BTreeMap<BlobRef, Result<Value, String>>,
    /// Large values that have to be read before the next transition is decided.
    pub(crate) needs: BTreeSet<BlobRef>,
    /// The branch whose fan-out begins once they are read.
    pub(crate) waiting_fan_out: Option<Arc<str>>,
    pub(crate) todo: VecDeque<Arc<str>>,
    commit: Commit,
    pub(crate) now_ms: i64,
    /// The first event of its own that did not fit the state.
    inconsistent: Option<Inconsistent>,
    options: RunOptions,
}

impl Machine {
    /// A machine for a run in this state.
    pub fn new(plan: Arc<Plan>, state: RunState) -> Self {
        Self {
            plan,
            state,
            values: BTreeMap::new(),
            needs: BTreeSet::new(),
            waiting_fan_out: None,
            todo: VecDeque::new(),
            commit: Commit::default(),
            now_ms: 0,
            inconsistent: None,
            options: RunOptions::default(),
        }
    }

    /// The same machine with these options.
    #[must_use]
    pub fn with_options(self, options: RunOptions) -> Self {
        Self { options, ..self }
    }

    /// The state, everything handled so far included.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Decides what follows from an input at a time (milliseconds since 1970). Inputs for a run or a
    /// branch that has ended are ignored: they were on their way when it ended.
    ///
    /// When [`needs`](Self::needs) names blobs afterwards, the next input is [`Input::Values`].
    pub fn handle(&mut self, now_ms: i64, input: Input) {
        self.now_ms = now_ms;
        if matches!(self.state.phase, Phase::Ended(..)) {
            self.needs.clear();
            return;
        }
        let decided = self.decide(input).and_then(|()| self.advance());
        let inconsistent = decided.err().or_else(|| self.inconsistent.take());
        if let Some(error) = inconsistent.filter(|_| !self.has_ended()) {
            self.needs.clear();
            self.todo.clear();
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

    fn decide(&mut self, input: Input) -> Result<(), Inconsistent> {
        match input {
            Input::Start => {
                self.emit(MAIN, EventBody::RunStarted {});
                self.todo.push_back(Arc::from(MAIN));
            }
            Input::Resume { max_cost } => {
                self.emit(MAIN, EventBody::RunResumed { max_cost });
                self.todo.extend(self.state.cursors.keys().cloned());
            }
            // A stage, a delay or a time limit may end while its branch is ended: where the branch is
            // no longer at this stage, there is nothing to decide.
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
                    self.join(&branch, Err(time_limit(limit)))?;
                }
            }
            Input::Note { branch, notes, blobs } => self.note(&branch, notes, blobs)?,
            Input::Values { values } => {
                self.values.extend(values);
                self.needs.clear();
                if let Some(branch) = self.waiting_fan_out.take() {
                    self.fan_out(&branch)?;
                }
            }
            Input::Idle { gates } => self.pause(gates),
            Input::Cancel { reason } => self.emit(MAIN, EventBody::RunCanceled { reason }),
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

    pub(crate) fn cursor(&self, branch: &str) -> Result<&Cursor, Inconsistent> {
        let missing = || Inconsistent::new(format!("there is no branch `{branch}`"));
        self.state.cursors.get(branch).ok_or_else(missing)
    }

    /// A node of the plan that an event has named before.
    pub(crate) fn index(&self, id: &str) -> Result<NodeIx, Inconsistent> {
        let missing = || Inconsistent::new(format!("there is no node `{id}` in the plan"));
        self.plan.workflow().find(id).ok_or_else(missing)
    }

    /// Takes what has to be committed.
    pub fn take_commit(&mut self) -> Commit {
        std::mem::take(&mut self.commit)
    }

    /// True when a spending limit was reached: no stage starts until it is raised.
    pub fn over_budget(&self) -> bool {
        self.budget().is_some_and(|left| left <= 0.0)
            || self.tokens_left().is_some_and(|left| left == 0)
    }

    /// How many tokens may still be used; `None` without a limit.
    pub fn tokens_left(&self) -> Option<u64> {
        let limits = self.plan.graph().max_tokens.into_iter().chain(self.options.max_tokens);
        let max = limits.min().filter(|_| !self.state.tokens_lifted)?;
        let usage = self.state.usage_so_far();
        Some(max.saturating_sub(usage.input_tokens.saturating_add(usage.output_tokens)))
    }

    /// What may still be spent, in US dollars; `None` without a limit.
    pub fn budget(&self) -> Option<f64> {
        let max = self.state.max_cost.or(self.plan.graph().max_cost)?;
        Some(max - self.state.usage_so_far().cost_usd)
    }

    fn advance(&mut self) -> Result<(), Inconsistent> {
        // Here a line only passes nodes that need no driver; the first one that does stops it.
        let mut passed: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        while self.needs.is_empty()
            && let Some(branch) = self.todo.pop_front()
        {
            if matches!(self.state.phase, Phase::Ended(..)) {
                self.todo.clear();
                return Ok(());
            }
            // A branch that was joined after it had got something to do.
            let Some(cursor) = self.state.cursors.get(&branch) else { continue };
            match &cursor.position {
                Position::Created => {
                    let start = Arc::clone(&self.plan.start().id);
                    self.enter(&branch, &start, None, 0)?;
                }
                Position::Ready { node, via } => {
                    let node = Arc::clone(node);
                    let via = via.clone();
                    if self.may_begin(&branch) {
                        let entered = passed.entry(Arc::clone(&branch)).or_default();
                        *entered += 1;
                        let before = *entered - 1;
                        self.enter(&branch, &node, via, before)?;
                    }
                }
                Position::Ended { node, visit } => {
                    let node = Arc::clone(node);
                    let visit = *visit;
                    self.choose(&branch, &node, visit)?;
                }
                Position::Fanned(_) => self.tend(&branch)?,
                Position::Active(_) | Position::Done => {}
            }
        }
        Ok(())
    }

    /// A branch that has no slot yet waits, whatever its position says.
    fn may_begin(&self, branch: &str) -> bool {
        if branch.is_empty() {
            return true;
        }
        match self.state.cursors.get(BranchPath::new(branch).parent().as_str()).map(|c| &c.position)
        {
            Some(Position::Fanned(fan)) => fan.has_begun(branch),
            _ => false,
        }
    }

    fn enter(
        &mut self,
        branch: &Arc<str>,
        id: &str,
        via: Option<(Arc<str>, Option<Arc<str>>)>,
        passed: usize,
    ) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let node = plan.spec(self.index(id)?);
        if let Err(failure) = self.check_visits(branch, node, passed) {
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
                let outcome = self.passed_on(branch);
                self.complete(branch, node, outcome.into())
            }
            NodeKind::Parallel => self.fan_out(branch),
            _ => Ok(()),
        }
    }

    fn check_visits(&self, branch: &str, node: &NodeSpec, passed: usize) -> Result<(), Failure> {
        let too_often = |message| Err(Failure::new(FailureClass::CompilationLoop, message));
        if passed > MAX_PASSED {
            return too_often(format!(
                "the way to `{}` goes round among nodes that do nothing",
                node.id
            ));
        }
        match self.visit_limit(node) {
            Some(max) if self.visits(branch, &node.id) >= max => too_often(format!(
                "`{}` was entered {max} times, which is all that its visit limit allows",
                node.id
            )),
            _ => Ok(()),
        }
    }

    /// How often a node may be entered; `None` for any number of times.
    pub(crate) fn visit_limit(&self, node: &NodeSpec) -> Option<u32> {
        let dry_run = self.state.created.as_ref().is_some_and(|created| created.dry_run);
        visit_limit(node, dry_run)
    }

    pub(crate) fn visits(&self, branch: &str, node: &str) -> u32 {
        let cursor = self.state.cursors.get(branch);
        cursor.and_then(|cursor| cursor.visits.get(node).copied()).unwrap_or_default()
    }

    fn start_stage(
        &mut self,
        branch: &str,
        node: &NodeSpec,
        via: Option<(Arc<str>, Option<Arc<str>>)>,
    ) -> Result<(), Inconsistent> {
        let cursor = self.cursor(branch)?;
        let edge = via.and_then(|(from, label)| self.edge(&from, &node.id, label.as_deref()));
        let (mut fidelity, thread_id) = self.plan.fidelity(edge, node);
        if cursor.degrade && fidelity == fabro_types::Fidelity::Full {
            // It still is part of the conversation, for the stages after it.
            fidelity = fabro_types::Fidelity::SummaryHigh;
        }
        let body = EventBody::StageStarted {
            rank: cursor.ranks.next,
            handler: Arc::from(node.kind.as_str()),
            fidelity,
            thread_id,
        };
        let visit = self.visits(branch, &node.id) + 1;
        self.emit_for(branch, node, visit, body);
        Ok(())
    }

    fn edge(&self, from: &str, to: &str, label: Option<&str>) -> Option<fabro_graph::EdgeIx> {
        let workflow = self.plan.workflow();
        let from = workflow.find(from)?;
        let to = workflow.find(to)?;
        let edges = || workflow.outgoing(from).filter(|ix| workflow.edge(*ix).to == to);
        let exact = edges().find(|ix| self.plan.edge(*ix).label.as_deref() == label);
        // A jump has no label; it may still go where an edge leads.
        exact.or_else(|| edges().next().filter(|_| label.is_none()))
    }

    /// A conditional node hands on what the stage before it said.
    fn passed_on(&self, branch: &str) -> Outcome {
        let last = self.state.cursors.get(branch).and_then(|cursor| cursor.last.as_ref());
        // A conditional node right after the start.
        let Some(last) = last else { return Outcome::succeeded() };
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

    fn exit(&mut self, branch: &Arc<str>, node: &NodeSpec) -> Result<(), Inconsistent> {
        if branch.is_empty() {
            match self.unmet_gate(self.cursor(MAIN)?) {
                Err(failure) => {
                    self.fail_run(failure);
                    return Ok(());
                }
                Ok(Some(choice)) => {
                    let visit = self.visits(branch, &node.id) + 1;
                    self.emit_for(branch, node, visit, EventBody::EdgeSelected(choice));
                    self.todo.push_back(Arc::clone(branch));
                    return Ok(());
                }
                Ok(None) => {}
            }
        }
        self.start_stage(branch, node, None)?;
        let visit = self.visits(branch, &node.id);
        let body = EventBody::StageCompleted(self.record(branch, Outcome::succeeded().into()));
        self.emit_for(branch, node, visit, body);
        if branch.is_empty() {
            let usage = self.state.usage.clone();
            let artifact_count = self.state.artifact_count;
            let status = Status::Succeeded;
            self.emit(MAIN, EventBody::RunCompleted { status, usage, artifact_count });
            Ok(())
        } else {
            self.end_branch(branch, None)
        }
    }

    /// An attempt of the running stage has ended: it is retried, or the stage ends.
    pub(crate) fn ended(
        &mut self,
        branch: &Arc<str>,
        mut finished: Finished,
    ) -> Result<(), Inconsistent> {
        let missing = || Inconsistent::new(format!("no stage is running on branch `{branch}`"));
        let stage = self.active_stage(branch).cloned().ok_or_else(missing)?;
        let plan = Arc::clone(&self.plan);
        let node = plan.spec(self.index(&stage.node)?);
        self.commit.blobs.append(&mut finished.blobs);
        let outcome = &mut finished.outcome;
        if outcome.status == Status::Failed {
            let failure = outcome.failure.take().unwrap_or_else(|| {
                Failure::new(FailureClass::Deterministic, "the stage failed without a reason")
            });
            outcome.failure = Some(failure.signed(&node.id));
        }
        if let Some(failure) = outcome.failure.clone().filter(|_| outcome.status == Status::Failed)
        {
            let random = self.random(branch, &node.id, stage.visit);
            let delay = retry::delay(&node.retry, stage.attempt, &failure, &random);
            if let Some(delay_ms) = delay {
                let usage = outcome.usage.clone();
                let attempt = stage.attempt;
                let body = EventBody::StageRetrying { attempt, delay_ms, failure, usage };
                self.emit_for(branch, node, stage.visit, body);
                return Ok(());
            }
            forgive(node, outcome, &failure);
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
        let missing = || Inconsistent::new(format!("`{}` ended without having started", node.id));
        let visit = self.cursor(branch)?.active().ok_or_else(missing)?.visit;
        let failed =
            finished.outcome.status == Status::Failed && node.kind != NodeKind::Conditional;
        let end = self.record(branch, finished);
        let body =
            if failed { EventBody::StageFailed(end) } else { EventBody::StageCompleted(end) };
        self.emit_for(branch, node, visit, body);
        self.todo.push_back(Arc::clone(branch));
        Ok(())
    }

    fn record(&self, branch: &str, finished: Finished) -> Arc<CompletedStage> {
        let stage = self.state.cursors.get(branch).and_then(|cursor| cursor.active());
        Arc::new(CompletedStage {
            rank: stage.map_or(0, |stage| stage.rank),
            attempts: stage.map_or(1, |stage| stage.attempt),
            outcome: finished.outcome,
            prompt: finished.prompt,
            script: finished.script,
        })
    }

    fn note(
        &mut self,
        branch: &Arc<str>,
        notes: Vec<Note>,
        mut blobs: Vec<NewBlob>,
    ) -> Result<(), Inconsistent> {
        let stage = self.state.cursors.get(branch).and_then(|cursor| cursor.active()).cloned();
        // The report was on its way when its branch ended.
        let Some(stage) = stage else { return Ok(()) };
        let plan = Arc::clone(&self.plan);
        let node = plan.spec(self.index(&stage.node)?);
        self.commit.blobs.append(&mut blobs);
        for note in notes {
            let mut entry = entry_for(branch, node, stage.visit, note.body);
            entry.session_id = note.session_id;
            entry.parent_session_id = note.parent_session_id;
            self.push(entry);
        }
        Ok(())
    }

    fn pause(&mut self, gates: Vec<Arc<str>>) {
        let (reason, message) = if gates.is_empty() {
            (PauseReason::Budget, "the budget is used up".to_owned())
        } else {
            (PauseReason::Human, format!("waiting for an answer to {}", gates.join(", ")))
        };
        self.emit(MAIN, EventBody::RunPaused { reason, message, gates });
    }

    /// Ends a line: the run when it is the main line, else the branch.
    pub(crate) fn fail_line(
        &mut self,
        branch: &Arc<str>,
        failure: Failure,
    ) -> Result<(), Inconsistent> {
        if branch.is_empty() {
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
        EventBody::RunFailed { failure, usage: self.state.usage.clone(), candidates }
    }

    pub(crate) fn random<'a>(
        &self,
        branch: &'a str,
        node: &'a str,
        visit: u32,
    ) -> random::Source<'a> {
        let seed = self.state.created.as_ref().map_or(0, |created| created.seed);
        random::Source { seed, branch, node, visit }
    }

    /// Adds an event about the run itself, or a branch.
    pub(crate) fn emit(&mut self, branch: &str, body: EventBody) {
        let mut entry = Entry::new(body);
        entry.branch = (!branch.is_empty()).then(|| Arc::from(branch));
        self.push(entry);
    }

    /// Adds an event about a stage.
    pub(crate) fn emit_for(&mut self, branch: &str, node: &NodeSpec, visit: u32, body: EventBody) {
        self.push(entry_for(branch, node, visit, body));
    }

    fn push(&mut self, entry: Entry) {
        let seq = self.state.last_seq + 1;
        let event = Event { run_id: self.state.run_id, seq, ts_ms: self.now_ms, entry };
        if let Err(error) = self.state.try_apply(&event) {
            self.inconsistent.get_or_insert(error);
        }
        self.commit.events.push(event);
    }

    /// Blobs that the next commit stores.
    pub(crate) fn pending_blobs(&self) -> &[NewBlob] {
        &self.commit.blobs
    }
}

fn entry_for(branch: &str, node: &NodeSpec, visit: u32, body: EventBody) -> Entry {
    let mut entry = Entry::new(body);
    entry.branch = (!branch.is_empty()).then(|| Arc::from(branch));
    entry.node_id = Some(Arc::clone(&node.id));
    entry.node_label = Some(Arc::clone(&node.label)).filter(|label| *label != node.id);
    entry.visit = Some(visit);
    entry
}

/// How often a node may be entered; `None` for any number of times.
pub(crate) fn visit_limit(node: &NodeSpec, dry_run: bool) -> Option<u32> {
    let limit = node.max_visits.or(dry_run.then_some(DRY_RUN_VISITS));
    limit.filter(|limit| *limit > 0 && counts_visits(node.kind))
}

fn counts_visits(kind: NodeKind) -> bool {
    !matches!(kind, NodeKind::Conditional | NodeKind::Start | NodeKind::Exit)
}

/// Turns a failure that no attempt is left for into what the node allows instead.
fn forgive(node: &NodeSpec, outcome: &mut Outcome, failure: &Failure) {
    let closed = matches!(failure.class, FailureClass::Canceled | FailureClass::Structural);
    if node.auto_status && !failure.stated && failure.class != FailureClass::Canceled {
        outcome.status = Status::Succeeded;
        outcome.failure = None;
        outcome.notes.get_or_insert_with(|| format!("auto_status: {}", failure.message));
    } else if node.allow_partial && !closed {
        outcome.status = Status::PartiallySucceeded;
        outcome.notes.get_or_insert_with(|| format!("partial: {}", failure.message));
    }
}
