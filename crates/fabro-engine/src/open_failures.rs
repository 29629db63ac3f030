//! Failures that nothing has handled yet. Rules: `docs/workflow-language.md`, "What a green run
//! means".

use std::sync::Arc;

use fabro_events::{EdgeChoice, StageFailure, Tier};
use fabro_types::{BranchPath, Failure, FailureClass, Status};
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
    map: ByStage,
    /// Those that have left by an edge which handles them, until the next stage that does something: if an
    /// exit comes first, nothing has handled them.
    leaving: ByStage,
}

/// Failures by node and branch.
type ByStage = OrdMap<(Arc<str>, Arc<str>), OpenFailure>;

impl OpenFailures {
    /// The failures, by node and branch.
    pub fn iter(&self) -> impl Iterator<Item = &OpenFailure> {
        self.map.values()
    }

    /// The failures that have left by an edge which handles them, if an exit does not come next.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &OpenFailure> {
        self.leaving.values()
    }

    /// Whether there are neither of them.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.leaving.is_empty()
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
        for map in [&mut self.map, &mut self.leaving] {
            for key in keys_of_node(map, node) {
                map.remove(&key);
            }
        }
    }

    /// The failure of this node leaves by an edge that handles it, and with it those in the branches of its
    /// fan-outs.
    pub(crate) fn leave(&mut self, node: &str) {
        let under = self.map.iter().filter(|(_, open)| open.is_under(node));
        let mut keys: Vec<_> = under.map(|(key, _)| key.clone()).collect();
        keys.extend(keys_of_node(&self.map, node));
        for key in keys {
            if let Some(open) = self.map.remove(&key) {
                self.leaving.insert(key, open);
            }
        }
    }

    /// A stage that does something starts: what has left is handled.
    pub(crate) fn handle_leaving(&mut self) {
        self.leaving = ByStage::new();
    }

    /// The line comes to an exit that says nothing of failures: what has left is not handled.
    pub(crate) fn reopen_leaving(&mut self) {
        for (key, open) in std::mem::take(&mut self.leaving) {
            self.map.entry(key).or_insert(open);
        }
    }

    /// The branches of this node's fan-outs no longer matter.
    pub(crate) fn remove_under(&mut self, fan_out: &str) {
        for map in [&mut self.map, &mut self.leaving] {
            let under = map.iter().filter(|(_, open)| open.is_under(fan_out));
            let keys: Vec<_> = under.map(|(key, _)| key.clone()).collect();
            for key in keys {
                map.remove(&key);
            }
        }
    }

    /// Adds what a branch changed since the fan-out began. Without `keeps_new` the failures of the
    /// branch itself are left out: the fan-out did without it.
    pub(crate) fn absorb(&mut self, base: &Self, branch: &Self, keeps_new: bool) {
        absorb(&mut self.map, &base.map, &branch.map, keeps_new);
        absorb(&mut self.leaving, &base.leaving, &branch.leaving, keeps_new);
    }
}

fn absorb(into: &mut ByStage, base: &ByStage, branch: &ByStage, keeps_new: bool) {
    for item in base.diff(branch) {
        match item {
            DiffItem::Add(key, open) | DiffItem::Update { new: (key, open), .. } => {
                if keeps_new {
                    into.insert(key.clone(), open.clone());
                }
            }
            DiffItem::Remove(key, _) => _ = into.remove(key),
        }
    }
}

fn keys_of_node(map: &ByStage, node: &str) -> Vec<(Arc<str>, Arc<str>)> {
    if map.is_empty() {
        return Vec::new();
    }
    let keys = map.range((Arc::from(node), Arc::from(""))..).map(|(key, _)| key);
    keys.take_while(|(name, _)| **name == *node).cloned().collect()
}

/// Whether the edge handled a failure by the rule of older versions, whose logs do not say: the failure went
/// back to be tried again, or an edge of the node had a condition.
pub(crate) fn handled_by_older_rule(choice: &EdgeChoice) -> bool {
    is_jump(choice) || choice.candidates.iter().any(|edge| edge.condition.is_some())
}

/// Whether the choice goes back to try again.
pub(crate) fn is_jump(choice: &EdgeChoice) -> bool {
    let jumps = [Tier::RetryTarget, Tier::FallbackRetryTarget, Tier::GoalGate];
    jumps.contains(&choice.tier) || choice.restart
}

/// The failure of a goal gate that no visit has reached.
pub(crate) fn never_reached(gate: &str) -> Failure {
    let message = format!("the run came to its exit, and never to the goal gate `{gate}`");
    let remedy = "lead every path through it, or give the exit of the other paths a `status`";
    let failure = Failure::new(FailureClass::Deterministic, message).signed(gate);
    Failure { details: Some(remedy.to_owned()), ..failure }
}
