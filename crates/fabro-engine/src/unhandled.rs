//! Which failures count against a run: those that nothing handled, and that `on_failure`,
//! `allow_partial` or `auto_status` do not allow.

use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_condition::Condition;
use fabro_events::{
    EdgeChoice, Event, EventBody, FailureHandling, OverriddenCheck, StageFailure, Tier,
};
use fabro_graph::NodeIx;
use fabro_plan::{EdgeSpec, JoinPolicy, NodeSpec};
use fabro_types::{BlobRef, BranchPath, Failure, NodeKind, OnFailure, Status};

use crate::cursor::{Cursor, Position, last_failed};
use crate::inconsistent::Inconsistent;
use crate::input::Finished;
use crate::line::{MAIN, is_main};
use crate::machine::{Machine, completed, entry_for};
use crate::open_failures::{OpenFailure, is_jump};
use crate::select::{SelectError, Selected};

impl Cursor {
    /// The failures that a person who decides here should know of: those that nothing has handled, the first
    /// cause first, then those that edges have handled since the last gate. A node that ran again and ended
    /// well is not among them.
    pub fn failures_before(&self) -> Vec<Arc<StageFailure>> {
        let mut open: Vec<&OpenFailure> = self.open_failures.iter().collect();
        open.sort_by_key(|open| open.seq);
        let is_cause =
            |one: &&&OpenFailure| !open.iter().any(|other| other.is_under(&one.stage.node));
        let mut failures: Vec<_> =
            open.iter().filter(is_cause).map(|open| Arc::clone(&open.stage)).collect();
        let since_gate =
            self.history.iter().rev().take_while(|record| record.handler != NodeKind::Human);
        let handled: Vec<_> = since_gate
            .filter(|record| self.ends.get(&record.node).is_some_and(|end| !end.status.is_good()))
            .filter_map(|record| last_failed(std::iter::once(record)))
            .collect();
        for failure in handled.into_iter().rev() {
            let is_named = failures.iter().any(|other| {
                let branch = BranchPath::new(other.branch.as_deref().unwrap_or_default());
                other.node == failure.node
                    || branch.fan_outs().any(|outer| outer.node() == &*failure.node)
            });
            if !is_named {
                failures.push(failure);
            }
        }
        failures
    }
}

impl Machine {
    /// The failures of the main line that nothing has handled so far, the first cause first.
    pub fn unhandled_failures(&self) -> Vec<Arc<StageFailure>> {
        self.state.main().map(|main| self.unhandled(main)).unwrap_or_default()
    }

    /// The failures of a line that nothing handled, the first cause first. A fan-out that failed
    /// because of its branches is not named beside them.
    pub(crate) fn unhandled(&self, cursor: &Cursor) -> Vec<Arc<StageFailure>> {
        let mut open: Vec<&OpenFailure> =
            cursor.open_failures.iter().filter(|open| !self.is_allowed(cursor, open)).collect();
        open.sort_by_key(|open| open.seq);
        let is_cause =
            |one: &&&OpenFailure| !open.iter().any(|other| other.is_under(&one.stage.node));
        open.iter().filter(is_cause).map(|open| Arc::clone(&open.stage)).collect()
    }

    /// Adds to the choice how it handles leaving failures, and which checks a person overrides by it.
    pub(crate) fn with_handling(
        &self,
        branch: &str,
        from: NodeIx,
        choice: EdgeChoice,
    ) -> Result<EdgeChoice, Inconsistent> {
        let cursor = self.cursor(branch)?;
        let overrides = self.overrides(cursor, from, &choice);
        let leaves = !cursor.open_failures.is_empty();
        let failure = leaves.then(|| self.handling(branch, cursor, from, &choice)).transpose()?;
        Ok(EdgeChoice { failure, overrides, ..choice })
    }

    /// Whether the chosen edge handles the failure: its condition matched, the stage itself asked for
    /// it, or it is the default next to edges that read the result.
    fn handling(
        &self,
        branch: &str,
        cursor: &Cursor,
        from: NodeIx,
        choice: &EdgeChoice,
    ) -> Result<FailureHandling, Inconsistent> {
        let target = self.plan.spec(self.node_index(&choice.to)?);
        let is_end = match target.exit() {
            Some(exit) => exit.status.is_none(),
            None => {
                !is_main(branch) && self.parent_fan_out(branch)?.join.as_ref() == Some(&target.id)
            }
        };
        if is_end {
            return Ok(FailureHandling::AtExit);
        }
        // After a join that has succeeded, its own outcome says nothing about the failed branches.
        let is_good = cursor.last.as_ref().is_some_and(|last| last.outcome().status.is_good());
        let of_branches = cursor.joined.is_some() && is_good;
        let reads_result = |edge: &EdgeSpec| {
            let condition = edge.condition.as_ref().map(|condition| &condition.parsed);
            let reads_branches = |condition: &Condition| {
                cursor.joined.is_some() && condition.keys().any(|key| key.starts_with("parallel."))
            };
            condition.is_some_and(|it| it.reads_result() && !of_branches || reads_branches(it))
        };
        let is_for_success = |edge: &EdgeSpec| {
            edge.condition.as_ref().is_some_and(|condition| {
                Some(&*condition.text) == choice.taken_condition()
                    && !condition.parsed.possible_after(Status::Failed).holds
            })
        };
        let handles = match choice.tier {
            Tier::Unconditional => self.plan.outgoing(from).any(reads_result),
            Tier::Condition if of_branches => !self.plan.outgoing(from).any(is_for_success),
            Tier::Join => false,
            _ => true,
        };
        let handles = handles || is_jump(choice);
        Ok(if handles { FailureHandling::Handled } else { FailureHandling::Unhandled })
    }

    /// The failed checks that the person who chose this edge of a gate knew about: goal gates, and the
    /// stage or branches before the gate.
    fn overrides(
        &self,
        cursor: &Cursor,
        from: NodeIx,
        choice: &EdgeChoice,
    ) -> Vec<OverriddenCheck> {
        let gate = self.plan.spec(from);
        let Some(by) = cursor.answered_by.as_ref().filter(|_| gate.kind == NodeKind::Human) else {
            return Vec::new();
        };
        if cursor.last.as_ref().is_none_or(|last| !last.outcome().status.is_good()) {
            return Vec::new();
        }
        let mut checks: Vec<Arc<StageFailure>> =
            self.plan.goal_gates().iter().filter_map(|ix| self.failed_gate(cursor, *ix)).collect();
        let before = cursor.history.iter().rev().skip(1);
        let mut before =
            before.skip_while(|record| matches!(record.handler, NodeKind::Wait | NodeKind::FanIn));
        if let Some(record) = before.next().filter(|record| record.handler != NodeKind::Human) {
            let is_under = |open: &&OpenFailure| open.is_under(&record.node);
            let branches = cursor.open_failures.iter().filter(is_under);
            let own = last_failed(std::iter::once(record));
            checks.extend(branches.map(|open| Arc::clone(&open.stage)).chain(own));
        }
        let mut seen = BTreeSet::new();
        checks.retain(|check| seen.insert((Arc::clone(&check.node), check.branch.clone())));
        let overridden = |check| OverriddenCheck {
            check: Arc::unwrap_or_clone(check),
            gate: Arc::clone(&gate.id),
            choice: choice.label.clone().unwrap_or_else(|| Arc::clone(&choice.to)),
            by: Arc::clone(by),
        };
        checks.into_iter().map(overridden).collect()
    }

    fn failed_gate(&self, cursor: &Cursor, gate: NodeIx) -> Option<Arc<StageFailure>> {
        let node = &self.plan.spec(gate).id;
        let end = cursor.ends.get(node).filter(|end| end.status == Status::Failed)?;
        Some(Arc::new(StageFailure {
            node: Arc::clone(node),
            visit: cursor.visits_of(node).max(1),
            branch: None,
            failure: Failure::clone(end.failure.as_ref()?),
        }))
    }

    /// The failure that ends the line instead of this choice, because `on_failure=stop` says so.
    pub(crate) fn stopped_by(
        &self,
        branch: &str,
        choice: &EdgeChoice,
    ) -> Result<Option<Failure>, Inconsistent> {
        let cursor = self.cursor(branch)?;
        let at_exit = match choice.failure {
            None | Some(FailureHandling::Handled) => return Ok(None),
            Some(FailureHandling::AtExit) => true,
            Some(FailureHandling::Unhandled) => false,
        };
        let target = self.node_index(&choice.to)?;
        if self.passes_failures_on(target, choice.tier) {
            return Ok(None);
        }
        let Some(last) = &cursor.last else { return Ok(None) };
        let leaving = [Some(&last.node), cursor.joined.as_ref()];
        let leaves = |stage: &&OpenFailure| {
            let mut nodes = leaving.iter().flatten();
            nodes.any(|node| stage.stage.node == **node || stage.is_under(node))
        };
        let open = cursor.open_failures.iter().filter(leaves);
        let reached_exit = cursor.open_failures.leaving().filter(|_| at_exit);
        let stops = open
            .chain(reached_exit)
            .filter(|open| !self.is_allowed(cursor, open) && self.stops(cursor, open, choice.tier));
        let first = stops.min_by_key(|open| (!open.is_under(&last.node), open.seq));
        Ok(first.map(|open| open.stage.failure.clone()))
    }

    /// The effective `on_failure` of a node. The failure of a goal gate is a success only if the node itself says so.
    pub(crate) fn on_failure(&self, node: &NodeSpec) -> OnFailure {
        let of_graph = self.plan.graph().on_failure;
        let of_graph = of_graph.filter(|it| *it != OnFailure::Succeed || !node.goal_gate);
        node.on_failure.or(of_graph).unwrap_or(OnFailure::Route)
    }

    /// Whether the last stage failed with `on_failure=exit`, which takes no plain edge.
    pub(crate) fn avoids_plain_edges(&self, cursor: &Cursor) -> Result<bool, Inconsistent> {
        let Some(last) = &cursor.last else { return Ok(false) };
        let spec = self.plan.spec(self.node_index(&last.node)?);
        Ok(last.outcome().status == Status::Failed && self.on_failure(spec) == OnFailure::Exit)
    }

    /// Whether the running stage, if it ends like this, takes an edge that is not a plain one, directly
    /// or after conditional nodes. Otherwise returns the blobs that have to be read to decide.
    pub(crate) fn takes_specific_edge(
        &self,
        branch: &str,
        node: &NodeSpec,
        finished: &Finished,
    ) -> Result<Result<bool, BTreeSet<BlobRef>>, Inconsistent> {
        if node.kind == NodeKind::Parallel {
            return Ok(Ok(false));
        }
        let stage = self.running_stage(branch)?;
        let visit = stage.visit;
        let end = Arc::new(completed(stage, finished.outcome.clone().into()));
        let body = EventBody::StageFailed(Arc::clone(&end));
        let event = Event {
            run_id: self.state.run_id,
            seq: self.state.last_seq + 1,
            ts_ms: self.now_ms,
            entry: entry_for(branch, node, visit, body),
        };
        let mut cursor = self.cursor(branch)?.clone();
        cursor.ended(&event, &end)?;
        let mut at = self.node_index(&node.id)?;
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            match self.evaluate_edges_of(&cursor, at, self.plan.spec(at), visit)? {
                Err(SelectError::Needs(needs)) => return Ok(Err(needs)),
                // The line ends with that error.
                Err(SelectError::Lookup(_)) => return Ok(Ok(true)),
                Ok(Selected { edge: None, .. }) => return Ok(Ok(false)),
                Ok(Selected { edge: Some(choice), .. }) if choice.tier != Tier::Unconditional => {
                    return Ok(Ok(true));
                }
                Ok(Selected { edge: Some(choice), .. }) => {
                    let target = self.node_index(&choice.to)?;
                    if self.plan.spec(target).kind != NodeKind::Conditional {
                        return Ok(Ok(false));
                    }
                    at = target;
                }
            }
        }
        Ok(Ok(false))
    }

    /// The stage failure that a failed run began with, as far as there is one: the first that nothing
    /// handled, else the last stage's own, else the last one of a loop that may not continue.
    pub(crate) fn first_cause(&self) -> Option<Box<StageFailure>> {
        let main = self.cursor(MAIN).ok()?;
        let first = self.unhandled(main).into_iter().next();
        let of_last = || last_failed(main.history.iter().rev().take(1));
        let of_loop = || match &main.position {
            Position::Ready { node, .. } => self.loop_cause(main, node),
            _ => None,
        };
        let leaving = || main.open_failures.leaving().min_by_key(|open| open.seq);
        let of_leaving = || leaving().map(|open| Arc::clone(&open.stage));
        let cause = first
            .or_else(of_last)
            .or_else(of_leaving)
            .or_else(of_loop)
            .or_else(|| self.gate_cause(main));
        let cause = cause.or_else(|| self.dead_end_cause(main));
        cause.map(|stage| Box::new(Arc::unwrap_or_clone(stage)))
    }

    /// The failure that led to a dead end, a usual way to end a run as failed. Before an exit only the stage that
    /// led there counts: earlier failures were handled.
    pub(crate) fn dead_end_cause(&self, cursor: &Cursor) -> Option<Arc<StageFailure>> {
        let (last, _) = self.plan.node(&cursor.last.as_ref()?.node)?;
        let records = cursor.history.iter().rev();
        if self.plan.spec(last).kind == NodeKind::Exit {
            let passes = [NodeKind::Exit, NodeKind::Conditional, NodeKind::Wait];
            return last_failed(records.skip_while(|it| passes.contains(&it.handler)).take(1));
        }
        let is_dead_end = self.plan.outgoing(last).len() == 0;
        is_dead_end.then(|| last_failed(records)).flatten()
    }

    /// The failure of the goal gate that was visited first of those that ended badly. Of one in a
    /// branch that its fan-out did without, nothing else is left.
    fn gate_cause(&self, main: &Cursor) -> Option<Arc<StageFailure>> {
        let gates = self.plan.goal_gates().iter().map(|ix| &self.plan.spec(*ix).id);
        let ends = gates.filter_map(|id| Some((id, main.ends.get(id)?)));
        let unmet = ends.filter(|(_, end)| !end.status.is_good());
        let (id, end) = unmet.min_by_key(|(id, end)| (end.first_rank, *id))?;
        Some(Arc::new(StageFailure {
            node: Arc::clone(id),
            visit: main.visits_of(id).max(1),
            branch: None,
            failure: Failure::clone(end.failure.as_ref()?),
        }))
    }

    /// The failure that kept a loop running whose node `id` may not be entered again: the first that
    /// nothing handled, else the last one since the node was entered before, else the one that the line
    /// restarted after.
    pub(crate) fn loop_cause(&self, cursor: &Cursor, id: &str) -> Option<Arc<StageFailure>> {
        let first = self.unhandled(cursor).into_iter().next();
        first.or_else(|| {
            let records = || cursor.history.iter().rev();
            let since = records().take_while(|record| *record.node != *id).count();
            let restarted_by =
                || cursor.restarted_by.clone().filter(|_| since == cursor.history.len());
            last_failed(records().take(since + 1)).or_else(restarted_by)
        })
    }

    /// Whether attributes of the node, of a fan-out on this line that it happened in, or of the graph
    /// allow the failure; or such a fan-out has what its join policy asks for.
    fn is_allowed(&self, cursor: &Cursor, open: &OpenFailure) -> bool {
        let Some(node) = self.plan.find(&open.stage.node) else { return false };
        let lenient = |node: &NodeSpec| node.allow_partial || node.auto_status;
        let fan_outs = || self.joined_fan_outs(cursor, open);
        let is_met = |fan_out: &NodeSpec| {
            let policy = fan_out.parallel().map(|parallel| parallel.join_policy);
            policy.is_some_and(JoinPolicy::allows_failed_branches)
                && !cursor.open_failures.iter().any(|other| other.stage.node == fan_out.id)
        };
        let allows = |node: &NodeSpec| node.on_failure.is_some_and(OnFailure::allows_success);
        allows(node)
            || (open.status == Status::PartiallySucceeded && lenient(node))
            || fan_outs().any(|it| allows(it) || lenient(it))
            || fan_outs().any(is_met)
            || (self.graph_decides(cursor, open)
                && self.plan.graph().on_failure.is_some_and(OnFailure::allows_success))
    }

    /// Whether only the graph's `on_failure` applies: neither the node nor its fan-outs set it.
    fn graph_decides(&self, cursor: &Cursor, open: &OpenFailure) -> bool {
        let node = self.plan.find(&open.stage.node);
        node.into_iter().chain(self.joined_fan_outs(cursor, open)).all(|it| it.on_failure.is_none())
    }

    /// Whether the failure ends the run if it leaves by an edge of this tier. Goal gates have their own
    /// rule.
    fn stops(&self, cursor: &Cursor, open: &OpenFailure, tier: Tier) -> bool {
        let node = self.plan.find(&open.stage.node);
        let graph = self.plan.graph().on_failure == Some(OnFailure::Stop)
            && self.graph_decides(cursor, open)
            && node.is_none_or(|node| !node.goal_gate);
        let says_stop = |node: &NodeSpec| node.on_failure == Some(OnFailure::Stop);
        // The edges of a fan-out start its branches, so none of them handles its failure.
        let avoids_join = |node: &NodeSpec| {
            tier == Tier::Join
                && open.status == Status::Failed
                && node.kind == NodeKind::Parallel
                && self.on_failure(node) == OnFailure::Exit
        };
        graph
            || node.is_some_and(avoids_join)
            || node.into_iter().chain(self.joined_fan_outs(cursor, open)).any(says_stop)
    }

    /// The fan-outs between this line and the branch that the failure happened in.
    fn joined_fan_outs<'a>(
        &'a self,
        cursor: &Cursor,
        open: &'a OpenFailure,
    ) -> impl Iterator<Item = &'a NodeSpec> {
        let depth = BranchPath::new(&cursor.branch).depth();
        let fan_outs = BranchPath::new(open.branch()).fan_outs().skip(depth);
        fan_outs.filter_map(|fan_out| self.plan.find(fan_out.node()))
    }

    /// Whether the edges of the node are there for the failure of the stage before it.
    fn passes_failures_on(&self, node: NodeIx, tier: Tier) -> bool {
        match self.plan.spec(node).kind {
            NodeKind::Conditional => true,
            NodeKind::FanIn => {
                let mut edges = self.plan.deciding_edges(node);
                tier == Tier::Join && edges.any(|edge| edge.condition.is_some())
            }
            _ => false,
        }
    }
}

/// A failure of the engine's own, with the failure of a stage that led to it.
pub(crate) fn with_cause(message: String, cause: Option<&StageFailure>) -> String {
    match cause {
        Some(cause) => format!("{message}; {cause}"),
        None => message,
    }
}
