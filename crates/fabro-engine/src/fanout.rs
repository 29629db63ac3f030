//! Fan-outs: which branches there are, which run, and when they are joined.

use std::sync::Arc;

use fabro_context::keys;
use fabro_events::PlannedBranch;
use fabro_plan::JoinPolicy;
use fabro_types::{Failure, FailureClass, Outcome, Status};
use serde_json::{Value, json};

use crate::cursor::{ActiveStage, Cursor};
use crate::state::{MAIN, RunState};

/// A fan-out at work.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    /// The parallel node's own stage.
    pub stage: ActiveStage,
    /// Where the branches meet.
    pub join: Option<Arc<str>>,
    /// How many run at a time.
    pub max_parallel: u32,
    branches: Vec<Branch>,
}

/// One branch of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Its name in events, which is its cursor's too.
    pub name: Arc<str>,
    /// Its first node.
    pub target: Arc<str>,
    /// Whether it has started.
    pub begun: bool,
    /// How it ended; `None` while it has not.
    pub end: Option<BranchEnd>,
}

/// How a branch ended.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchEnd {
    /// The status of its last stage.
    pub status: Status,
    /// Why, when it failed or was ended before it was done.
    pub failure: Option<Failure>,
    /// The join did not need it any more.
    pub canceled: bool,
}

/// What the join policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Branches are still needed.
    Wait,
    /// The fan-out is over, with this status.
    Over(Status),
}

impl FanOut {
    pub(crate) fn new(
        stage: ActiveStage,
        planned: &[PlannedBranch],
        join: Option<Arc<str>>,
        max_parallel: u32,
    ) -> Self {
        let branches = planned
            .iter()
            .map(|branch| Branch {
                name: Arc::clone(&branch.branch),
                target: Arc::clone(&branch.target),
                begun: false,
                end: None,
            })
            .collect();
        Self { stage, join, max_parallel, branches }
    }

    /// The branches, in the order of the edges.
    pub fn branches(&self) -> &[Branch] {
        &self.branches
    }

    pub(crate) fn begin_branch(&mut self, name: &str) {
        if let Some(branch) = self.branches.iter_mut().find(|branch| branch.name.as_ref() == name) {
            branch.begun = true;
        }
    }

    pub(crate) fn has_begun(&self, name: &str) -> bool {
        self.branches.iter().any(|branch| branch.begun && branch.name.as_ref() == name)
    }

    /// Branches that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Arc<str>> {
        self.branches.iter().filter(|branch| branch.end.is_none()).map(|branch| &branch.name)
    }

    /// Branches that may start now, in order.
    pub(crate) fn startable(&self) -> impl Iterator<Item = &Branch> {
        let live = self.branches.iter().filter(|branch| branch.begun && branch.end.is_none());
        let slots = (self.max_parallel as usize).saturating_sub(live.count());
        let waiting = self.branches.iter().filter(|branch| !branch.begun && branch.end.is_none());
        waiting.take(slots)
    }

    pub(crate) fn end_branch(
        &mut self,
        name: &str,
        status: Status,
        failure: Option<Failure>,
        canceled: bool,
    ) {
        if let Some(branch) = self.branches.iter_mut().find(|branch| branch.name.as_ref() == name) {
            branch.end = Some(BranchEnd { status, failure, canceled });
        }
    }

    pub(crate) fn verdict(&self, policy: JoinPolicy) -> Verdict {
        let ended = self.branches.iter().filter_map(|branch| branch.end.as_ref());
        let good = ended.clone().filter(|end| end.status.is_good()).count();
        let whole = ended.clone().filter(|end| end.status == Status::Succeeded).count();
        let open = self.branches.len() - ended.count();
        let quorum = match policy {
            JoinPolicy::Quorum(Some(needed)) => needed as usize,
            _ => self.branches.len() / 2 + 1,
        };
        match policy {
            JoinPolicy::FirstSuccess if good > 0 => Verdict::Over(Status::Succeeded),
            JoinPolicy::Quorum(_) if good >= quorum => Verdict::Over(Status::Succeeded),
            JoinPolicy::Quorum(_) if good + open < quorum => Verdict::Over(Status::Failed),
            _ if open > 0 => Verdict::Wait,
            JoinPolicy::FirstSuccess | JoinPolicy::Quorum(_) => Verdict::Over(Status::Failed),
            JoinPolicy::WaitAll if whole == self.branches.len() => Verdict::Over(Status::Succeeded),
            JoinPolicy::WaitAll if good == 0 && !self.branches.is_empty() => {
                Verdict::Over(Status::Failed)
            }
            JoinPolicy::WaitAll => Verdict::Over(Status::PartiallySucceeded),
        }
    }

    /// The parallel stage's outcome, `parallel.results` in it.
    pub(crate) fn outcome(&self, state: &RunState, verdict: Result<Status, Failure>) -> Outcome {
        let results: Vec<Value> = self
            .branches
            .iter()
            .map(|branch| result(branch, state.cursors.get(&branch.name)))
            .collect();
        let mut outcome =
            Outcome::succeeded().with_update(keys::PARALLEL_RESULTS, Value::Array(results));
        outcome.status = *verdict.as_ref().unwrap_or(&Status::Failed);
        if outcome.status == Status::Failed {
            outcome.failure = Some(verdict.err().unwrap_or_else(|| self.failure()));
        }
        outcome
    }

    fn failure(&self) -> Failure {
        let failures: Vec<(&Arc<str>, &Failure)> = self
            .branches
            .iter()
            .filter_map(|branch| Some((&branch.target, branch.end.as_ref()?.failure.as_ref()?)))
            .collect();
        if failures.is_empty() {
            let message = "too few branches succeeded, though none failed";
            return Failure::new(FailureClass::Deterministic, message);
        }
        let reasons: Vec<String> = failures
            .iter()
            .take(3)
            .map(|(id, failure)| format!("{id}: {}", failure.message))
            .collect();
        let message = format!(
            "{} of {} branches failed: {}",
            failures.len(),
            self.branches.len(),
            reasons.join("; ")
        );
        let all = || failures.iter().map(|(_, failure)| *failure);
        let mut failure = Failure::new(class_of(all()), message);
        failure.terminal = all().all(|failure| failure.terminal);
        failure.retry_after_ms = all().filter_map(|failure| failure.retry_after_ms).max();
        failure
    }
}

/// The class of several failures, whatever their order: one that may be retried makes another attempt
/// worth its while, transient ones first; without any, the gravest says why there is none.
fn class_of<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> FailureClass {
    let is_final = |class| matches!(class, FailureClass::Canceled | FailureClass::Structural);
    let retryable =
        failures.clone().filter(|failure| !failure.terminal && !is_final(failure.class));
    let first = retryable.map(|failure| failure.class).min();
    let gravest = failures.map(|failure| failure.class).max();
    first.or(gravest).unwrap_or(FailureClass::Deterministic)
}

fn result(branch: &Branch, cursor: Option<&Cursor>) -> Value {
    let end = branch.end.as_ref();
    let status = end.map_or(Status::Skipped, |end| end.status);
    let notes = match end {
        Some(BranchEnd { failure: Some(failure), .. }) => Some(failure.message.clone()),
        Some(end) if end.canceled => Some("no longer needed".to_owned()),
        Some(_) => cursor.and_then(|cursor| cursor.last.as_ref()?.outcome().notes.clone()),
        None => None,
    };
    json!({
        "id": branch.target.as_ref(),
        "status": status,
        "notes": notes,
        "response": cursor.and_then(|cursor| cursor.response.as_deref()),
        "updates": cursor.map(|cursor| &cursor.updates),
        "head_sha": null,
    })
}

/// The name of the line that a branch came from: `checks@1/lint/deep@1/a` from `checks@1/lint`.
pub(crate) fn parent_of(branch: &str) -> &str {
    let mut ends = branch.rmatch_indices('/').map(|(at, _)| at);
    ends.nth(1).map_or(MAIN, |at| &branch[..at])
}

/// What a fan-out is called in the names of its branches: its node and visit, and from the second
/// attempt on the attempt's number.
pub(crate) fn fan_name(node: &str, visit: u32, attempt: u32) -> String {
    let suffix = if attempt > 1 { format!("#{attempt}") } else { String::new() };
    format!("{node}@{visit}{suffix}")
}

/// Whether a branch belongs to an attempt of this fan-out, or to a fan-out in one of its branches.
pub(crate) fn is_of_fan_out(branch: &str, parent: &str, node: &str, visit: u32) -> bool {
    let slash = if parent.is_empty() { "" } else { "/" };
    let name = format!("{parent}{slash}{}", fan_name(node, visit, 1));
    branch.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['/', '#']))
}

/// A branch's name: the line it comes from, the [name](fan_name) of the fan-out, its first node; a
/// second branch to the same node gets a number.
pub(crate) fn branch_name(
    parent: &str,
    fan: &str,
    target: &str,
    earlier: &[PlannedBranch],
) -> Arc<str> {
    let same = earlier.iter().filter(|branch| branch.target.as_ref() == target).count();
    let suffix = if same == 0 { String::new() } else { format!("#{}", same + 1) };
    let slash = if parent.is_empty() { "" } else { "/" };
    Arc::from(format!("{parent}{slash}{fan}/{target}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_where_a_branch_came_from() {
        let outer = branch_name("", &fan_name("checks", 1, 1), "lint", &[]);
        let inner = branch_name(&outer, &fan_name("deep", 2, 3), "a", &[]);
        assert_eq!(inner.as_ref(), "checks@1/lint/deep@2#3/a");
        assert_eq!(parent_of(&inner), outer.as_ref());
        assert_eq!(parent_of(&outer), MAIN);
        let twin = PlannedBranch { branch: Arc::clone(&outer), target: "lint".into() };
        assert_eq!(branch_name("", "checks@1", "lint", &[twin]).as_ref(), "checks@1/lint#2");
    }

    #[test]
    fn a_fan_out_knows_the_branches_of_all_its_attempts() {
        let main = |branch| is_of_fan_out(branch, "", "fork", 1);
        for branch in ["fork@1/a", "fork@1#2/a", "fork@1/a/inner@1/b"] {
            assert!(main(branch), "{branch}");
        }
        for branch in ["", "fork@2/a", "fork@11/a", "refork@1/a", "outer@1/c/fork@1/a"] {
            assert!(!main(branch), "{branch}");
        }
        let inner = |branch| is_of_fan_out(branch, "outer@1/c", "fork", 1);
        assert!(inner("outer@1/c/fork@1#3/a"));
        for branch in ["outer@1/c", "outer@1/c#2/fork@1/a", "outer@1#2/c/fork@1/a", "fork@1/a"] {
            assert!(!inner(branch), "{branch}");
        }
    }

    #[track_caller]
    fn check(ends: &[Option<Status>], policy: JoinPolicy, expect: Verdict) {
        let stage = ActiveStage {
            node: "fork".into(),
            handler: "parallel".into(),
            visit: 1,
            rank: 2,
            started_ms: 0,
            attempt: 1,
            delay_ms: 0,
            fidelity: fabro_types::Fidelity::Compact,
            thread_id: None,
            gate_asked_ms: None,
            gate_answer: None,
            since_seq: 1,
            talked: false,
            spent: fabro_types::Usage::default(),
        };
        let branches = ends
            .iter()
            .enumerate()
            .map(|(index, end)| Branch {
                name: format!("fork@1/b{index}").into(),
                target: format!("b{index}").into(),
                begun: true,
                end: end.map(|status| BranchEnd { status, failure: None, canceled: false }),
            })
            .collect();
        let fan = FanOut { stage, join: None, max_parallel: 4, branches };
        assert_eq!(fan.verdict(policy), expect, "{ends:?} {policy:?}");
    }

    #[test]
    fn join_policies() {
        use Status::{Failed, PartiallySucceeded, Succeeded};
        let (yes, no, part) = (Some(Succeeded), Some(Failed), Some(PartiallySucceeded));
        check(&[yes, None], JoinPolicy::WaitAll, Verdict::Wait);
        check(&[yes, yes], JoinPolicy::WaitAll, Verdict::Over(Succeeded));
        check(&[yes, no], JoinPolicy::WaitAll, Verdict::Over(PartiallySucceeded));
        check(&[part, yes], JoinPolicy::WaitAll, Verdict::Over(PartiallySucceeded));
        check(&[no, no], JoinPolicy::WaitAll, Verdict::Over(Failed));
        check(&[no, None], JoinPolicy::FirstSuccess, Verdict::Wait);
        check(&[None, yes], JoinPolicy::FirstSuccess, Verdict::Over(Succeeded));
        check(&[no, no], JoinPolicy::FirstSuccess, Verdict::Over(Failed));
        check(&[yes, None, None], JoinPolicy::Quorum(Some(2)), Verdict::Wait);
        check(&[yes, None, yes], JoinPolicy::Quorum(Some(2)), Verdict::Over(Succeeded));
        check(&[no, no, None], JoinPolicy::Quorum(Some(2)), Verdict::Over(Failed));
    }
}
