//! Whether a failed attempt is followed by another, and when.

use fabro_graph::{Node, NodeKind, Workflow};
use fabro_types::{Failure, FailureClass};

use crate::random;

const MAX_DELAY_MS: u64 = 60_000;

/// How often, and how fast, a node is tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Policy {
    attempts: u32,
    first_ms: u64,
    factor: u64,
    any_failure: bool,
}

/// The delay before the next attempt in milliseconds; `None` when this was the last one.
/// Rules: `docs/workflow-language.md`, "Failures and retries".
pub(crate) fn delay(
    workflow: &Workflow,
    node: &Node,
    attempt: u32,
    failure: &Failure,
    random: &random::Source<'_>,
) -> Option<u64> {
    let never = matches!(failure.class, FailureClass::Canceled | FailureClass::Structural);
    if never || failure.terminal {
        return None;
    }
    let policy = policy(workflow, node);
    let allowed = policy.any_failure || failure.class == FailureClass::TransientInfra;
    if !allowed || attempt >= policy.attempts {
        return None;
    }
    if let Some(asked) = failure.retry_after_ms {
        return Some(asked.min(MAX_DELAY_MS));
    }
    let factor = policy.factor.saturating_pow(attempt.saturating_sub(1));
    let plain = policy.first_ms.saturating_mul(factor).min(MAX_DELAY_MS);
    // A jitter of 0.5 to 1.5, in thousandths, from the run's seed.
    let jitter = 500 + random.below(1_001, &format!("retry {attempt}"));
    Some((plain.saturating_mul(jitter) / 1_000).min(MAX_DELAY_MS))
}

fn policy(workflow: &Workflow, node: &Node) -> Policy {
    let preset =
        |attempts, first_ms, factor| Policy { attempts, first_ms, factor, any_failure: true };
    let own = node.attrs.int("max_retries").map(attempts);
    let named = node.attrs.text("retry_policy").and_then(|name| match name {
        "none" => Some(preset(1, 0, 1)),
        "standard" => Some(preset(5, 200, 2)),
        "aggressive" => Some(preset(5, 500, 2)),
        "linear" => Some(preset(3, 500, 1)),
        "patient" => Some(preset(3, 2_000, 3)),
        _ => None,
    });
    match (named, own) {
        (Some(named), Some(attempts)) => Policy { attempts, ..named },
        (Some(named), None) => named,
        (None, Some(attempts)) => preset(attempts, 5_000, 2),
        // The stages of its branches have been tried again as the graph says.
        (None, None) if node.kind == NodeKind::Parallel => preset(1, 0, 1),
        (None, None) => {
            let attempts = workflow.attrs().int("default_max_retries").map_or(1, attempts);
            Policy { any_failure: false, ..preset(attempts, 5_000, 2) }
        }
    }
}

fn attempts(retries: i64) -> u32 {
    u32::try_from(retries.max(0)).unwrap_or(u32::MAX).saturating_add(1)
}
