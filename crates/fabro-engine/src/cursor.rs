//! One line of execution: the main line, or a branch of a fan-out, and what its events do to it.

use std::sync::Arc;

use fabro_context::{Context, keys};
use fabro_events::{
    CompletedStage, EdgeChoice, Entry, Event, EventBody, FailureHandling, OverriddenCheck,
    StageFailure, Tier,
};
use fabro_types::{
    BranchPath, ContextPatch, Failure, FailureClass, Fidelity, NodeKind, Outcome, Status, Usage,
};
use imbl::ordmap::DiffItem;
use imbl::{OrdMap, Vector};
use serde_json::Value;

use crate::active_stage::{ActiveStage, RecordedAnswer};
use crate::fanout::FanOut;
use crate::for_each;
use crate::inconsistent::Inconsistent;
use crate::open_failures::{
    OpenFailure, OpenFailures, handled_by_legacy_rule, unvisited_gate_failure,
};
use crate::select::place_of;
use crate::turns::{Turns, add_growth, take_most};

/// One line of execution: the main line, or a branch of a fan-out.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// Its name; empty for the main line.
    pub branch: Arc<str>,
    /// What its stages see.
    pub context: Context,
    /// Its completed stages that did something, in order: no start, exit or conditional node. A
    /// branch starts with its parent's.
    pub history: Vector<Arc<StageRecord>>,
    /// How many times each node was entered.
    pub visits: OrdMap<Arc<str>, u32>,
    /// How many times each edge of a node with several was taken, by the node and the edge's place.
    pub taken: OrdMap<(Arc<str>, usize), u32>,
    /// How many model turns each node used.
    pub(crate) turns: Turns,
    /// The last end of each node that ended, with the rank of its first.
    pub ends: OrdMap<Arc<str>, NodeEnd>,
    /// How often each failure has left its node by a jump, by node and signature.
    pub breaker: OrdMap<Arc<str>, OrdMap<String, u32>>,
    /// How often a node ended with each failure, by signature.
    pub(crate) equal_failures: OrdMap<Arc<str>, u32>,
    /// The failures that nothing has handled yet.
    pub open_failures: OpenFailures,
    /// The failed checks that a person has overridden at a gate and that have not succeeded since.
    pub overridden: Vector<OverriddenCheck>,
    /// The person who answered the last gate; `None` if nobody did.
    pub(crate) answered_by: Option<Arc<str>>,
    /// The failure that the last restart of this line began with, which is no longer in `history`.
    pub restarted_by: Option<Arc<StageFailure>>,
    /// The fan-out whose join this line has come to; the edges of a fan-in or of conditional nodes
    /// there handle its failures.
    pub joined: Option<Arc<str>>,
    /// The last stage's signals, which conditional nodes pass on.
    pub last: Option<LastStage>,
    /// Where it is.
    pub position: Position,
    /// The next stage that starts takes `full` as `summary:high`.
    pub degrade: bool,
    /// What the stages of this branch wrote; empty on the main line.
    pub updates: ContextPatch,
    /// The last answer given in this branch: a model's, or a command's output.
    pub response: Option<Arc<Value>>,
    /// The output of this line.
    pub(crate) output: Output,
    /// The artifacts of its stages, of inner ones too; empty on the main line.
    pub(crate) artifacts: Vec<String>,
    pub(crate) ranks: Ranks,
}

/// The first failed one of these stages, which are given from the last one backwards.
pub(crate) fn last_failed<'r>(
    mut records: impl Iterator<Item = &'r Arc<StageRecord>>,
) -> Option<Arc<StageFailure>> {
    let failed = records.find(|record| record.end.outcome.status == Status::Failed)?;
    Some(Arc::new(StageFailure {
        node: Arc::clone(&failed.node),
        visit: failed.visit,
        branch: Some(Arc::clone(&failed.branch)).filter(|branch| !branch.is_empty()),
        failure: failed.end.outcome.failure.clone()?,
    }))
}

/// The output of a line: its last validated output, else its last response (including the outputs
/// of a fan-out or a sub-workflow), else its last command output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Output {
    pub(crate) value: Option<Arc<Value>>,
    order: u8,
}

impl Output {
    /// A stage has ended with these updates.
    fn take(&mut self, node: &str, updates: &ContextPatch) {
        let of_node = |prefix: &str| updates.get(&format!("{prefix}{node}"));
        let made = [
            (3, of_node(keys::OUTPUT_PREFIX)),
            (2, of_node(keys::RESPONSE_PREFIX)),
            (2, updates.get(keys::PARALLEL_OUTPUTS)),
            (1, updates.get(keys::COMMAND_OUTPUT)),
        ];
        let made = made.into_iter().find_map(|(order, value)| Some((order, value?)));
        if let Some((order, value)) = made.filter(|(order, _)| *order >= self.order) {
            *self = Self { value: Some(Arc::clone(value)), order };
        }
    }
}

/// A completed stage, as later stages may look back at it.
#[derive(Clone, Debug)]
pub struct StageRecord {
    /// The node.
    pub node: Arc<str>,
    /// The handler that ran it.
    pub handler: NodeKind,
    /// Which visit of the node.
    pub visit: u32,
    /// The conversation it took part in.
    pub thread_id: Option<Arc<str>>,
    /// The branch it ran in; empty for the main line.
    pub branch: Arc<str>,
    /// The place in the log where its last attempt began.
    pub since_seq: u64,
    /// The place in the log where it ended.
    pub until_seq: u64,
    /// The result.
    pub end: Arc<CompletedStage>,
}

/// How a node ended last.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEnd {
    /// The rank of its first visit.
    pub first_rank: u32,
    /// Its last status.
    pub status: Status,
    /// The failure of its last end, if it had one.
    pub failure: Option<Arc<Failure>>,
}

/// What edge selection looks at.
#[derive(Clone, Debug, PartialEq)]
pub struct LastStage {
    /// The node.
    pub node: Arc<str>,
    /// Its end.
    pub end: Arc<CompletedStage>,
}

impl LastStage {
    pub(crate) fn outcome(&self) -> &Outcome {
        &self.end.outcome
    }
}

/// The edge by which a line comes to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct EnteredBy {
    /// The node it leaves.
    pub from: Arc<str>,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// Which of that node's outgoing edges it is, from 0, where target and label do not tell.
    pub edge: Option<u32>,
}

/// Where a cursor is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Position {
    /// The next node is chosen and has not started.
    Ready {
        /// The node.
        node: Arc<str>,
        /// The edge it comes by; `None` at the beginning.
        via: Option<EnteredBy>,
    },
    /// A stage is running.
    Active(ActiveStage),
    /// The run was created and nothing has started.
    #[default]
    Created,
    /// A stage has ended and its outgoing edge is not chosen yet.
    ChoosingEdge {
        /// The node.
        node: Arc<str>,
        /// Which visit of it.
        visit: u32,
    },
    /// Its branches are running.
    Fanned(FanOut),
    /// Nothing is left to do.
    Done,
}

/// Ranks of one line: `next`, `next + stride`, …. Branches get residue classes of their own, so a
/// rank is unique and does not depend on which branch was faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    pub(crate) next: u32,
    pub(crate) stride: u32,
}

impl Default for Ranks {
    fn default() -> Self {
        Self { next: 1, stride: 1 }
    }
}

impl Ranks {
    pub(crate) fn last(self) -> u32 {
        self.next.saturating_sub(self.stride)
    }

    pub(crate) fn branch(self, index: usize, of: usize) -> Self {
        let index = u32::try_from(index).unwrap_or(u32::MAX - 1);
        let of = u32::try_from(of).unwrap_or(u32::MAX);
        Self {
            next: self.last().saturating_add(self.stride.saturating_mul(index + 1)),
            stride: self.stride.saturating_mul(of.max(1)),
        }
    }
}

impl Cursor {
    /// Drops what its stages wrote.
    pub(crate) fn forget_values(&mut self) {
        self.context = Context::default();
        self.history = Vector::new();
        self.last = None;
        self.updates = ContextPatch::default();
        self.response = None;
        self.output = Output::default();
        self.artifacts = Vec::new();
    }

    /// Whether the first stage after a resume continues the conversation of its thread.
    pub(crate) fn resumes_threads(&self) -> bool {
        self.context.get(keys::RESUME_THREADS) == Some(&Value::Bool(true))
    }

    /// Whether a resume makes the running stage drop the conversation of its thread. A stage whose
    /// own conversation has begun continues that one.
    pub(crate) fn drops_thread(&self) -> bool {
        let Position::Active(stage) = &self.position else { return false };
        let is_affected =
            stage.handler.is_llm() && stage.fidelity == Fidelity::Full && !stage.talked;
        is_affected && !self.resumes_threads()
    }

    /// How many model turns each node used.
    pub fn model_turns(&self) -> &OrdMap<Arc<str>, u32> {
        self.turns.counts()
    }

    /// True for the branch of a fan-out.
    pub fn is_branch(&self) -> bool {
        !BranchPath::new(&self.branch).is_main()
    }

    /// How many times it has entered the node.
    pub(crate) fn visits_of(&self, node: &str) -> u32 {
        self.visits.get(node).copied().unwrap_or_default()
    }

    /// The line of a branch of the fan-out that is running on this one.
    pub(crate) fn branch(&self, fan_out: &FanOut, place: usize) -> Self {
        let branch = &fan_out.branches[place];
        let mut context = self.context.clone();
        let mut turns = self.turns.clone();
        if let Some(list) = &fan_out.for_each {
            for_each::enter(&mut context, list, place);
            turns = turns.of_element(&fan_out.stage.node, place);
        }
        Self {
            branch: Arc::clone(&branch.name),
            context,
            history: self.history.clone(),
            visits: self.visits.clone(),
            taken: self.taken.clone(),
            turns,
            ends: self.ends.clone(),
            breaker: self.breaker.clone(),
            equal_failures: self.equal_failures.clone(),
            overridden: self.overridden.clone(),
            answered_by: None,
            open_failures: self.open_failures.clone(),
            restarted_by: self.restarted_by.clone(),
            joined: None,
            last: None,
            position: Position::Ready {
                node: Arc::clone(&branch.target),
                via: Some(EnteredBy {
                    from: Arc::clone(&fan_out.stage.node),
                    label: None,
                    edge: branch.edge,
                }),
            },
            degrade: self.degrade,
            updates: ContextPatch::new(),
            response: None,
            output: Output::default(),
            artifacts: Vec::new(),
            ranks: self.ranks.branch(place, fan_out.branches.len()),
        }
    }

    /// The output of the line: the last validated output, else the last response, else the last
    /// command output.
    pub fn output(&self) -> Option<&Arc<Value>> {
        self.output.value.as_ref()
    }

    /// The running stage, which may be a fan-out's.
    pub fn active(&self) -> Option<&ActiveStage> {
        match &self.position {
            Position::Active(stage) => Some(stage),
            Position::Fanned(fan) => Some(&fan.stage),
            _ => None,
        }
    }

    /// The running stage that an event is about.
    fn running(&mut self, event: &str) -> Result<&mut ActiveStage, Inconsistent> {
        match &mut self.position {
            Position::Active(stage) => Ok(stage),
            _ => Err(Inconsistent::new(format!("{event} is of a stage that is not running"))),
        }
    }

    /// Takes one event in. `steady_ms` is its time by a clock that was never set.
    pub(crate) fn apply(&mut self, event: &Event, steady_ms: i64) -> Result<(), Inconsistent> {
        let entry = &event.entry;
        match &entry.body {
            EventBody::StageStarted { rank, handler, fidelity, thread_id } => {
                self.started(event, *rank, *handler, *fidelity, thread_id.clone())?;
                let stage = self.running("a start")?;
                stage.started_ms = steady_ms;
                stage.attempt_ms = steady_ms;
            }
            EventBody::EdgeSelected(choice) => self.left(entry, choice),
            EventBody::GateAsked { show, .. } => {
                let stage = self.running("a question")?;
                stage.gate_asked_ms.get_or_insert(event.ts_ms);
                stage.gate_show.get_or_insert_with(|| show.as_slice().into());
            }
            EventBody::GateAnswered { selected, text, source, by, .. } => {
                let is_person = !["auto", "timeout"].contains(&source.as_str());
                let name = by.as_ref().map_or(source, |by| &by.name);
                self.answered_by = is_person.then(|| name.as_str().into());
                let selected = selected.as_str().into();
                let text = text.as_deref().map(Into::into);
                let answer = RecordedAnswer { selected, text };
                self.running("an answer")?.gate_answer = Some(answer);
            }
            EventBody::AgentMessage { message, usage, .. }
                if message.is_some() || usage.is_some() =>
            {
                self.talked(usage.as_ref())?;
            }
            EventBody::AgentCompactionCompleted(done) => self.talked(done.usage.as_ref())?,
            EventBody::AgentError { usage: usage @ Some(_), .. } => self.talked(usage.as_ref())?,
            EventBody::ArtifactCaptured(artifact) => {
                let file = Arc::clone(&artifact.file);
                self.running("an artifact")?.artifacts.insert(file);
            }
            // What else is recorded of a stage changes nothing that is decided.
            _ => {}
        }
        Ok(())
    }

    fn talked(&mut self, usage: Option<&Usage>) -> Result<(), Inconsistent> {
        let stage = self.running("a message")?;
        stage.talked = true;
        if let Some(usage) = usage {
            stage.spent.add(usage);
        }
        Ok(())
    }

    fn started(
        &mut self,
        event: &Event,
        rank: u32,
        handler: NodeKind,
        fidelity: Fidelity,
        thread_id: Option<Arc<str>>,
    ) -> Result<(), Inconsistent> {
        let missing = || Inconsistent::new("a stage without a node started");
        let node = event.entry.node_id.clone().ok_or_else(missing)?;
        let visit = event.entry.visit.unwrap_or(1);
        self.visits.insert(Arc::clone(&node), visit);
        self.ranks.next = rank.saturating_add(self.ranks.stride);
        self.degrade &= handler == NodeKind::Conditional;
        if !matches!(handler, NodeKind::Conditional | NodeKind::Wait | NodeKind::Exit) {
            self.open_failures.handle_leaving();
        }
        self.context.set(keys::CURRENT_NODE, Value::from(node.as_ref()));
        self.context.set(keys::NODE_VISIT_COUNT, Value::from(visit));
        self.context.set(keys::FIDELITY, Value::from(fidelity.as_str()));
        self.context.set(keys::THREAD_ID, thread_id.as_deref().map_or(Value::Null, Value::from));
        self.context.set(format!("{}{node}", keys::RETRY_COUNT_PREFIX), Value::from(0));
        self.position = Position::Active(ActiveStage {
            visit,
            rank,
            fidelity,
            thread_id,
            since_seq: event.seq,
            turns_before: self.turns.of(&node),
            ..ActiveStage::new(node, handler)
        });
        Ok(())
    }

    /// Another attempt follows a failed one. `at` is the sequence number of its event, and the time
    /// of that event on the monotonic clock.
    pub(crate) fn retrying(
        &mut self,
        at: (u64, i64),
        attempt: u32,
        delay_ms: u64,
        failure: &Failure,
        usage: &Usage,
    ) -> Result<(), Inconsistent> {
        let stage = self.running("a retry")?;
        stage.retry(attempt + 1, delay_ms, at);
        let node = Arc::clone(&stage.node);
        let handler = stage.handler;
        if handler == NodeKind::Parallel {
            self.open_failures.remove_under(&node);
        }
        self.failed_as(failure);
        let key = format!("{}{node}", keys::RETRY_COUNT_PREFIX);
        self.context.set(key, Value::from(attempt));
        self.count_turns(&node, handler, usage.requests());
        Ok(())
    }

    /// Sets or clears the failure keys in the context after a stage.
    fn note_result(&mut self, outcome: &Outcome) {
        match &outcome.failure {
            Some(failure) if outcome.status != Status::Succeeded => self.failed_as(failure),
            _ if outcome.status == Status::Failed => {}
            _ => {
                for key in [keys::FAILURE_CLASS, keys::FAILURE_SIGNATURE] {
                    if self.context.get(key).is_some() {
                        self.context.set(key, Value::from(""));
                    }
                }
            }
        }
    }

    fn failed_as(&mut self, failure: &Failure) {
        self.context.set(keys::FAILURE_CLASS, Value::from(failure.class.as_str()));
        self.context.set(keys::FAILURE_SIGNATURE, Value::from(failure.signature.as_str()));
    }

    /// Counts turns of the running stage that failed and are no part of its conversation.
    pub(crate) fn count_failed_turns(&mut self, turns: u32) {
        if let Position::Active(stage) = &self.position {
            let node = Arc::clone(&stage.node);
            let handler = stage.handler;
            self.count_turns(&node, handler, turns);
        }
    }

    /// The run paused because no model or agent was available for this stage: when it is resumed, the
    /// attempts so far do not count.
    pub(crate) fn allow_fresh_attempts(&mut self, node: &str) {
        if let Position::Active(stage) = &mut self.position
            && *stage.node == *node
        {
            stage.attempts_before = stage.attempt.saturating_sub(1);
            stage.delay_ms = 0;
        }
    }

    /// The turns of a sub-workflow were its own nodes': its log has them.
    fn count_turns(&mut self, node: &Arc<str>, handler: NodeKind, turns: u32) {
        if turns > 0 && handler != NodeKind::ManagerLoop {
            self.turns.add(node, turns);
        }
    }

    pub(crate) fn ended(
        &mut self,
        event: &Event,
        end: &Arc<CompletedStage>,
    ) -> Result<(), Inconsistent> {
        let missing = || Inconsistent::new("a stage that is not running ended");
        let stage = self.active().cloned().ok_or_else(missing)?;
        let outcome = &end.outcome;
        self.context.apply(&outcome.context_updates);
        self.context.set(keys::OUTCOME, Value::from(outcome.reads_as()));
        let label = outcome.preferred_label.as_deref().unwrap_or_default();
        self.context.set(keys::PREFERRED_LABEL, Value::from(label));
        self.position =
            Position::ChoosingEdge { node: Arc::clone(&stage.node), visit: stage.visit };
        // An exit does no work, so the result of the stage before it stays in the context.
        if stage.handler != NodeKind::Exit {
            self.note_result(outcome);
        }
        let first_rank = self.ends.get(&stage.node).map_or(end.rank, |earlier| earlier.first_rank);
        let failure = outcome.failure.clone().map(Arc::new);
        let node_end = NodeEnd { first_rank, status: outcome.status, failure };
        self.ends.insert(Arc::clone(&stage.node), node_end);
        if stage.handler == NodeKind::Conditional {
            return Ok(());
        }
        self.context.set(keys::LAST_STAGE, Value::from(stage.node.as_ref()));
        let turns = outcome.usage.as_ref().map_or(0, Usage::requests);
        self.count_turns(&stage.node, stage.handler, turns);
        self.output.take(&stage.node, &outcome.context_updates);
        if self.is_branch() {
            self.remember_for_join(&stage.node, outcome);
        }
        if outcome.status.is_good() {
            self.ended_well(&stage.node);
        }
        if outcome.status == Status::Failed
            && let Some(failure) = &outcome.failure
        {
            *self.equal_failures.entry(failure.signature.as_str().into()).or_default() += 1;
        }
        if stage.handler != NodeKind::FanIn {
            self.joined = None;
        }
        self.note_failure(&stage, end, event.seq);
        self.last = Some(LastStage { node: Arc::clone(&stage.node), end: Arc::clone(end) });
        if !matches!(stage.handler, NodeKind::Start | NodeKind::Exit) {
            self.history.push_back(Arc::new(StageRecord {
                node: stage.node,
                handler: stage.handler,
                visit: event.entry.visit.unwrap_or(stage.visit),
                thread_id: stage.thread_id,
                branch: Arc::clone(&self.branch),
                since_seq: stage.since_seq,
                until_seq: event.seq,
                end: Arc::clone(end),
            }));
        }
        Ok(())
    }

    /// The stage that was running here was canceled with its branch.
    pub(crate) fn canceled(&mut self, stage: &ActiveStage) {
        let first_rank =
            self.ends.get(&stage.node).map_or(stage.rank, |earlier| earlier.first_rank);
        let failure = Failure::new(FailureClass::Canceled, "it was canceled with its branch");
        let failure = Some(Arc::new(failure.signed(&stage.node)));
        let end = NodeEnd { first_rank, status: Status::Skipped, failure };
        self.ends.insert(Arc::clone(&stage.node), end);
    }

    fn ended_well(&mut self, node: &str) {
        self.breaker.remove(node);
        if !self.overridden.is_empty() {
            self.overridden.retain(|overridden| *overridden.check.node != *node);
        }
    }

    /// Keeps the failure of a stage until something handles it, or the node ends well.
    fn note_failure(&mut self, stage: &ActiveStage, end: &CompletedStage, seq: u64) {
        let outcome = &end.outcome;
        let unstated = || {
            let failed = outcome.status == Status::Failed;
            failed.then(|| Failure::new(FailureClass::Deterministic, "the stage failed"))
        };
        let failure = outcome.failure.clone().or_else(unstated);
        match failure {
            Some(failure) if outcome.status != Status::Succeeded => {
                self.add_failure(&stage.node, stage.visit, seq, outcome.status, failure);
            }
            _ => self.open_failures.remove_node(&stage.node),
        }
    }

    fn add_failure(
        &mut self,
        node: &Arc<str>,
        visit: u32,
        seq: u64,
        status: Status,
        failure: Failure,
    ) {
        let branch = self.is_branch().then(|| Arc::clone(&self.branch));
        let stage = Arc::new(StageFailure { node: Arc::clone(node), visit, branch, failure });
        self.open_failures.add(OpenFailure { seq, status, stage });
    }

    /// The branch has ended with a failure: one of the engine's own, such as a visit limit, is noted
    /// for the stage that it ended at, or that it could not enter.
    pub(crate) fn branch_failed(&mut self, failure: &Failure, seq: u64) {
        let last = self.last.as_ref();
        if last.is_some_and(|last| last.outcome().failure.as_ref() == Some(failure)) {
            return;
        }
        let node = match (&self.position, last) {
            // It may not be entered.
            (Position::Ready { node, .. }, _) => Arc::clone(node),
            (_, Some(last)) => Arc::clone(&last.node),
            _ => return,
        };
        let visit = self.visits_of(&node).max(1);
        self.add_failure(&node, visit, seq, Status::Failed, failure.clone());
    }

    fn remember_for_join(&mut self, node: &str, outcome: &Outcome) {
        let updates = &outcome.context_updates;
        self.updates.extend(updates.iter().map(|(key, value)| (key.clone(), Arc::clone(value))));
        let response = updates
            .get(&format!("{}{node}", keys::RESPONSE_PREFIX))
            .or_else(|| updates.get(keys::COMMAND_OUTPUT));
        self.response = response.cloned().or_else(|| self.response.take());
        self.artifacts.extend(outcome.artifacts.iter().chain(&outcome.inner_artifacts).cloned());
    }

    fn left(&mut self, entry: &Entry, choice: &EdgeChoice) {
        let jumped =
            matches!(choice.tier, Tier::RetryTarget | Tier::FallbackRetryTarget | Tier::GoalGate);
        if jumped {
            self.count_jump(entry, choice);
        }
        if let (Some(from), Some(edge)) = (&entry.node_id, place_of(choice)) {
            *self.taken.entry((Arc::clone(from), edge)).or_default() += 1;
        }
        self.note_handled(choice);
        let label = choice.label.clone();
        let edge = choice.edge;
        let via = entry.node_id.clone().map(|from| EnteredBy { from, label, edge });
        self.position = Position::Ready { node: Arc::clone(&choice.to), via };
    }

    /// Updates the open failures for this edge choice.
    fn note_handled(&mut self, choice: &EdgeChoice) {
        let is_of_older_version = choice.failure.is_none();
        match choice.failure {
            Some(FailureHandling::AtExit) => self.open_failures.reopen_leaving(),
            Some(FailureHandling::Unhandled) => {}
            None if !handled_by_legacy_rule(choice) => {}
            Some(FailureHandling::Handled) | None => {
                let last = self.last.as_ref().map(|last| Arc::clone(&last.node));
                let failed = if choice.tier == Tier::GoalGate { choice.gate.clone() } else { last };
                let joined = self.joined.clone().filter(|_| choice.tier != Tier::GoalGate);
                for node in failed.iter().chain(&joined) {
                    self.open_failures.leave(node);
                }
                if is_of_older_version {
                    self.open_failures.handle_leaving();
                }
            }
        }
        if choice.tier == Tier::Join {
            self.joined = self.last.as_ref().map(|last| Arc::clone(&last.node));
        }
        for overridden in &choice.overrides {
            self.overridden.retain(|it| it.check.stage() != overridden.check.stage());
            self.overridden.push_back(overridden.clone());
        }
    }

    /// Counts the failure that leaves by a jump, for the breaker.
    fn count_jump(&mut self, entry: &Entry, choice: &EdgeChoice) {
        let node = match choice.tier {
            Tier::GoalGate => choice.gate.clone().or_else(|| entry.node_id.clone()),
            _ => self.last.as_ref().map(|last| Arc::clone(&last.node)),
        };
        // A jump without a failure, such as that of a goal gate which was skipped, is not counted.
        let Some(node) = node else { return };
        let signature = match self.ends.get(&node) {
            Some(end) => end.failure.as_ref().map(|failure| failure.signature.clone()),
            None => Some(unvisited_gate_failure(&node).signature)
                .filter(|_| choice.tier == Tier::GoalGate),
        };
        let Some(signature) = signature else { return };
        *self.breaker.entry(node).or_default().entry(signature).or_default() += 1;
    }

    /// Adds what a branch did since the fan-out to this line. The branches of a list visit the same
    /// nodes, so their visits count once. `element` is the fan-out node and the index in its list.
    pub(crate) fn absorb(
        &mut self,
        base: &Self,
        branch: &Self,
        keeps_failures: bool,
        element: Option<(&Arc<str>, usize)>,
    ) {
        let open = &branch.open_failures;
        self.open_failures.absorb(&base.open_failures, open, keeps_failures);
        self.ranks.next =
            self.ranks.next.max(branch.ranks.last().saturating_add(self.ranks.stride));
        if let Some((fan_out, index)) = element {
            take_most(&mut self.visits, &base.visits, &branch.visits);
            take_most(&mut self.equal_failures, &base.equal_failures, &branch.equal_failures);
            self.turns.absorb_element(&base.turns, &branch.turns, fan_out, index);
        } else {
            add_growth(&mut self.visits, &base.visits, &branch.visits);
            add_growth(&mut self.equal_failures, &base.equal_failures, &branch.equal_failures);
            self.turns.absorb(&base.turns, &branch.turns);
        }
        for overridden in &branch.overridden {
            if !self.overridden.contains(overridden) {
                self.overridden.push_back(overridden.clone());
            }
        }
        for item in base.ends.diff(&branch.ends) {
            if let DiffItem::Add(node, end) | DiffItem::Update { new: (node, end), .. } = item {
                if end.status.is_good() {
                    self.ended_well(node);
                }
                // Of the ends of a node in several branches, one that is not good counts.
                let earlier =
                    self.ends.get(node).filter(|earlier| base.ends.get(node) != Some(earlier));
                if earlier.is_none_or(|earlier| earlier.status.is_good()) {
                    self.ends.insert(Arc::clone(node), end.clone());
                }
            }
        }
    }
}
