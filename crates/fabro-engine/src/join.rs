//! The result of a fan-out, made from the results of its branches.

use std::sync::Arc;

use fabro_context::keys;
use fabro_types::{BranchResult, Failure, FailureClass, Outcome, Status};
use serde_json::Value;

use crate::cursor::Cursor;
use crate::fanout::{Branch, BranchEnd, FanOut};
use crate::state::RunState;

/// The outcome of the parallel stage, `parallel.results` included. `joined` is the status by the join
/// policy, or the failure that ended the fan-out before.
#[expect(clippy::expect_used, reason = "the result of a branch is always JSON")]
pub(crate) fn outcome(
    fan_out: &FanOut,
    state: &RunState,
    joined: Result<Status, Failure>,
) -> Outcome {
    let results = fan_out.branches.iter().map(|branch| {
        let result = branch_result(branch, state.cursors.get(&branch.name));
        serde_json::to_value(result).expect("its keys are strings and its numbers JSON")
    });
    let results = Value::Array(results.collect());
    let outcome = match joined {
        Ok(Status::Failed) => Outcome::failed(failure(&fan_out.branches)),
        Ok(status) => Outcome { status, ..Outcome::succeeded() },
        Err(failure) => Outcome::failed(failure),
    };
    outcome.with_update(keys::PARALLEL_RESULTS, results)
}

/// Why a fan-out failed: what its branches say.
fn failure(branches: &[Branch]) -> Failure {
    let failures: Vec<(&Arc<str>, &Failure)> = branches
        .iter()
        .filter_map(|branch| Some((&branch.target, branch.end.as_ref()?.failure.as_ref()?)))
        .collect();
    if failures.is_empty() {
        let message = "too few branches succeeded, though none failed";
        return Failure::new(FailureClass::Deterministic, message);
    }
    let reasons = failures.iter().take(3).map(|(id, it)| format!("{id}: {}", it.message));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let message = format!("{} of {} branches failed: {reasons}", failures.len(), branches.len());
    let all = || failures.iter().map(|(_, failure)| *failure);
    Failure {
        terminal: all().all(|failure| failure.terminal),
        retry_after_ms: all().filter_map(|failure| failure.retry_after_ms).max(),
        ..Failure::new(class_of(all()), message)
    }
}

/// The class of several failures, in any order: one that may be retried makes another attempt
/// useful, transient ones first; without any, the most severe says why there is none.
fn class_of<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> FailureClass {
    let is_final = |class| matches!(class, FailureClass::Canceled | FailureClass::Structural);
    let retryable =
        failures.clone().filter(|failure| !failure.terminal && !is_final(failure.class));
    let first = retryable.map(|failure| failure.class).min();
    let most_severe = failures.map(|failure| failure.class).max();
    first.or(most_severe).unwrap_or(FailureClass::Deterministic)
}

fn branch_result(branch: &Branch, cursor: Option<&Cursor>) -> BranchResult {
    let end = branch.end.as_ref();
    let status = end.map_or(Status::Skipped, |end| end.status);
    let notes = match end {
        Some(BranchEnd { failure: Some(failure), .. }) => Some(failure.message.clone()),
        Some(end) if end.canceled => Some("no longer needed".to_owned()),
        Some(_) => cursor.and_then(|cursor| cursor.last.as_ref()?.outcome().notes.clone()),
        None => None,
    };
    BranchResult {
        id: Arc::clone(&branch.target),
        status,
        notes,
        response: cursor.and_then(|cursor| cursor.response.clone()),
        updates: cursor.map(|cursor| cursor.updates.clone()),
        head_sha: None,
    }
}
