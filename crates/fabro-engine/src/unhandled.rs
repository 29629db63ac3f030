//! Which failures count against a run: those that nothing handled, and that `on_failure`,
//! `allow_partial` or `auto_status` do not allow.

use std::sync::Arc;

use fabro_events::{EdgeChoice, StageFailure, Tier};
use fabro_graph::NodeIx;
use fabro_plan::{JoinPolicy, NodeSpec, OnFailure};
use fabro_types::{BranchPath, Failure, NodeKind, Status};

use crate::cursor::{Cursor, Position, last_failed};
use crate::inconsistent::Inconsistent;
use crate::line::MAIN;
use crate::machine::Machine;
use crate::open_failures::{OpenFailure, handles_failure};

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

    /// The failure that ends the line instead of this choice, because `on_failure=stop` says so.
    pub(crate) fn stopped_by(
        &self,
        branch: &str,
        choice: &EdgeChoice,
    ) -> Result<Option<Failure>, Inconsistent> {
        let cursor = self.cursor(branch)?;
        if handles_failure(choice) || cursor.open_failures.iter().next().is_none() {
            return Ok(None);
        }
        let target = self.node_index(&choice.to)?;
        if self.passes_failures_on(target, choice.tier)
            && self.plan.deciding_edges(target).any(|edge| edge.condition.is_some())
        {
            return Ok(None);
        }
        let Some(last) = &cursor.last else { return Ok(None) };
        let leaving = [Some(&last.node), cursor.joined.as_ref()];
        let leaves = |stage: &OpenFailure| {
            let mut nodes = leaving.iter().flatten();
            nodes.any(|node| stage.stage.node == **node || stage.is_under(node))
        };
        let open = cursor.open_failures.iter();
        let stops = open.filter(|open| {
            leaves(open) && !self.is_allowed(cursor, open) && self.stops(cursor, open)
        });
        let first = stops.min_by_key(|open| (!open.is_under(&last.node), open.seq));
        Ok(first.map(|open| open.stage.failure.clone()))
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
        let cause = first.or_else(of_last).or_else(of_loop).or_else(|| self.gate_cause(main));
        let cause = cause.or_else(|| self.dead_end_cause(main));
        cause.map(|stage| Box::new(Arc::unwrap_or_clone(stage)))
    }

    /// The last failure before a node without outgoing edges, which is where its edge led to: such a node is how
    /// people write that a failure ends the run.
    pub(crate) fn dead_end_cause(&self, cursor: &Cursor) -> Option<Arc<StageFailure>> {
        let (last, _) = self.plan.node(&cursor.last.as_ref()?.node)?;
        let is_dead_end = self.plan.outgoing(last).len() == 0;
        is_dead_end.then(|| last_failed(cursor.history.iter().rev())).flatten()
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
        node.on_failure == Some(OnFailure::Continue)
            || (open.status == Status::PartiallySucceeded && lenient(node))
            || fan_outs().any(|it| it.on_failure == Some(OnFailure::Continue) || lenient(it))
            || fan_outs().any(is_met)
            || (self.plan.graph().on_failure == Some(OnFailure::Continue)
                && !std::iter::once(node).chain(fan_outs()).any(says_stop))
    }

    /// Whether the failure ends the run. A goal gate has its own rule for that.
    fn stops(&self, cursor: &Cursor, open: &OpenFailure) -> bool {
        let node = self.plan.find(&open.stage.node);
        let graph = self.plan.graph().on_failure == Some(OnFailure::Stop)
            && node.is_none_or(|node| !node.goal_gate);
        graph || node.into_iter().chain(self.joined_fan_outs(cursor, open)).any(says_stop)
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
            NodeKind::FanIn => tier == Tier::Join,
            _ => false,
        }
    }
}

fn says_stop(node: &NodeSpec) -> bool {
    node.on_failure == Some(OnFailure::Stop)
}

/// A failure of the engine's own, with the failure of a stage that led to it.
pub(crate) fn with_cause(message: String, cause: Option<&StageFailure>) -> String {
    match cause {
        Some(cause) => format!("{message}; {cause}"),
        None => message,
    }
}
