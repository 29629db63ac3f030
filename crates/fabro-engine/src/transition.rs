//! What follows the end of a stage: edges, jumps of failures and unmet goal gates, restarts (`loop_restart`),
//! fan-outs and their joins.

use std::sync::Arc;

use fabro_blob::READ_LIMIT;
use fabro_context::keys;
use fabro_events::{Candidate, EdgeChoice, EventBody, ForEach, PlannedBranch, Tier};
use fabro_graph::NodeIx;
use fabro_plan::{ForEachSpec, Isolation, JoinPolicy, NodeSpec, ParallelSpec, RetryTargets};
use fabro_types::{BranchPath, Failure, FailureClass, NodeKind, Outcome, Status};

use crate::active_stage::ActiveStage;
use crate::clock::duration_ms;
use crate::cursor::{Cursor, LastStage, Position};
use crate::fanout::FanOut;
use crate::for_each::{self, ListQuery};
use crate::inconsistent::Inconsistent;
use crate::join;
use crate::line::is_main;
use crate::machine::Machine;
use crate::select::{self, EdgeQuery, LookupError, SelectError, Selected, Values};
use crate::unhandled::with_cause;

/// How deep fan-outs may nest.
const MAX_DEPTH: usize = 16;

/// The result of checking the goal gates at an exit.
pub(crate) enum GoalGates {
    /// All gates are met.
    Met,
    /// A gate is unmet, and the run jumps to its retry target.
    Retry(EdgeChoice),
    /// A gate is unmet, and no retry target is left.
    Failed(Failure),
}

impl Machine {
    /// A stage has ended: selects the edge that its line leaves it by.
    pub(crate) fn leave_stage(
        &mut self,
        branch: &Arc<str>,
        id: &str,
        visit: u32,
    ) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let ix = self.node_index(id)?;
        let node = plan.spec(ix);
        if node.kind == NodeKind::Parallel {
            return self.leave_fan_out(branch, ix, node, visit);
        }
        let selected = self.evaluate_edges(branch, ix, node, visit)?;
        let selected = match selected {
            Ok(selected) if self.state.created()?.dry_run => Ok(self.assume(branch, ix, selected)?),
            other => other,
        };
        match selected {
            Ok(Selected { edge: Some(choice), .. }) if choice.restart => {
                self.restart(branch, node, visit, choice)
            }
            Ok(Selected { edge: Some(choice), .. }) => {
                self.follow_unless_stopped(branch, node, visit, choice)
            }
            Ok(Selected { edge: None, candidates }) => {
                self.no_edge(branch, node, visit, candidates)
            }
            Err(SelectError::Needs(needs)) => {
                self.need(needs, READ_LIMIT);
                self.runnable_lines.push_front(Arc::clone(branch));
                Ok(())
            }
            Err(SelectError::Lookup(LookupError(message))) => {
                let failure = Failure::new(FailureClass::Deterministic, message).signed(id);
                self.fail_line(branch, failure)
            }
        }
    }

    fn evaluate_edges(
        &self,
        branch: &str,
        ix: NodeIx,
        node: &NodeSpec,
        visit: u32,
    ) -> Result<Result<Selected, SelectError>, Inconsistent> {
        self.evaluate_edges_of(self.cursor(branch)?, ix, node, visit)
    }

    /// The same for a hypothetical state of the line.
    pub(crate) fn evaluate_edges_of(
        &self,
        cursor: &Cursor,
        ix: NodeIx,
        node: &NodeSpec,
        visit: u32,
    ) -> Result<Result<Selected, SelectError>, Inconsistent> {
        let outcome = cursor.last.as_ref().map(LastStage::outcome);
        let unanswered = node.kind == NodeKind::Human
            && outcome.is_some_and(|outcome| outcome.status == Status::Failed);
        let values = Values { read: &self.values, pending: &self.commit.blobs };
        Ok(select::select(&EdgeQuery {
            plan: &self.plan,
            node: ix,
            outcome,
            context: &cursor.context,
            values,
            random: self.random(&cursor.branch, &node.id, visit)?,
            only_conditions: unanswered,
            avoids_plain: self.avoids_plain_edges(cursor)?,
        }))
    }

    /// Follows the edge, unless the line leaves a failure behind that ends it.
    fn follow_unless_stopped(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        visit: u32,
        choice: EdgeChoice,
    ) -> Result<(), Inconsistent> {
        let choice = self.with_handling(branch, self.node_index(&node.id)?, choice)?;
        match self.stopped_by(branch, &choice)? {
            Some(failure) => self.fail_choice(branch, failure, choice.candidates),
            None => self.follow_edge(branch, node, visit, choice),
        }
    }

    fn follow_edge(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        visit: u32,
        choice: EdgeChoice,
    ) -> Result<(), Inconsistent> {
        // A branch ends where its fan-out is joined.
        let arrived = !is_main(branch)
            && self.parent_fan_out(branch)?.join.as_ref().is_some_and(|join| *join == choice.to);
        self.emit_for(branch, node, visit, EventBody::EdgeSelected(choice));
        if arrived {
            return self.end_branch(branch, None);
        }
        self.runnable_lines.push_back(Arc::clone(branch));
        Ok(())
    }

    fn restart(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        visit: u32,
        choice: EdgeChoice,
    ) -> Result<(), Inconsistent> {
        if !is_main(branch) {
            let message = "a loop_restart edge cannot be taken inside a fan-out";
            let failure = Failure::new(FailureClass::Structural, message).signed(&node.id);
            return self.fail_choice(branch, failure, choice.candidates);
        }
        let failure = last_failure(self.cursor(branch)?);
        if let Some(failure) = failure.filter(|f| f.class != FailureClass::TransientInfra) {
            let message = format!(
                "a failure of class {} does not restart the loop: {}",
                failure.class, failure.message
            );
            let failure = Failure { message, ..failure };
            return self.fail_choice(branch, failure, choice.candidates);
        }
        let to = Arc::clone(&choice.to);
        let choice = self.with_handling(branch, self.node_index(&node.id)?, choice)?;
        self.emit_for(branch, node, visit, EventBody::EdgeSelected(choice));
        self.emit_for(branch, node, visit, EventBody::LoopRestart { to });
        self.runnable_lines.push_back(Arc::clone(branch));
        Ok(())
    }

    /// No outgoing edge matches: a failure takes its retry target, and everything else ends the line.
    fn no_edge(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        visit: u32,
        candidates: Vec<Candidate>,
    ) -> Result<(), Inconsistent> {
        let cursor = self.cursor(branch)?;
        let failed = cursor.last.as_ref().zip(last_failure(cursor));
        let Some((last, failure)) = failed else {
            let dead_end = candidates.is_empty() && node.kind != NodeKind::Parallel;
            if !is_main(branch) && dead_end {
                return self.end_branch(branch, None);
            }
            let first = self.unhandled(cursor).into_iter().next();
            let first = first.or_else(|| self.dead_end_cause(cursor));
            let message = format!("no matching edge from `{}`", node.id);
            let message = with_cause(message, first.as_deref());
            let remedy = "add an edge without a condition, or one for this result";
            let failure = Failure {
                details: first.is_none().then(|| remedy.to_owned()),
                ..Failure::new(FailureClass::Structural, message).signed(&node.id)
            };
            return self.fail_choice(branch, failure, candidates);
        };
        let Some((tier, to)) = self.jump(cursor, &last.node)? else {
            return self.fail_choice(branch, failure, candidates);
        };
        if let Some(failure) = self.circuit_breaker_tripped(cursor, &last.node, &failure) {
            return self.fail_choice(branch, failure, candidates);
        }
        let choice = jump(tier, to, None, candidates);
        let choice = self.with_handling(branch, self.node_index(&node.id)?, choice)?;
        self.follow_edge(branch, node, visit, choice)
    }

    /// The retry target of a failed node, or its fallback, that may still be entered.
    pub(crate) fn jump(
        &self,
        cursor: &Cursor,
        failed: &str,
    ) -> Result<Option<(Tier, Arc<str>)>, Inconsistent> {
        let own = self.plan.spec(self.node_index(failed)?).retry_targets;
        // The graph's targets are on the main line; a branch would leave its fan-out for them.
        let graph = if cursor.is_branch() {
            RetryTargets::default()
        } else {
            self.plan.graph().retry_targets
        };
        let targets = [
            (Tier::RetryTarget, own.first),
            (Tier::FallbackRetryTarget, own.fallback),
            (Tier::RetryTarget, graph.first),
            (Tier::FallbackRetryTarget, graph.fallback),
        ];
        for (tier, target) in targets {
            if let Some(target) = target.map(|target| self.plan.spec(target))
                && self.may_enter(cursor, target)?
            {
                return Ok(Some((tier, Arc::clone(&target.id))));
            }
        }
        Ok(None)
    }

    /// The circuit breaker (`loop_restart_signature_limit`): the failure that ends the line because
    /// the same one has left `node` too often.
    pub(crate) fn circuit_breaker_tripped(
        &self,
        cursor: &Cursor,
        node: &str,
        failure: &Failure,
    ) -> Option<Failure> {
        if !matches!(failure.class, FailureClass::Deterministic | FailureClass::Structural) {
            return None;
        }
        let limit = self.plan.graph().signature_limit;
        let counts = cursor.breaker.get(node);
        let before = counts.and_then(|counts| counts.get(&failure.signature)).copied();
        let times = before.unwrap_or_default() + 1;
        (times >= limit).then(|| {
            let message = format!("the same failure {times} times: {}", failure.message);
            Failure { message, ..failure.clone() }
        })
    }

    /// The jump that an unmet goal gate asks for at the exit; a failure when it has no target left.
    pub(crate) fn unmet_gate(&self, cursor: &Cursor) -> Result<GoalGates, Inconsistent> {
        let ended = self.plan.goal_gates().iter().filter_map(|ix| {
            let node = self.plan.spec(*ix);
            cursor.ends.get(&node.id).map(|end| (end, node))
        });
        let unmet = ended
            .filter(|(end, _)| !end.status.is_good())
            .min_by_key(|(end, node)| (end.first_rank, &node.id));
        let Some((end, gate)) = unmet else { return Ok(GoalGates::Met) };
        let tripped =
            |failure: &Arc<Failure>| self.circuit_breaker_tripped(cursor, &gate.id, failure);
        if let Some(failure) = end.failure.as_ref().and_then(tripped) {
            return Ok(GoalGates::Failed(failure));
        }
        let Some((_, to)) = self.jump(cursor, &gate.id)? else {
            let message = format!(
                "goal gate `{}` ended {} and has no retry target left",
                gate.id, end.status
            );
            let message = match &end.failure {
                Some(failure) => format!("{message}: {}", failure.message),
                None => message,
            };
            let failure = Failure::new(FailureClass::Deterministic, message);
            return Ok(GoalGates::Failed(failure.signed(&gate.id)));
        };
        Ok(GoalGates::Retry(jump_to_gate_target(to, &gate.id)))
    }

    /// Begins the fan-out of the running parallel stage, again if it failed.
    pub(crate) fn fan_out(&mut self, branch: &Arc<str>) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let missing = || Inconsistent::new(format!("no fan-out begins on branch `{branch}`"));
        let stage = self.active_stage(branch).ok_or_else(missing)?;
        let ix = self.node_index(&stage.node)?;
        let node = plan.spec(ix);
        let parallel = node.parallel().ok_or_else(missing)?;
        let visit = stage.visit;
        if let Err(message) = may_fan_out(branch, &node.id) {
            return self.fail_stage(branch, node, FailureClass::Structural, message);
        }
        let planned = match parallel.for_each.as_ref() {
            Some(spec) => self.plan_elements(branch, ix, spec)?,
            None => self.plan_branches(branch, ix, node)?.map(|branches| (branches, None)),
        };
        let (branches, for_each) = match planned {
            Ok(planned) => planned,
            Err(SelectError::Needs(needs)) => {
                self.need(needs, READ_LIMIT);
                self.waiting_fan_out = Some(Arc::clone(branch));
                return Ok(());
            }
            Err(SelectError::Lookup(LookupError(message))) => {
                return self.fail_stage(branch, node, FailureClass::Deterministic, message);
            }
        };
        if branches.is_empty() && for_each.is_none() {
            let message = "no edge of the fan-out may be taken".to_owned();
            return self.fail_stage(branch, node, FailureClass::Structural, message);
        }
        let isolated = match self.is_isolated(parallel)? {
            Ok(isolated) => isolated,
            Err(why) => return self.fail_stage(branch, node, FailureClass::Structural, why),
        };
        let join = self.plan.join(ix).map(|ix| Arc::clone(&self.plan.spec(ix).id));
        let max_parallel = parallel.max_parallel;
        let body = EventBody::ParallelStarted { branches, join, max_parallel, for_each, isolated };
        self.emit_for(branch, node, visit, body);
        self.runnable_lines.push_back(Arc::clone(branch));
        Ok(())
    }

    /// Whether the branches of a fan-out have git worktrees of their own, or why they cannot. In a dry run
    /// nothing is executed that would need one.
    fn is_isolated(&self, spec: &ParallelSpec) -> Result<Result<bool, String>, Inconsistent> {
        let run = self.state.created()?;
        if spec.isolation == Isolation::None || run.dry_run {
            return Ok(Ok(false));
        }
        if run.worktree.is_some() {
            return Ok(Ok(true));
        }
        Ok(Err("isolation=worktree needs a run with a git worktree".to_owned()))
    }

    fn fail_stage(
        &mut self,
        branch: &Arc<str>,
        node: &NodeSpec,
        class: FailureClass,
        why: String,
    ) -> Result<(), Inconsistent> {
        let failure = Failure::new(class, why).signed(&node.id);
        self.complete(branch, node, Outcome::failed(failure).into())
    }

    /// The branches of a fan-out: its edges, in file order, whose condition holds or is absent.
    fn plan_branches(
        &self,
        branch: &str,
        ix: NodeIx,
        node: &NodeSpec,
    ) -> Result<Result<Vec<PlannedBranch>, SelectError>, Inconsistent> {
        let stage = self.running_stage(branch)?;
        let selected = match self.evaluate_edges(branch, ix, node, stage.visit)? {
            Ok(selected) => selected,
            Err(error) => return Ok(Err(error)),
        };
        let fan_out = fan_out_path(branch, stage);
        let mut planned: Vec<PlannedBranch> = Vec::new();
        let candidates = selected.candidates;
        // In a dry run nothing writes the values that conditions read: then it begins them all.
        let all = self.state.created()?.dry_run && !candidates.iter().any(|it| it.holds);
        let edges = self.plan.workflow().outgoing(ix).zip(candidates);
        for (edge, candidate) in edges.filter(|(_, candidate)| candidate.holds || all) {
            let same = planned.iter().filter(|branch| branch.target == candidate.to).count();
            let name = BranchPath::branch(&fan_out, &candidate.to, same);
            let edge = select::ordinal(&self.plan, ix, edge, |_| true);
            planned.push(PlannedBranch { branch: name, target: candidate.to, edge });
        }
        Ok(Ok(planned))
    }

    /// The branches of a fan-out that goes through a list. Another attempt has the list of the first.
    fn plan_elements(
        &mut self,
        branch: &str,
        ix: NodeIx,
        spec: &ForEachSpec,
    ) -> Result<Result<Planned, SelectError>, Inconsistent> {
        let stage = self.running_stage(branch)?;
        let fan_out = fan_out_path(branch, stage);
        let target =
            self.plan.outgoing(ix).next().map(|edge| Arc::clone(&self.plan.spec(edge.to).id));
        let missing = || Inconsistent::new(format!("no edge leads out of `{}`", stage.node));
        let target = target.ok_or_else(missing)?;
        let read = match &stage.for_each {
            Some(list) => Ok(ForEach::clone(list)),
            None => ListQuery {
                node: &stage.node,
                spec,
                run: self.state.created()?,
                context: &self.cursor(branch)?.context,
                values: Values { read: &self.values, pending: &self.commit.blobs },
            }
            .read(),
        };
        Ok(read.map(|mut list| {
            let blobs = &mut self.commit.blobs;
            let branches = for_each::branches(&mut list, &fan_out, &target, blobs);
            (branches, Some(Arc::new(list)))
        }))
    }

    /// The running fan-out of this line.
    pub(crate) fn fan_out_at(&self, branch: &str) -> Result<&FanOut, Inconsistent> {
        match &self.cursor(branch)?.position {
            Position::Fanned(fan) => Ok(fan),
            _ => Err(Inconsistent::new(format!("no fan-out is running on branch `{branch}`"))),
        }
    }

    /// The running fan-out that a branch belongs to.
    pub(crate) fn parent_fan_out(&self, branch: &str) -> Result<&FanOut, Inconsistent> {
        self.fan_out_at(BranchPath::new(branch).parent().as_str())
    }

    /// Starts the branches of a fan-out that have a slot; joins when its policy says so.
    pub(crate) fn start_or_join_branches(&mut self, branch: &Arc<str>) -> Result<(), Inconsistent> {
        let plan = Arc::clone(&self.plan);
        let fan = self.fan_out_at(branch)?;
        let node = plan.spec(self.node_index(&fan.stage.node)?);
        let policy = join_policy(node)?;
        if let Some(status) = fan.joined(policy) {
            let values = Values { read: &self.values, pending: &self.commit.blobs };
            let missing = join::unread_outputs(fan, &self.state, values);
            if !missing.is_empty() {
                let limit = join::inline_limit(fan);
                self.need(missing, limit);
                self.runnable_lines.push_front(Arc::clone(branch));
                return Ok(());
            }
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
                self.runnable_lines.push_back(name);
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
        let node = plan.spec(self.node_index(&fan.stage.node)?);
        let visit = fan.stage.visit;
        // The time in which no driver ran it does not count.
        let undriven_ms = self.state.undriven_ms.saturating_sub(fan.stage.undriven_ms);
        let started_ms = fan.stage.started_ms.saturating_add_unsigned(undriven_ms);
        let open: Vec<Arc<str>> = fan.open().map(Arc::clone).collect();
        for name in open {
            let body = EventBody::BranchCompleted {
                status: Status::Skipped,
                failure: result.as_ref().err().or(self.waiting_branches.get(&name)).cloned(),
                canceled: true,
                candidates: Vec::new(),
            };
            self.emit(&name, body);
        }
        let values = Values { read: &self.values, pending: &self.commit.blobs };
        let fan_out = self.fan_out_at(branch)?;
        let policy = join_policy(node)?;
        let mut outcome = join::outcome(fan_out, &self.state, values, result, policy);
        outcome.duration_ms = duration_ms(started_ms, self.steady_ms());
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
        // A fan-out that was joined has results; one that could not begin has none.
        let joined = self.cursor(branch)?.last.as_ref().is_some_and(|last| {
            last.outcome().context_updates.contains_key(keys::PARALLEL_RESULTS)
        });
        if let Some(join) = self.plan.join(ix).filter(|_| joined) {
            let to = Arc::clone(&self.plan.workflow().node(join).id);
            let choice = jump(Tier::Join, to, None, Vec::new());
            self.follow_unless_stopped(branch, node, visit, choice)
        } else {
            self.no_edge(branch, node, visit, Vec::new())
        }
    }

    /// Ends a branch with the status of its last stage, or with a failure of the engine's own.
    pub(crate) fn end_branch(
        &mut self,
        branch: &Arc<str>,
        failure: Option<Failure>,
    ) -> Result<(), Inconsistent> {
        self.end_branch_at(branch, failure, Vec::new())
    }

    /// Ends a line at a stage that none of these edges lead on from.
    fn fail_choice(
        &mut self,
        branch: &Arc<str>,
        failure: Failure,
        candidates: Vec<Candidate>,
    ) -> Result<(), Inconsistent> {
        if !is_main(branch) {
            return self.end_branch_at(branch, Some(failure), candidates);
        }
        let body = self.run_failed(failure, candidates);
        self.emit(branch, body);
        Ok(())
    }

    fn end_branch_at(
        &mut self,
        branch: &Arc<str>,
        failure: Option<Failure>,
        candidates: Vec<Candidate>,
    ) -> Result<(), Inconsistent> {
        self.parent_fan_out(branch)?;
        let last = self.cursor(branch)?.last.as_ref();
        let status = match (&failure, last) {
            (Some(_), _) => Status::Failed,
            (None, Some(last)) => last.outcome().status,
            (None, None) => Status::Succeeded,
        };
        let own = last.and_then(|last| last.outcome().failure.clone());
        let failure = failure.or(own).filter(|_| status == Status::Failed);
        let body = EventBody::BranchCompleted { status, failure, canceled: false, candidates };
        self.emit(branch, body);
        self.runnable_lines.push_back(Arc::from(BranchPath::new(branch).parent().as_str()));
        Ok(())
    }
}

fn join_policy(node: &NodeSpec) -> Result<JoinPolicy, Inconsistent> {
    let missing = || Inconsistent::new(format!("`{}` is not a parallel node", node.id));
    Ok(node.parallel().ok_or_else(missing)?.join_policy)
}

/// The failure of the last stage of a line, if it failed.
fn last_failure(cursor: &Cursor) -> Option<Failure> {
    let outcome = cursor.last.as_ref()?.outcome();
    let failure = || Failure::new(FailureClass::Deterministic, "the stage failed");
    (outcome.status == Status::Failed).then(|| outcome.failure.clone().unwrap_or_else(failure))
}

/// The jump from an exit to the retry target of an unmet goal gate.
pub(crate) fn jump_to_gate_target(to: Arc<str>, gate: &Arc<str>) -> EdgeChoice {
    jump(Tier::GoalGate, to, Some(Arc::clone(gate)), Vec::new())
}

fn jump(
    tier: Tier,
    to: Arc<str>,
    gate: Option<Arc<str>>,
    candidates: Vec<Candidate>,
) -> EdgeChoice {
    EdgeChoice {
        to,
        label: None,
        edge: None,
        tier,
        random: false,
        restart: false,
        gate,
        failure: None,
        overrides: Vec::new(),
        candidates,
    }
}

/// The branches of a fan-out, and the list that they are for.
type Planned = (Vec<PlannedBranch>, Option<Arc<ForEach>>);

/// The beginning of the paths of the branches of a fan-out.
fn fan_out_path(branch: &str, stage: &ActiveStage) -> String {
    BranchPath::new(branch).fan_out(&stage.node, stage.visit, stage.attempt)
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
