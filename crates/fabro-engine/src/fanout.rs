//! Fan-outs: which branches there are, which run (`max_parallel`), and when they are joined (the join policy:
//! `wait_all`, `first_success`, where branches race, or a quorum).

use std::collections::HashMap;
use std::sync::Arc;

use fabro_events::{ForEach, PlannedBranch};
use fabro_plan::JoinPolicy;
use fabro_types::{BranchPath, Failure, Status};

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
    /// The branches, in the order of the edges, or of the list.
    pub branches: Vec<Branch>,
    /// The list, when there is one.
    pub for_each: Option<Arc<ForEach>>,
    /// The place of each branch.
    places: HashMap<Arc<str>, usize>,
    /// How many branches have begun: they begin in order.
    begun: usize,
    /// How many of those that have begun have ended.
    done: usize,
    ended: Ended,
}

/// How many branches have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ended {
    all: usize,
    /// Succeeded, at least partially.
    good: usize,
    /// Succeeded.
    whole: usize,
}

/// One branch of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Its name in events, which is its cursor's too.
    pub name: Arc<str>,
    /// Its first node.
    pub target: Arc<str>,
    /// Which of the node's outgoing edges leads there, where the target does not tell.
    pub edge: Option<u32>,
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
        let branches: Vec<Branch> = planned
            .iter()
            .map(|branch| Branch {
                name: Arc::clone(&branch.branch),
                target: Arc::clone(&branch.target),
                edge: branch.edge,
                end: None,
            })
            .collect();
        let names = branches.iter().map(|branch| Arc::clone(&branch.name));
        let places = names.zip(0..).collect();
        let for_each = stage.for_each.clone();
        let ended = Ended::default();
        Self { stage, join, max_parallel, branches, for_each, places, begun: 0, done: 0, ended }
    }

    fn place(&self, name: &str) -> Result<usize, Inconsistent> {
        let missing = || Inconsistent::new(format!("the fan-out has no branch `{name}`"));
        self.places.get(name).copied().ok_or_else(missing)
    }

    /// A branch begins; returns its place.
    pub(crate) fn begin(&mut self, name: &str) -> Result<usize, Inconsistent> {
        let place = self.place(name)?;
        if place != self.begun {
            return Err(Inconsistent::new(format!("the branch `{name}` begins out of order")));
        }
        self.begun += 1;
        Ok(place)
    }

    /// A branch has ended, or is not needed; returns whether it had begun.
    pub(crate) fn end(&mut self, name: &str, end: BranchEnd) -> Result<bool, Inconsistent> {
        let place = self.place(name)?;
        let has_begun = place < self.begun;
        self.done += usize::from(has_begun);
        self.ended.all += 1;
        self.ended.good += usize::from(end.status.is_good());
        self.ended.whole += usize::from(end.status == Status::Succeeded);
        if self.branches[place].end.replace(end).is_some() {
            return Err(Inconsistent::new(format!("the branch `{name}` ended twice")));
        }
        Ok(has_begun)
    }

    /// The number of branches that have ended well, partly well included.
    pub(crate) fn succeeded(&self) -> usize {
        self.ended.good
    }

    /// Branches that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Arc<str>> {
        self.branches.iter().filter(|branch| branch.end.is_none()).map(|branch| &branch.name)
    }

    /// Branches that have neither begun nor ended, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &Branch> {
        self.branches[self.begun..].iter().filter(|branch| branch.end.is_none())
    }

    /// Branches that may start now, in order.
    pub(crate) fn startable(&self) -> impl Iterator<Item = &Branch> {
        let live = self.begun - self.done;
        self.waiting().take((self.max_parallel as usize).saturating_sub(live))
    }

    /// How a branch is called in its results: by its first node, of a list with the number of the
    /// element.
    pub(crate) fn id(&self, branch: &Branch) -> Arc<str> {
        match self.for_each {
            Some(_) => BranchPath::new(&branch.name).name().into(),
            None => Arc::clone(&branch.target),
        }
    }

    /// How many branches have to succeed for the fan-out to succeed.
    pub(crate) fn needed(&self, policy: JoinPolicy) -> usize {
        let all = self.branches.len();
        match policy {
            JoinPolicy::FirstSuccess => 1,
            JoinPolicy::Quorum(needed) => needed.map_or(all / 2 + 1, |needed| needed as usize),
            JoinPolicy::WaitAll | JoinPolicy::AllSuccess => all,
        }
    }

    /// The status of the fan-out by its `join_policy` (`wait_all`, `first_success`, …); `None` while it needs more branches to end.
    pub(crate) fn joined(&self, policy: JoinPolicy) -> Option<Status> {
        let Ended { all, good, whole } = self.ended;
        let open = self.branches.len() - all;
        if self.branches.is_empty() {
            return Some(Status::Succeeded);
        }
        let needed = self.needed(policy);
        match policy {
            JoinPolicy::FirstSuccess | JoinPolicy::Quorum(_) if good >= needed => {
                Some(Status::Succeeded)
            }
            JoinPolicy::Quorum(_) if good + open < needed => Some(Status::Failed),
            JoinPolicy::AllSuccess if good < all => Some(Status::Failed),
            _ if open > 0 => None,
            JoinPolicy::FirstSuccess | JoinPolicy::Quorum(_) => Some(Status::Failed),
            JoinPolicy::WaitAll | JoinPolicy::AllSuccess if whole == self.branches.len() => {
                Some(Status::Succeeded)
            }
            JoinPolicy::WaitAll if good == 0 => Some(Status::Failed),
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
        let planned: Vec<PlannedBranch> = (0..ends.len())
            .map(|index| PlannedBranch {
                branch: format!("fork@1/b{index}").into(),
                target: format!("b{index}").into(),
                edge: None,
            })
            .collect();
        let mut fan = FanOut::new(stage, &planned, None, 4);
        for (branch, end) in planned.iter().zip(ends) {
            fan.begin(&branch.branch).unwrap();
            if let Some(status) = *end {
                let end = BranchEnd { status, failure: None, canceled: false };
                fan.end(&branch.branch, end).unwrap();
            }
        }
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
        for policy in [JoinPolicy::WaitAll, JoinPolicy::FirstSuccess, JoinPolicy::Quorum(Some(2))] {
            check(&[], policy, Some(Succeeded));
        }
    }
}
