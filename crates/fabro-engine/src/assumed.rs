//! Which edge a dry run takes, where nothing writes the values that conditions read.
//!
//! A condition that such a value decides may hold or not. A dry run takes the edge that the rules
//! select, as long as that leads to the exit; where they select none, or the same one again without
//! need, it takes the one that it has taken least often.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fabro_condition::{Clause, Operator, Possible};
use fabro_context::keys;
use fabro_events::{Candidate, EdgeChoice, Tier};
use fabro_graph::{EdgeIx, NodeIx};
use fabro_plan::Plan;
use fabro_types::Status;

use crate::cursor::{Cursor, LastStage};
use crate::inconsistent::Inconsistent;
use crate::limits::{DRY_RUN_VISITS, visit_limit};
use crate::line::is_main;
use crate::machine::Machine;
use crate::select::{self, Selected, place_of};

/// Keys whose values a dry run knows, besides `outcome` and those that are not empty.
const KNOWN: [&str; 7] = [
    keys::INTERNAL_PREFIX,
    keys::GRAPH_PREFIX,
    keys::GATE_PREFIX,
    keys::CURRENT_NODE,
    keys::LAST_STAGE,
    keys::FAILURE_CLASS,
    keys::FAILURE_SIGNATURE,
];

/// Keys that simulated stages write, with values that mean nothing.
const SIMULATED: [&str; 5] = [
    keys::COMMAND_PREFIX,
    keys::RESPONSE_PREFIX,
    keys::OUTPUT_PREFIX,
    keys::LAST_RESPONSE,
    keys::CHILD_PREFIX,
];

impl Machine {
    /// The selected edge of a dry run, or another one in its place.
    pub(crate) fn assume(
        &self,
        branch: &str,
        node: NodeIx,
        mut selected: Selected,
    ) -> Result<Selected, Inconsistent> {
        let cursor = self.cursor(branch)?;
        let failed = cursor.last.as_ref().map(LastStage::outcome);
        if failed.is_some_and(|outcome| outcome.status == Status::Failed) {
            return Ok(selected);
        }
        let place = selected.edge.as_ref().and_then(place_of);
        let is_only_one = selected.candidates.len() < 2;
        if selected.candidates.is_empty() || (is_only_one && selected.edge.is_some()) {
            return Ok(selected);
        }
        let ends = self.line_ends(branch)?;
        let edges: Vec<EdgeIx> = self.plan.workflow().outgoing(node).collect();
        let query = Query {
            leads_on: leading_to(&self.plan, cursor, &ends),
            plan: &self.plan,
            cursor,
            node,
            edges: &edges,
            candidates: &selected.candidates,
        };
        if let Some(assumed) = query.best(place).filter(|best| Some(*best) != place) {
            selected.edge = Some(query.choice(assumed));
        }
        Ok(selected)
    }

    /// Where a line can end.
    fn line_ends(&self, branch: &str) -> Result<Vec<NodeIx>, Inconsistent> {
        let workflow = self.plan.workflow();
        let exits = workflow.exits();
        if is_main(branch) {
            return Ok(exits.collect());
        }
        if let Some(join) = &self.parent_fan_out(branch)?.join {
            return Ok(vec![self.node_index(join)?]);
        }
        let dead_ends = workflow.node_indices().filter(|ix| workflow.outgoing(*ix).len() == 0);
        Ok(exits.chain(dead_ends).collect())
    }
}

/// The nodes from which a line can still come to one of its ends.
fn leading_to(plan: &Plan, cursor: &Cursor, ends: &[NodeIx]) -> BTreeSet<NodeIx> {
    let workflow = plan.workflow();
    let may_enter = |ix: NodeIx| {
        let spec = plan.spec(ix);
        let limit = visit_limit(spec, true).unwrap_or(DRY_RUN_VISITS);
        cursor.visits_of(&spec.id) < limit
    };
    let mut found: BTreeSet<NodeIx> = ends.iter().copied().collect();
    let mut queue: VecDeque<NodeIx> = ends.iter().copied().collect();
    while let Some(node) = queue.pop_front() {
        for edge in workflow.incoming(node) {
            let from = workflow.edge(edge).from;
            if may_enter(from) && found.insert(from) {
                queue.push_back(from);
            }
        }
    }
    found
}

/// A choice among the edges of a node.
struct Query<'a> {
    plan: &'a Plan,
    cursor: &'a Cursor,
    node: NodeIx,
    /// In file order, as the candidates.
    edges: &'a [EdgeIx],
    candidates: &'a [Candidate],
    /// The nodes from which the line can come to its end.
    leads_on: BTreeSet<NodeIx>,
}

impl Query<'_> {
    /// The place of the edge to take; `None` when none can be.
    fn best(&self, selected: Option<usize>) -> Option<usize> {
        let Some(selected) = selected else {
            let possible = |at: &usize| self.possible(*at).holds;
            let leads = |at: &usize| possible(at) && self.leads_on(*at);
            return self.least_taken(leads).or_else(|| self.least_taken(possible));
        };
        let taken = self.taken(selected);
        let is_certain = !self.possible(selected).fails;
        let leads = self.leads_on(selected);
        if leads && (is_certain || taken == 0) {
            return Some(selected);
        }
        // An edge that has been taken as often is no better, unless this one leads nowhere.
        let is_better = |at: &usize| self.leads_on(*at) && (!leads || self.taken(*at) < taken);
        let possible = self.least_taken(|at| self.possible(*at).holds && is_better(at));
        let any = || if leads { None } else { self.least_taken(is_better) };
        possible.or_else(any).or(Some(selected))
    }

    /// The least taken of some edges, and of those the first in the file.
    fn least_taken(&self, is_one: impl Fn(&usize) -> bool) -> Option<usize> {
        (0..self.edges.len()).filter(is_one).min_by_key(|at| (self.taken(*at), *at))
    }

    fn taken(&self, at: usize) -> u32 {
        let key = (Arc::clone(&self.plan.spec(self.node).id), at);
        self.cursor.taken.get(&key).copied().unwrap_or_default()
    }

    fn leads_on(&self, at: usize) -> bool {
        self.leads_on.contains(&self.plan.edge(self.edges[at]).to)
    }

    /// Whether a real run can take the edge, and whether it can do without.
    fn possible(&self, at: usize) -> Possible {
        let Some(condition) = &self.plan.edge(self.edges[at]).condition else {
            return Possible { holds: true, fails: true };
        };
        let clauses = condition.parsed.clauses();
        let results = &self.candidates[at].clauses;
        condition.parsed.possible(|clause| {
            let result = results.get(clause)?;
            is_known(clauses.get(clause)?, &result.value).then_some(result.holds)
        })
    }

    fn choice(&self, at: usize) -> EdgeChoice {
        let edge = self.plan.edge(self.edges[at]);
        let alike = |other: &fabro_plan::EdgeSpec| other.label == edge.label;
        EdgeChoice {
            to: Arc::clone(&self.plan.spec(edge.to).id),
            label: edge.label.clone(),
            edge: select::ordinal(self.plan, self.node, self.edges[at], alike),
            tier: Tier::Assumed,
            random: false,
            restart: edge.loop_restart,
            gate: None,
            failure: None,
            overrides: Vec::new(),
            candidates: self.candidates.to_vec(),
        }
    }
}

/// Whether a real run would find the same value.
fn is_known(clause: &Clause, value: &str) -> bool {
    let key = clause.context_key();
    let starts_with = |prefix: &&str| key.starts_with(*prefix);
    if key == keys::OUTCOME {
        // A model may end a stage with a word of the workflow's own.
        let compares = matches!(clause.operator(), Some(Operator::Equal | Operator::NotEqual));
        return !compares || clause.value().is_none_or(|word| Status::parse(word).is_some());
    }
    KNOWN.iter().any(&starts_with) || (!value.is_empty() && !SIMULATED.iter().any(starts_with))
}
