//! Fan-outs: which branches there are, which run, and when they are joined.

use std::sync::Arc;

use fabro_context::keys;
use fabro_events::PlannedBranch;
use fabro_plan::JoinPolicy;
use fabro_types::{BranchResult, Failure, FailureClass, Outcome, Status};
use serde_json::Value;

use crate::cursor::{ActiveStage, Cursor};
use crate::state::RunState;

/// A running fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    /// The parallel node's own stage.
    pub stage: ActiveStage,
    /// Where the branches join.
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
pub(crate) enum JoinState {
    /// Branches are still needed.
    Wait,
    /// The fan-out is joined, with this status.
    Joined(Status),
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

    pub(crate) fn join_state(&self, policy: JoinPolicy) -> JoinState {
        let ended = self.branches.iter().filter_map(|branch| branch.end.as_ref());
        let good = ended.clone().filter(|end| end.status.is_good()).count();
        let whole = ended.clone().filter(|end| end.status == Status::Succeeded).count();
        let open = self.branches.len() - ended.count();
        let quorum = match policy {
            JoinPolicy::Quorum(Some(needed)) => needed as usize,
            _ => self.branches.len() / 2 + 1,
        };
        match policy {
            JoinPolicy::FirstSuccess if good > 0 => JoinState::Joined(Status::Succeeded),
            JoinPolicy::Quorum(_) if good >= quorum => JoinState::Joined(Status::Succeeded),
            JoinPolicy::Quorum(_) if good + open < quorum => JoinState::Joined(Status::Failed),
            _ if open > 0 => JoinState::Wait,
            JoinPolicy::FirstSuccess | JoinPolicy::Quorum(_) => JoinState::Joined(Status::Failed),
            JoinPolicy::WaitAll if whole == self.branches.len() => {
                JoinState::Joined(Status::Succeeded)
            }
            JoinPolicy::WaitAll if good == 0 && !self.branches.is_empty() => {
                JoinState::Joined(Status::Failed)
            }
            JoinPolicy::WaitAll => JoinState::Joined(Status::PartiallySucceeded),
        }
    }

    /// The parallel stage's outcome, `parallel.results` in it.
    #[expect(clippy::expect_used, reason = "a branch's result is always JSON")]
    pub(crate) fn outcome(&self, state: &RunState, joined: Result<Status, Failure>) -> Outcome {
        let results = self.branches.iter().map(|branch| {
            let result = result(branch, state.cursors.get(&branch.name));
            serde_json::to_value(result).expect("its keys are strings and its numbers JSON")
        });
        let mut outcome = Outcome::succeeded()
            .with_update(keys::PARALLEL_RESULTS, Value::Array(results.collect()));
        outcome.status = *joined.as_ref().unwrap_or(&Status::Failed);
        if outcome.status == Status::Failed {
            outcome.failure = Some(joined.err().unwrap_or_else(|| self.failure()));
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
/// worth its while, transient ones first; without any, the most severe says why there is none.
fn class_of<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> FailureClass {
    let is_final = |class| matches!(class, FailureClass::Canceled | FailureClass::Structural);
    let retryable =
        failures.clone().filter(|failure| !failure.terminal && !is_final(failure.class));
    let first = retryable.map(|failure| failure.class).min();
    let most_severe = failures.map(|failure| failure.class).max();
    first.or(most_severe).unwrap_or(FailureClass::Deterministic)
}

fn result(branch: &Branch, cursor: Option<&Cursor>) -> BranchResult {
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

#[cfg(test)]
mod tests {
    use fabro_types::NodeKind;

    use super::*;

    #[track_caller]
    fn check(ends: &[Option<Status>], policy: JoinPolicy, expect: JoinState) {
        let stage = ActiveStage {
            node: "fork".into(),
            handler: NodeKind::Parallel,
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
        assert_eq!(fan.join_state(policy), expect, "{ends:?} {policy:?}");
    }

    #[test]
    fn join_policies() {
        use Status::{Failed, PartiallySucceeded, Succeeded};
        let yes = Some(Succeeded);
        let no = Some(Failed);
        let part = Some(PartiallySucceeded);
        check(&[yes, None], JoinPolicy::WaitAll, JoinState::Wait);
        check(&[yes, yes], JoinPolicy::WaitAll, JoinState::Joined(Succeeded));
        check(&[yes, no], JoinPolicy::WaitAll, JoinState::Joined(PartiallySucceeded));
        check(&[part, yes], JoinPolicy::WaitAll, JoinState::Joined(PartiallySucceeded));
        check(&[no, no], JoinPolicy::WaitAll, JoinState::Joined(Failed));
        check(&[no, None], JoinPolicy::FirstSuccess, JoinState::Wait);
        check(&[None, yes], JoinPolicy::FirstSuccess, JoinState::Joined(Succeeded));
        check(&[no, no], JoinPolicy::FirstSuccess, JoinState::Joined(Failed));
        check(&[yes, None, None], JoinPolicy::Quorum(Some(2)), JoinState::Wait);
        check(&[yes, None, yes], JoinPolicy::Quorum(Some(2)), JoinState::Joined(Succeeded));
        check(&[no, no, None], JoinPolicy::Quorum(Some(2)), JoinState::Joined(Failed));
    }
}
