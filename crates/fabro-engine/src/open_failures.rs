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
    /// Failures that left by an edge that handles them, until the next stage that does work. If an
    /// exit comes first, they are unhandled.
    leaving: ByStage,
}

/// Failures by node and branch.
type ByStage = OrdMap<(Arc<str>, Arc<str>), OpenFailure>;

impl OpenFailures {
    /// The failures, by node and branch.
    pub fn iter(&self) -> impl Iterator<Item = &OpenFailure> {
        self.map.values()
    }

    /// The failures that left by an edge that handles them, unless an exit comes next.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &OpenFailure> {
        self.leaving.values()
    }

    /// Whether there are no failures, open or leaving.
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

    /// The failure of this node, and those in the branches of its fan-outs, leave by an edge that
    /// handles them.
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

    /// A stage that does work starts: the leaving failures are handled.
    pub(crate) fn handle_leaving(&mut self) {
        self.leaving = ByStage::new();
    }

    /// The line reaches an exit without a `status`: the leaving failures are unhandled.
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

/// Whether the edge handled a failure by the rule of older versions, whose logs do not record it: the
/// choice jumped back for a retry, or an edge of the node had a condition.
pub(crate) fn handled_by_legacy_rule(choice: &EdgeChoice) -> bool {
    is_jump(choice) || choice.candidates.iter().any(|edge| edge.condition.is_some())
}

/// Whether the choice jumps back for a retry.
pub(crate) fn is_jump(choice: &EdgeChoice) -> bool {
    let jumps = [Tier::RetryTarget, Tier::FallbackRetryTarget, Tier::GoalGate];
    jumps.contains(&choice.tier) || choice.restart
}

/// The failure of a goal gate that was never visited.
pub(crate) fn unvisited_gate_failure(gate: &str) -> Failure {
    let message = format!("the run reached its exit without visiting the goal gate `{gate}`");
    let remedy = "route every path through it, or set a `status` on the exit of the other paths";
    let failure = Failure::new(FailureClass::Deterministic, message).signed(gate);
    Failure { details: Some(remedy.to_owned()), ..failure }
}
