//! The limits of a run: the budget (`max_cost`, `max_tokens_total`), and the visit limit of a node (`max_visits`).

use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_plan::{NodeSpec, Plan, VisitLimit};
use fabro_types::{Failure, FailureClass, NodeKind, Usage};

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
        self.budget().is_some_and(|left| left <= 0.0)
            || self.tokens_left().is_some_and(|left| left == 0)
    }

    /// How many tokens may still be used; `None` without a limit.
    pub fn tokens_left(&self) -> Option<u64> {
        let limits = self.plan.graph().max_tokens.into_iter().chain(self.max_tokens);
        let max = limits.min().filter(|_| !self.state.tokens_lifted)?;
        let usage = self.state.usage_so_far();
        Some(max.saturating_sub(usage.input_tokens.saturating_add(usage.output_tokens)))
    }

    /// What may still be spent, in US dollars; `None` without a limit.
    pub fn budget(&self) -> Option<f64> {
        let max = self.state.max_cost.or(self.plan.graph().max_cost)?;
        Some(max - self.state.usage_so_far().cost_usd)
    }

    /// How much was spent of what, when a spending limit was reached.
    pub(crate) fn spent_message(&self) -> String {
        let usage = self.state.usage_so_far();
        let max_cost = self.state.max_cost.or(self.plan.graph().max_cost);
        let max_tokens = self.plan.graph().max_tokens.into_iter().chain(self.max_tokens).min();
        let has_tokens_left = self.tokens_left().is_none_or(|left| left > 0);
        let has_budget_left = self.budget().is_none_or(|left| left > 0.0);
        if has_tokens_left
            && has_budget_left
            && let Some(message) = self.spent_below(&usage)
        {
            return message;
        }
        match (max_cost, max_tokens) {
            (Some(max), _) if has_tokens_left => {
                format!("spent {} of max_cost {}", dollars(usage.cost_usd), dollars(max))
            }
            (_, Some(max)) => {
                let used = usage.input_tokens.saturating_add(usage.output_tokens);
                format!("used {used} of max_tokens_total {max}")
            }
            _ => "the budget is used up".to_owned(),
        }
    }

    /// The same where sub-workflows that have not ended, and whose usage does not count yet, have reached it.
    fn spent_below(&self, usage: &Usage) -> Option<String> {
        let active = self.state.active().map(|(_, stage)| stage);
        let managers = active.filter(|stage| stage.handler == NodeKind::ManagerLoop);
        let names: Vec<_> = managers.map(|stage| format!("`{}`", stage.node)).collect();
        let max_cost = self.state.max_cost.or(self.plan.graph().max_cost);
        let max_tokens = self.plan.graph().max_tokens.into_iter().chain(self.max_tokens).min();
        let tokens = max_tokens.filter(|_| !self.state.tokens_lifted).map(|max| {
            let used = usage.input_tokens.saturating_add(usage.output_tokens);
            (format!("max_tokens_total {max}"), format!("{used} tokens"))
        });
        let cost =
            max_cost.map(|max| (format!("max_cost {}", dollars(max)), dollars(usage.cost_usd)));
        let (limits, used): (Vec<_>, Vec<_>) = cost.into_iter().chain(tokens).unzip();
        (!names.is_empty() && !limits.is_empty()).then(|| {
            format!(
                "the sub-workflow of {} has used up what was left of {}; spent without it: {}",
                names.join(", "),
                limits.join(" or "),
                used.join(", ")
            )
        })
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
