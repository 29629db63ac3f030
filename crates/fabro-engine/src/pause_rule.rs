//! When a run pauses because no model or agent is available, and what the pause says.

use std::fmt::Write as _;

use fabro_events::StageFailure;
use fabro_graph::NodeIx;
use fabro_plan::{EdgeSpec, Plan, RetryTargets};
use fabro_types::{BranchPath, OnUnavailable};

/// The key of the context that a workflow decides on when it handles kinds of failures.
const FAILURE_CLASS: &str = "failure_class";

/// How many stages with the same failure a message names.
const MOST_STAGES: usize = 3;

/// Whether the run pauses when no model or agent is available for this node. Rules:
/// `docs/workflow-language.md`, "When no model or agent is available".
pub fn pauses(plan: &Plan, node: NodeIx, is_branch: bool) -> bool {
    let spec = plan.spec(node);
    match spec.on_unavailable {
        Some(OnUnavailable::Pause) => return true,
        Some(OnUnavailable::Fail) => return false,
        None => {}
    }
    let has_target = |targets: RetryTargets| targets.first.or(targets.fallback).is_some();
    // A failure leaves by a plain edge before the graph's targets are looked at.
    let has_plain_edge = plan.outgoing(node).any(|edge| edge.condition.is_none());
    let takes_graph_target =
        !is_branch && !has_plain_edge && has_target(plan.graph().retry_targets);
    plan.graph().on_unavailable != Some(OnUnavailable::Fail)
        && !has_target(spec.retry_targets)
        && !takes_graph_target
        && !plan.deciding_edges(node).any(|edge| edge.loop_restart || reads_class(edge))
}

fn reads_class(edge: &EdgeSpec) -> bool {
    let condition = edge.condition.as_ref();
    condition.is_some_and(|it| {
        it.parsed.clauses().iter().any(|clause| clause.context_key() == FAILURE_CLASS)
    })
}

/// What a pause says: each failure with the stages that it stopped, and what to do.
pub(crate) fn message(unavailable: &[StageFailure]) -> String {
    let mut text = String::new();
    let mut messages: Vec<&str> = Vec::new();
    for stage in unavailable {
        let failure = &stage.failure;
        if messages.contains(&failure.message.as_str()) {
            continue;
        }
        messages.push(&failure.message);
        let same = unavailable.iter().filter(|other| other.failure.message == failure.message);
        let names: Vec<String> = same.map(name).collect();
        let more = names.len().saturating_sub(MOST_STAGES);
        let shown = names.iter().take(MOST_STAGES).cloned().collect::<Vec<_>>().join(", ");
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{separator}{shown}{more}: {}", failure.message);
        if let Some(remedy) = &failure.unavailable {
            let _ = write!(text, "; to fix it, {remedy}");
        }
    }
    text
}

fn name(stage: &StageFailure) -> String {
    let line = BranchPath::new(stage.branch.as_deref().unwrap_or_default());
    format!("`{}`", line.stage(&stage.node, stage.visit))
}
