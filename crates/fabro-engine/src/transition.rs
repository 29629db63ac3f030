//! What follows the end of a stage: edges, jumps, fan-outs and their joins.

use std::sync::Arc;

use fabro_context::keys;
use fabro_events::{Candidate, EdgeChoice, EventBody, PlannedBranch, Tier};
use fabro_graph::NodeIx;
use fabro_plan::{NodeSpec, RetryTargets};
use fabro_types::{BranchPath, Failure, FailureClass, NodeKind, Status};

use crate::cursor::{Cursor, LastStage, Position};
use crate::fanout::{FanOut, JoinState};
use crate::inconsistent::Inconsistent;
use crate::input::Finished;
use crate::machine::Machine;
use crate::select::{self, Answer, LookupError, Question, SelectError, Values};

/// How deep fan-outs may nest.
const MAX_DEPTH: usize = 16;

impl Machine {
    /// A stage has ended: which way does its line go?
    pub(crate) fn choose(
        &mut self,
        branch: &Arc<str>,
        id: &str,
        visit: u32,
    ) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let ix = self.index(id)?;
        let node = plan.spec(ix);
        if node.kind == NodeKind::Parallel {
            return self.leave_fan_out(branch, ix, node, visit);
        }
        let answer = match self.select(branch, ix, node, visit)? {
            Ok(answer) => answer,
            Err(SelectError::Needs(needs)) => {
                self.needs = needs;
                self.todo.push_front(Arc::clone(branch));
                return Ok(());
            }
            Err(SelectError::Lookup(LookupError(message))) => {
                let failure = Failure::new(FailureClass::Deterministic, message).signed(id);
                return self.fail_line(branch, failure);
            }
        };
        match answer.edge {
            Some((_, choice)) if choice.restart => {
                self.restart(branch, node, visit, choice);
                Ok(())
            }
            Some((_, choice)) => self.take(branch, node, visit, choice),
            None => self.no_edge(branch, node, visit, answer),
        }
    }

    fn select(
        &self,
        branch: &str,
        ix: NodeIx,
        node: &NodeSpec,
        visit: u32,
    ) -> Result<Result<Answer, SelectError>, Inconsistent> {
        let cursor = self.cursor(branch)?;
        let outcome = cursor.last.as_ref().map(LastStage::outcome);
        let unanswered = node.kind == NodeKind::Human
            && outcome.is_some_and(|outcome| outcome.status == Status::Failed);
        let values = Values { read: &self.values, pending: self.pending_blobs() };
        Ok(select::select(&Question {
            plan: &self.plan,
            node: ix,
            outcome,
            context: &cursor.context,
            values,
            random: self.random(branch, &node.id, visit),
            only_conditions: unanswered,
        }))
    }

    fn take(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        visit: u32,
        choice: EdgeChoice,
    ) -> Result<(), Inconsistent> {
        let arrived = self.own_join(branch).is_some_and(|join| join == choice.to);
        self.emit_for(branch, node, visit, EventBody::EdgeSelected(choice));
        if arrived {
            return self.end_branch(branch, None);
        }
        self.todo.push_back(Arc::clone(branch));
        Ok(())
    }

    /// Where the fan-out that this branch belongs to is joined.
    fn own_join(&self, branch: &str) -> Option<Arc<str>> {
        if branch.is_empty() {
            return None;
        }
        match &self.state.cursors.get(BranchPath::new(branch).parent().as_str())?.position {
            Position::Fanned(fan) => fan.join.clone(),
            _ => None,
        }
    }

    fn restart(&mut self, branch: &Arc<str>, node: &NodeSpec, visit: u32, choice: EdgeChoice) {
        if !branch.is_empty() {
            let message = "a loop_restart edge cannot be taken inside a fan-out";
            let failure = Failure::new(FailureClass::Structural, message).signed(&node.id);
            self.fail_choice(branch, failure, choice.candidates);
            return;
        }
        let failure = self.last_failure(branch);
        if let Some(failure) = failure.filter(|f| f.class != FailureClass::TransientInfra) {
            let message = format!(
                "a failure of class {} does not restart the loop: {}",
                failure.class, failure.message
            );
            let failure = Failure { message, ..failure };
            self.fail_choice(branch, failure, choice.candidates);
            return;
        }
        let to = Arc::clone(&choice.to);
        self.emit_for(branch, node, visit, EventBody::EdgeSelected(choice));
        self.emit_for(branch, node, visit, EventBody::LoopRestart { to });
        self.todo.push_back(Arc::clone(branch));
    }

    fn no_edge(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        visit: u32,
        answer: Answer,
    ) -> Result<(), Inconsistent> {
        let Some(failure) = self.last_failure(branch) else {
            let dead_end = answer.candidates.is_empty() && node.kind != NodeKind::Parallel;
            if !branch.is_empty() && dead_end {
                return self.end_branch(branch, None);
            }
            let message = format!("no matching edge leads on from `{}`", node.id);
            let failure = Failure::new(FailureClass::Structural, message).signed(&node.id);
            self.fail_choice(branch, failure, answer.candidates);
            return Ok(());
        };
        let origin = self.failed_node(branch).unwrap_or_else(|| Arc::clone(&node.id));
        let Some((tier, to)) = self.jump(branch, &origin) else {
            self.fail_choice(branch, failure, answer.candidates);
            return Ok(());
        };
        if let Some(failure) = self.tripped(branch, &origin, failure) {
            self.fail_choice(branch, failure, answer.candidates);
            return Ok(());
        }
        let choice = jump(tier, to, None, answer.candidates);
        self.take(branch, node, visit, choice)
    }

    /// The last stage of a line whose edges are chosen.
    fn last(&self, branch: &str) -> Option<&LastStage> {
        self.state.cursors.get(branch)?.last.as_ref()
    }

    /// The failure of the last stage, when it ended failed.
    fn last_failure(&self, branch: &str) -> Option<Failure> {
        let outcome = self.last(branch)?.outcome();
        let failure = || Failure::new(FailureClass::Deterministic, "the stage failed");
        (outcome.status == Status::Failed).then(|| outcome.failure.clone().unwrap_or_else(failure))
    }

    fn failed_node(&self, branch: &str) -> Option<Arc<str>> {
        Some(Arc::clone(&self.last(branch)?.node))
    }

    /// The retry target of a failed node, or its fallback, that may still be entered.
    fn jump(&self, branch: &str, failed: &str) -> Option<(Tier, Arc<str>)> {
        let own = self.plan.find(failed)?.retry_targets;
        // The graph's targets are on the main line; a branch would leave its fan-out for them.
        let graph = if branch.is_empty() {
            self.plan.graph().retry_targets
        } else {
            RetryTargets::default()
        };
        let targets = [
            (Tier::RetryTarget, own.first),
            (Tier::FallbackRetryTarget, own.fallback),
            (Tier::RetryTarget, graph.first),
            (Tier::FallbackRetryTarget, graph.fallback),
        ];
        targets.into_iter().find_map(|(tier, target)| {
            let target = self.plan.spec(target?);
            self.has_visits(branch, target).then(|| (tier, Arc::clone(&target.id)))
        })
    }

    fn has_visits(&self, branch: &str, node: &NodeSpec) -> bool {
        self.visit_limit(node).is_none_or(|max| self.visits(branch, &node.id) < max)
    }

    /// The failure that ends the line because the same one has left `node` too often.
    fn tripped(&self, branch: &str, node: &str, failure: Failure) -> Option<Failure> {
        if !matches!(failure.class, FailureClass::Deterministic | FailureClass::Structural) {
            return None;
        }
        let limit = self.plan.graph().signature_limit?;
        let counts = self.state.cursors.get(branch)?.breaker.get(node);
        let before = counts.and_then(|counts| counts.get(&failure.signature)).copied();
        let times = before.unwrap_or_default() + 1;
        (times >= limit).then(|| {
            let message = format!("the same failure {times} times: {}", failure.message);
            Failure { message, ..failure }
        })
    }

    /// The jump that an unmet goal gate asks for at the exit; an error when it has no target left.
    pub(crate) fn unmet_gate(&self, cursor: &Cursor) -> Result<Option<EdgeChoice>, Failure> {
        let ended = self.plan.goal_gates().iter().filter_map(|ix| {
            let node = self.plan.spec(*ix);
            cursor.ends.get(&node.id).map(|end| (end, node))
        });
        let unmet = ended
            .filter(|(end, _)| !end.status.is_good())
            .min_by_key(|(end, node)| (end.first_rank, Arc::clone(&node.id)));
        let Some((end, gate)) = unmet else { return Ok(None) };
        let tripped = |failure: &Arc<Failure>| {
            self.tripped(&cursor.branch, &gate.id, Failure::clone(failure))
        };
        if let Some(failure) = end.failure.as_ref().and_then(tripped) {
            return Err(failure);
        }
        let Some((_, to)) = self.jump(&cursor.branch, &gate.id) else {
            let message = format!(
                "goal gate `{}` ended {} and has no retry target left",
                gate.id, end.status
            );
            return Err(Failure::new(FailureClass::Deterministic, message).signed(&gate.id));
        };
        Ok(Some(jump(Tier::GoalGate, to, Some(Arc::clone(&gate.id)), Vec::new())))
    }

    /// Begins the fan-out of the running parallel stage, again if it failed.
    pub(crate) fn fan_out(&mut self, branch: &Arc<str>) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let missing = || Inconsistent::new(format!("no fan-out begins on branch `{branch}`"));
        let stage = self.active_stage(branch).ok_or_else(missing)?;
        let ix = self.index(&stage.node)?;
        let node = plan.spec(ix);
        let parallel = node.parallel().ok_or_else(missing)?;
        let visit = stage.visit;
        let attempt = stage.attempt;
        if let Err(message) = may_fan_out(branch, &node.id) {
            return self.fail_stage(branch, node, FailureClass::Structural, message);
        }
        let planned = match self.planned(branch, ix, node, (visit, attempt))? {
            Ok(planned) => planned,
            Err(SelectError::Needs(needs)) => {
                self.needs = needs;
                self.waiting_fan_out = Some(Arc::clone(branch));
                return Ok(());
            }
            Err(SelectError::Lookup(LookupError(message))) => {
                return self.fail_stage(branch, node, FailureClass::Deterministic, message);
            }
        };
        if planned.is_empty() {
            let message = "no edge of the fan-out may be taken".to_owned();
            return self.fail_stage(branch, node, FailureClass::Structural, message);
        }
        let join = self.plan.join(ix).map(|ix| Arc::clone(&self.plan.spec(ix).id));
        let max_parallel = parallel.max_parallel;
        let body = EventBody::ParallelStarted { branches: planned, join, max_parallel };
        self.emit_for(branch, node, visit, body);
        self.todo.push_back(Arc::clone(branch));
        Ok(())
    }

    fn fail_stage(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        class: FailureClass,
        why: String,
    ) -> Result<(), Inconsistent> {
        let failure = Failure::new(class, why).signed(&node.id);
        self.complete(branch, node, Finished::from(fabro_types::Outcome::failed(failure)))
    }

    /// The branches of a fan-out: its edges, in file order, whose condition holds or is absent.
    fn planned(
        &self,
        branch: &str,
        ix: NodeIx,
        node: &NodeSpec,
        (visit, attempt): (u32, u32),
    ) -> Result<Result<Vec<PlannedBranch>, SelectError>, Inconsistent> {
        let answer = match self.select(branch, ix, node, visit)? {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let fan_out = BranchPath::new(branch).fan_out(&node.id, visit, attempt);
        let mut planned: Vec<PlannedBranch> = Vec::new();
        for candidate in answer.candidates.into_iter().filter(|candidate| candidate.holds) {
            let same = planned.iter().filter(|branch| branch.target == candidate.to).count();
            let name = BranchPath::branch(&fan_out, &candidate.to, same);
            planned.push(PlannedBranch { branch: name, target: candidate.to });
        }
        Ok(Ok(planned))
    }

    /// The running fan-out of this line.
    pub(crate) fn fan_out_at(&self, branch: &str) -> Result<&FanOut, Inconsistent> {
        match &self.cursor(branch)?.position {
            Position::Fanned(fan) => Ok(fan),
            _ => Err(Inconsistent::new(format!("no fan-out is running on branch `{branch}`"))),
        }
    }

    /// Starts the branches of a fan-out that have a slot; joins when its policy says so.
    pub(crate) fn tend(&mut self, branch: &Arc<str>) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let fan = self.fan_out_at(branch)?;
        let node = plan.spec(self.index(&fan.stage.node)?);
        let policy = node.parallel().map(|parallel| parallel.join_policy).unwrap_or_default();
        if let JoinState::Joined(status) = fan.join_state(policy) {
            return self.join(branch, Ok(status));
        }
        let startable: Vec<(Arc<str>, bool)> = fan
            .startable()
            .map(|branch| (Arc::clone(&branch.name), Some(&branch.target) == fan.join.as_ref()))
            .collect();
        for (name, arrived) in startable {
            self.emit(&name, EventBody::BranchStarted {});
            if arrived {
                self.end_branch(&name, None)?;
            } else {
                self.todo.push_back(name);
            }
        }
        Ok(())
    }

    /// Joins a fan-out: with the status that its policy gives, or with a failure of its own.
    /// Branches that are still running are canceled.
    pub(crate) fn join(
        &mut self,
        branch: &Arc<str>,
        result: Result<Status, Failure>,
    ) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let fan = self.fan_out_at(branch)?;
        let node = plan.spec(self.index(&fan.stage.node)?);
        let visit = fan.stage.visit;
        let started_ms = fan.stage.started_ms;
        let open: Vec<Arc<str>> = fan.open().map(Arc::clone).collect();
        for name in open {
            let body = EventBody::BranchCompleted {
                status: Status::Skipped,
                failure: result.as_ref().err().cloned(),
                canceled: true,
                candidates: Vec::new(),
            };
            self.emit(&name, body);
        }
        let mut outcome = self.fan_out_at(branch)?.outcome(&self.state, result);
        let took_ms = self.now_ms.saturating_sub(started_ms);
        outcome.duration_ms = u64::try_from(took_ms).unwrap_or_default();
        let status = outcome.status;
        self.emit_for(branch, node, visit, EventBody::ParallelCompleted { status });
        self.ended(branch, outcome.into())
    }

    fn leave_fan_out(
        &mut self,
        branch: &Arc<str>,
        ix: NodeIx,
        node: &NodeSpec,
        visit: u32,
    ) -> Result<(), Inconsistent> {
        // Results are what tells a fan-out that was joined from one that could not begin.
        let joined = self.last(branch).is_some_and(|last| {
            last.outcome().context_updates.contains_key(keys::PARALLEL_RESULTS)
        });
        if let Some(join) = self.plan.join(ix).filter(|_| joined) {
            let to = Arc::clone(&self.plan.workflow().node(join).id);
            self.take(branch, node, visit, jump(Tier::Join, to, None, Vec::new()))
        } else {
            let answer = Answer { edge: None, candidates: Vec::new() };
            self.no_edge(branch, node, visit, answer)
        }
    }

    /// Ends a branch with the status of its last stage, or with a failure of the engine's own.
    pub(crate) fn end_branch(
        &mut self,
        branch: &Arc<str>,
        failure: Option<Failure>,
    ) -> Result<(), Inconsistent> {
        let body = self.branch_end(branch, failure, Vec::new());
        let parent = BranchPath::new(branch).parent();
        self.fan_out_at(parent.as_str())?;
        self.emit(branch, body);
        self.todo.push_back(Arc::from(parent.as_str()));
        Ok(())
    }

    /// Ends a line at a stage that these edges do not lead on from.
    fn fail_choice(&mut self, branch: &Arc<str>, failure: Failure, candidates: Vec<Candidate>) {
        if branch.is_empty() {
            let body = self.run_failed(failure, candidates);
            self.emit(branch, body);
        } else {
            let body = self.branch_end(branch, Some(failure), candidates);
            self.emit(branch, body);
            self.todo.push_back(Arc::from(BranchPath::new(branch).parent().as_str()));
        }
    }

    fn branch_end(
        &self,
        branch: &str,
        failure: Option<Failure>,
        candidates: Vec<Candidate>,
    ) -> EventBody {
        let last = self.last(branch);
        let status = match (&failure, last) {
            (Some(_), _) => Status::Failed,
            (None, Some(last)) => last.outcome().status,
            (None, None) => Status::Succeeded,
        };
        let own = last.and_then(|last| last.outcome().failure.clone());
        let failure = failure.or(own).filter(|_| status == Status::Failed);
        EventBody::BranchCompleted { status, failure, canceled: false, candidates }
    }
}

fn jump(
    tier: Tier,
    to: Arc<str>,
    gate: Option<Arc<str>>,
    candidates: Vec<Candidate>,
) -> EdgeChoice {
    EdgeChoice { to, label: None, tier, random: false, restart: false, gate, candidates }
}

/// Whether a fan-out may begin in this branch: not in one of its own, and not too deep.
fn may_fan_out(branch: &str, node: &str) -> Result<(), String> {
    let path = BranchPath::new(branch);
    if path.fan_outs().any(|fan_out| fan_out.node() == node) {
        return Err(format!("`{node}` is entered again from one of its own branches"));
    }
    if path.depth() >= MAX_DEPTH {
        return Err(format!("fan-outs nest more than {MAX_DEPTH} deep"));
    }
    Ok(())
}
