//! Fan-outs: which branches there are, which run, and when they are joined.

use std::sync::Arc;

use fabro_events::PlannedBranch;
use fabro_plan::JoinPolicy;
use fabro_types::{Failure, Status};

use crate::active_stage::ActiveStage;
use crate::inconsistent::Inconsistent;

/// A running fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    /// The parallel node's own stage.
    pub stage: ActiveStage,
    /// Where the branches join.
    pub join: Option<Arc<str>>,
    /// How many run at a time.
    pub max_parallel: u32,
    /// The branches, in the order of the edges.
    pub branches: Vec<Branch>,
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

    pub(crate) fn branch_mut(&mut self, name: &str) -> Result<&mut Branch, Inconsistent> {
        let missing = || Inconsistent::new(format!("the fan-out has no branch `{name}`"));
        self.branches.iter_mut().find(|branch| *branch.name == *name).ok_or_else(missing)
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

    /// The status of the fan-out by its `join_policy` (`wait_all`, `first_success`, …); `None` while it needs more branches to end.
    pub(crate) fn joined(&self, policy: JoinPolicy) -> Option<Status> {
        let ended = self.branches.iter().filter_map(|branch| branch.end.as_ref());
        let good = ended.clone().filter(|end| end.status.is_good()).count();
        let whole = ended.clone().filter(|end| end.status == Status::Succeeded).count();
        let open = self.branches.len() - ended.count();
        let quorum = |needed: Option<u32>| {
            needed.map_or(self.branches.len() / 2 + 1, |needed| needed as usize)
        };
        match policy {
            JoinPolicy::FirstSuccess if good > 0 => Some(Status::Succeeded),
            JoinPolicy::Quorum(needed) if good >= quorum(needed) => Some(Status::Succeeded),
            JoinPolicy::Quorum(needed) if good + open < quorum(needed) => Some(Status::Failed),
            JoinPolicy::AllSuccess if good < self.branches.len() - open => Some(Status::Failed),
            _ if open > 0 => None,
            JoinPolicy::FirstSuccess | JoinPolicy::Quorum(_) => Some(Status::Failed),
            JoinPolicy::WaitAll | JoinPolicy::AllSuccess if whole == self.branches.len() => {
                Some(Status::Succeeded)
            }
            JoinPolicy::WaitAll if good == 0 && !self.branches.is_empty() => Some(Status::Failed),
            JoinPolicy::WaitAll | JoinPolicy::AllSuccess => Some(Status::PartiallySucceeded),
        }
    }
}

#[cfg(test)]
mod tests {
    use fabro_types::NodeKind;

    use super::*;

    #[track_caller]
    fn check(ends: &[Option<Status>], policy: JoinPolicy, expect: Option<Status>) {
        let stage = ActiveStage::new("fork".into(), NodeKind::Parallel);
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
        assert_eq!(fan.joined(policy), expect, "{ends:?} {policy:?}");
    }

    #[test]
    fn join_policies() {
        use Status::{Failed, PartiallySucceeded, Succeeded};
        let yes = Some(Succeeded);
        let no = Some(Failed);
        let part = Some(PartiallySucceeded);
        check(&[yes, None], JoinPolicy::WaitAll, None);
        check(&[yes, yes], JoinPolicy::WaitAll, Some(Succeeded));
        check(&[yes, no], JoinPolicy::WaitAll, Some(PartiallySucceeded));
        check(&[part, yes], JoinPolicy::WaitAll, Some(PartiallySucceeded));
        check(&[no, no], JoinPolicy::WaitAll, Some(Failed));
        check(&[yes, None], JoinPolicy::AllSuccess, None);
        check(&[None, no, None], JoinPolicy::AllSuccess, Some(Failed));
        check(&[yes, yes], JoinPolicy::AllSuccess, Some(Succeeded));
        check(&[yes, part], JoinPolicy::AllSuccess, Some(PartiallySucceeded));
        check(&[no, None], JoinPolicy::FirstSuccess, None);
        check(&[None, yes], JoinPolicy::FirstSuccess, Some(Succeeded));
        check(&[no, no], JoinPolicy::FirstSuccess, Some(Failed));
        check(&[yes, None, None], JoinPolicy::Quorum(Some(2)), None);
        check(&[yes, None, yes], JoinPolicy::Quorum(Some(2)), Some(Succeeded));
        check(&[no, no, None], JoinPolicy::Quorum(Some(2)), Some(Failed));
    }
}
