//! The result of a fan-out, made from the results of its branches.

use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_blob::OFFLOAD_LIMIT;
use fabro_context::keys;
use fabro_plan::JoinPolicy;
use fabro_types::{BlobRef, BranchResult, Failure, FailureClass, Outcome, Status};
use serde_json::Value;

use crate::cursor::Cursor;
use crate::fanout::{Branch, BranchEnd, FanOut};
use crate::select::Values;
use crate::state::RunState;

/// The outcome of the parallel stage, `parallel.results` included. `joined` is the status by the join
/// policy, or the failure that ended the fan-out before.
#[expect(clippy::expect_used, reason = "the result of a branch is always JSON")]
pub(crate) fn outcome(
    fan_out: &FanOut,
    state: &RunState,
    values: Values<'_>,
    joined: Result<Status, Failure>,
    policy: JoinPolicy,
) -> Outcome {
    let mut results = Vec::with_capacity(fan_out.branches.len());
    let mut outputs = Vec::with_capacity(fan_out.branches.len());
    let mut artifacts = Vec::new();
    for (index, branch) in fan_out.branches.iter().enumerate() {
        let head_sha = state.worktrees.head(&branch.name).map(ToString::to_string);
        let cursor = state.line(&branch.name);
        artifacts.extend(cursor.into_iter().flat_map(|cursor| cursor.artifacts.iter().cloned()));
        let result = branch_result(fan_out.id(branch), branch, cursor);
        let result = BranchResult { head_sha, ..result };
        let output = result.output.as_deref().map(|output| inlined(output, fan_out, values));
        outputs.push(output.unwrap_or_default());
        let label = item_label(fan_out, index).unwrap_or_else(|| result.id.to_string());
        let mut result =
            serde_json::to_value(result).expect("its keys are strings and its numbers JSON");
        // The names of these fields in upstream Fabro.
        result["index"] = index.into();
        result["item_label"] = label.into();
        result["context_updates"] = result["updates"].clone();
        results.push(result);
    }
    let mut outcome = match joined {
        Ok(Status::Failed) => Outcome::failed(failure(fan_out, policy)),
        Ok(status) => Outcome { status, ..Outcome::succeeded() },
        Err(failure) => Outcome::failed(failure),
    };
    outcome.inner_artifacts = artifacts;
    if fan_out.for_each.as_ref().is_some_and(|list| list.assumed) {
        outcome.notes =
            Some("dry run: nothing makes the list, so one element is assumed".to_owned());
    }
    outcome
        .with_update(keys::PARALLEL_RESULTS, Value::Array(results))
        .with_update(keys::PARALLEL_OUTPUTS, Value::Array(outputs))
        .with_update(keys::PARALLEL_COUNT, fan_out.branches.len())
}

/// The maximum length of the label of an element, in characters.
const MAX_ITEM_LABEL: usize = 80;

/// The label of a list element: its `name`, else its `label`, else its number.
fn item_label(fan_out: &FanOut, index: usize) -> Option<String> {
    let item = fan_out.for_each.as_ref()?.items.get(index)?;
    let named = ["name", "label"].iter().find_map(|key| item.get(key)?.as_str());
    let label = named.map_or_else(|| index.to_string(), str::to_owned);
    Some(label.chars().take(MAX_ITEM_LABEL).collect())
}

/// How much one output may have to stand in the list of outputs itself, in bytes of its JSON; the whole
/// list is read by conditions and templates.
pub(crate) fn inline_limit(fan_out: &FanOut) -> u64 {
    const ALL: usize = 8 << 20;
    const LEAST: usize = 256;
    (ALL / fan_out.branches.len().max(1)).clamp(LEAST, OFFLOAD_LIMIT) as u64
}

/// The outputs that stand apart and have to be read before the join.
pub(crate) fn unread_outputs(
    fan_out: &FanOut,
    state: &RunState,
    values: Values<'_>,
) -> BTreeSet<BlobRef> {
    let lines = fan_out.branches.iter().filter_map(|branch| state.line(&branch.name));
    let outputs = lines.filter_map(|line| line.output.value.as_deref());
    let apart = outputs.filter_map(BlobRef::from_value);
    apart.filter(|blob| values.get(blob).is_none()).collect()
}

/// An output in the list of outputs: a large one stays a reference.
fn inlined(output: &Value, fan_out: &FanOut, values: Values<'_>) -> Value {
    let read = BlobRef::from_value(output).and_then(|blob| values.get(&blob)?.ok());
    let fits = |value: &Value| value.to_string().len() as u64 <= inline_limit(fan_out);
    read.filter(fits).unwrap_or_else(|| output.clone())
}

/// Why a fan-out failed: what its branches say.
fn failure(fan_out: &FanOut, policy: JoinPolicy) -> Failure {
    let branches = &fan_out.branches;
    let failures: Vec<(&Branch, &Failure)> = branches
        .iter()
        .filter_map(|branch| Some((branch, branch.end.as_ref()?.failure.as_ref()?)))
        .collect();
    if failures.is_empty() {
        let message = format!(
            "{} of {} branches succeeded and none failed, but the join policy needs {}",
            fan_out.succeeded(),
            branches.len(),
            fan_out.needed(policy),
        );
        let lower = || "lower its `quorum`, or add branches".to_owned();
        let is_quorum = matches!(policy, JoinPolicy::Quorum(_));
        let failure = Failure::new(FailureClass::Deterministic, message);
        return Failure { details: is_quorum.then(lower), ..failure };
    }
    let reason =
        |(branch, it): &(&Branch, &Failure)| format!("{}: {}", fan_out.id(branch), it.message);
    let reasons = failures.iter().take(3).map(reason);
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let needed = match policy {
        JoinPolicy::Quorum(_) => format!(", and {} have to succeed", fan_out.needed(policy)),
        _ => String::new(),
    };
    let failed = failures.len();
    let message = format!("{failed} of {} branches failed{needed}: {reasons}", branches.len());
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

fn branch_result(id: Arc<str>, branch: &Branch, cursor: Option<&Cursor>) -> BranchResult {
    let end = branch.end.as_ref();
    let status = end.map_or(Status::Skipped, |end| end.status);
    let notes = match end {
        Some(BranchEnd { failure: Some(failure), .. }) => Some(failure.message.clone()),
        Some(end) if end.canceled => Some("no longer needed".to_owned()),
        Some(_) => cursor.and_then(|cursor| cursor.last.as_ref()?.outcome().notes.clone()),
        None => None,
    };
    BranchResult {
        id,
        status,
        notes,
        response: cursor.and_then(|cursor| cursor.response.clone()),
        output: cursor.filter(|_| status.is_good()).and_then(|cursor| cursor.output.value.clone()),
        updates: cursor.map(|cursor| cursor.updates.clone()),
        head_sha: None,
    }
}
