//! Failures that nothing has handled yet. Rules: `docs/workflow-language.md`, "What a green run
//! means".

use std::sync::Arc;

use fabro_events::{EdgeChoice, StageFailure, Tier};
use fabro_types::{BranchPath, Status};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

/// A stage whose failure nothing has handled yet.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenFailure {
    /// The place in the log of the event that says so: of several failures, the first one may have caused the
    /// others.
    pub seq: u64,
    /// How the stage ended: `failed`, or `partially_succeeded` because of a failure.
    pub status: Status,
    /// The stage and its failure.
    pub stage: Arc<StageFailure>,
}

impl OpenFailure {
    pub(crate) fn branch(&self) -> &str {
        self.stage.branch.as_deref().unwrap_or_default()
    }

    /// Whether it happened in a branch of a fan-out of this node.
    pub(crate) fn is_under(&self, fan_out: &str) -> bool {
        BranchPath::new(self.branch()).fan_outs().any(|outer| outer.node() == fan_out)
    }
}

/// The failures of a line that nothing has handled yet: the first one of each node, and of each
/// branch that the node ran in at the same time.
#[derive(Clone, Debug, Default)]
pub struct OpenFailures {
    /// By node and branch.
    map: OrdMap<(Arc<str>, Arc<str>), OpenFailure>,
}

impl OpenFailures {
    /// The failures, by node and branch.
    pub fn iter(&self) -> impl Iterator<Item = &OpenFailure> {
        self.map.values()
    }

    /// A stage has failed. Of several failures of a node in one branch the first one is named; one in
    /// another branch may be allowed where this one is not.
    pub(crate) fn add(&mut self, failure: OpenFailure) {
        let node = Arc::clone(&failure.stage.node);
        let key = (Arc::clone(&node), failure.stage.branch.clone().unwrap_or_default());
        if failure.status != Status::Failed {
            // It ran again, and ended better.
            self.remove_node(&node);
        } else if self.map.get(&key).is_some_and(|open| open.status == Status::Failed) {
            return;
        }
        self.map.insert(key, failure);
    }

    /// The node ran again and ended well.
    pub(crate) fn remove_node(&mut self, node: &str) {
        let keys: Vec<_> = self.of_node(node).cloned().collect();
        self.remove(&keys);
    }

    fn remove(&mut self, keys: &[(Arc<str>, Arc<str>)]) {
        for key in keys {
            self.map.remove(key);
        }
    }

    /// The failure of this node is handled, and with it those in the branches of its fan-outs.
    pub(crate) fn handled(&mut self, node: &str) {
        self.remove_node(node);
        self.remove_under(node);
    }

    /// The branches of this node's fan-outs no longer matter.
    pub(crate) fn remove_under(&mut self, fan_out: &str) {
        let under = self.map.iter().filter(|(_, open)| open.is_under(fan_out));
        let keys: Vec<_> = under.map(|(key, _)| key.clone()).collect();
        self.remove(&keys);
    }

    /// Adds what a branch changed since the fan-out began. Without `keeps_new` the failures of the
    /// branch itself are left out: the fan-out did without it.
    pub(crate) fn absorb(&mut self, base: &Self, branch: &Self, keeps_new: bool) {
        for item in base.map.diff(&branch.map) {
            match item {
                DiffItem::Add(key, open) | DiffItem::Update { new: (key, open), .. } => {
                    if keeps_new {
                        self.map.insert(key.clone(), open.clone());
                    }
                }
                DiffItem::Remove(key, _) => _ = self.map.remove(key),
            }
        }
    }

    fn of_node(&self, node: &str) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> {
        let from = (!self.map.is_empty()).then(|| (Arc::from(node), Arc::from("")));
        let keys = from.into_iter().flat_map(|from| self.map.range(from..)).map(|(key, _)| key);
        keys.take_while(move |(name, _)| **name == *node)
    }
}

/// Whether a failure that leaves by this edge is handled: it goes back to be tried again, or an edge
/// with a condition could have told it from a success.
pub(crate) fn handles_failure(choice: &EdgeChoice) -> bool {
    let jumps = [Tier::RetryTarget, Tier::FallbackRetryTarget, Tier::GoalGate];
    jumps.contains(&choice.tier)
        || choice.restart
        || choice.candidates.iter().any(|edge| edge.condition.is_some())
}
