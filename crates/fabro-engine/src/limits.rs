//! The limits of a run: the budget (`max_cost`, `max_tokens_total`), and the visit limit of a node (`max_visits`).

use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_events::Spent;
use fabro_plan::{NodeSpec, Plan, VisitLimit};
use fabro_types::{Failure, FailureClass, NodeKind};

use crate::cursor::Cursor;
use crate::inconsistent::Inconsistent;
use crate::machine::Machine;
use crate::state::RunState;
use crate::unhandled::with_cause;

/// Nodes that a line may pass one after the other without a stage that does something.
const MAX_PASSED: usize = 1_000;

/// The visit limit of a dry run, where nothing a stage would write ends a loop.
pub(crate) const DRY_RUN_VISITS: u32 = 10;

impl Machine {
    /// True when a spending limit (`max_cost`, `max_tokens_total`) was reached: the run pauses, and no
    /// stage starts until a resume raises it.
    pub fn over_budget(&self) -> bool {
        let Spent { cost_usd, tokens } = self.state.spent();
        let (max_cost, max_tokens) = self.spending_limits();
        max_cost.is_some_and(|max| cost_usd >= max) || max_tokens.is_some_and(|max| tokens >= max)
    }

    /// The run's own spending limits: US dollars, tokens.
    pub(crate) fn spending_limits(&self) -> (Option<f64>, Option<u64>) {
        let graph = self.plan.graph();
        let max_tokens = graph.max_tokens.filter(|_| !self.state.tokens_lifted);
        (self.state.max_cost.or(graph.max_cost), max_tokens)
    }

    /// The message when a spending limit was reached. `below` is what unfinished sub-workflows have
    /// spent.
    pub(crate) fn spent_message(&self, below: Spent) -> String {
        let own = self.state.spent();
        let cost_usd = own.cost_usd + below.cost_usd;
        let tokens = own.tokens.saturating_add(below.tokens);
        let suffix = if below == Spent::default() { "" } else { ", sub-workflows included" };
        let (max_cost, max_tokens) = self.spending_limits();
        match (max_cost, max_tokens) {
            (_, Some(max)) if tokens >= max => {
                format!("used {tokens} of max_tokens_total {max}{suffix}")
            }
            (Some(max), _)
                if self.state.created.as_ref().is_none_or(|it| it.parent.is_none())
                    || cost_usd >= max =>
            {
                format!("spent {} of max_cost {}{suffix}", dollars(cost_usd), dollars(max))
            }
            _ => "the spending limit of a parent run is reached".to_owned(),
        }
    }

    /// The failure of a line that enters a node too often.
    pub(crate) fn too_many_visits(
        &self,
        cursor: &Cursor,
        node: &NodeSpec,
        passed: usize,
    ) -> Result<Option<Failure>, Inconsistent> {
        let id = &node.id;
        let message = if passed > MAX_PASSED {
            format!("the path to `{id}` is an endless loop of nodes that do no work")
        } else if self.may_enter(cursor, node)? {
            return Ok(None);
        } else {
            let often = match cursor.visits_of(id) {
                1 => "once".to_owned(),
                visits => format!("{visits} times"),
            };
            let message =
                format!("`{id}` was entered {often}, which is all that its visit limit allows");
            with_cause(message, self.loop_cause(cursor, id).as_deref())
        };
        Ok(Some(Failure::new(FailureClass::CompilationLoop, message)))
    }

    /// Whether the visit limit of a node (`max_visits`) allows another visit.
    pub(crate) fn may_enter(&self, cursor: &Cursor, node: &NodeSpec) -> Result<bool, Inconsistent> {
        let limit = visit_limit(node, self.state.created()?.dry_run);
        Ok(limit.is_none_or(|max| cursor.visits_of(&node.id) < max))
    }
}

/// An amount of money; of small ones more digits.
fn dollars(amount: f64) -> String {
    if amount != 0.0 && amount < 0.1 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

/// How often a node may be entered; `None` for any number of times.
pub(crate) fn visit_limit(node: &NodeSpec, dry_run: bool) -> Option<u32> {
    if matches!(node.kind, NodeKind::Conditional | NodeKind::Start | NodeKind::Exit) {
        return None;
    }
    match node.max_visits {
        VisitLimit::Unstated => dry_run.then_some(DRY_RUN_VISITS),
        VisitLimit::Unlimited => None,
        VisitLimit::AtMost(limit) => Some(limit),
    }
}

/// The nodes that ask a model as often as they are entered, because nothing limits their visits: not the
/// node, the graph or a spending limit. `max_visits=0` says that this is meant, and is no such node.
pub fn unlimited_nodes(plan: &Plan, state: &RunState) -> BTreeSet<Arc<str>> {
    let graph = plan.graph();
    let has_budget = state.max_cost.or(graph.max_cost).is_some()
        || graph.max_tokens.is_some() && !state.tokens_lifted;
    if has_budget || state.created.as_ref().is_none_or(|created| created.dry_run) {
        return BTreeSet::new();
    }
    let specs = plan.workflow().node_indices().map(|ix| plan.spec(ix));
    specs
        .filter(|spec| spec.kind.is_llm() && spec.max_visits == VisitLimit::Unstated)
        .map(|spec| Arc::clone(&spec.id))
        .collect()
}
