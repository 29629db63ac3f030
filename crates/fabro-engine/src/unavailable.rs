//! Failures because no model or agent is available: they pause the run, unless the workflow handles
//! them.

use std::fmt::Write as _;
use std::sync::Arc;

use fabro_events::StageFailure;
use fabro_graph::NodeIx;
use fabro_plan::{EdgeSpec, Plan, RetryTargets};
use fabro_types::{BranchPath, OnUnavailable, Usage};

use crate::attempt::Key;
use crate::inconsistent::Inconsistent;
use crate::input::Finished;
use crate::machine::Machine;

/// The key of the context that a workflow decides on when it handles kinds of failures.
const FAILURE_CLASS: &str = "failure_class";

/// How many stages with the same failure a message names.
const MOST_STAGES: usize = 3;

/// A stage for which no model or agent is available.
pub(crate) struct UnavailableStage {
    pub(crate) failure: StageFailure,
    /// What was used since the last request that is recorded.
    pub(crate) used: Usage,
}

impl UnavailableStage {
    /// Requests to a model that failed since the last one that is recorded.
    pub(crate) fn failed_turns(&self) -> u32 {
        self.used.requests()
    }
}

impl Machine {
    /// The failure that the run pauses for instead of recording it as the result of the stage;
    /// `None` when it is a result, or another attempt follows.
    pub(crate) fn unavailable(
        &self,
        key: &Key,
        finished: &Finished,
    ) -> Result<Option<UnavailableStage>, Inconsistent> {
        let failure = finished.outcome.failure.as_ref();
        let Some(failure) = failure.filter(|failure| failure.unavailable.is_some()) else {
            return Ok(None);
        };
        let ix = self.node_index(&key.node)?;
        let is_branch = self.cursor(&key.branch)?.is_branch();
        let failure = failure.clone().signed(&key.node);
        let retries = self.retry_delay(&key.branch, self.plan.spec(ix), &failure)?.is_some();
        if retries || !pauses(&self.plan, ix, is_branch) {
            return Ok(None);
        }
        let recorded = &self.running_stage(&key.branch)?.spent;
        let used = finished.outcome.usage.as_ref().map(|usage| usage.without(recorded));
        let branch = is_branch.then(|| Arc::clone(&key.branch));
        let node = Arc::clone(&key.node);
        Ok(Some(UnavailableStage {
            failure: StageFailure { node, visit: key.visit, branch, failure },
            used: used.unwrap_or_default(),
        }))
    }
}

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
