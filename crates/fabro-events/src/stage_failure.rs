use std::sync::Arc;

use fabro_types::{BranchPath, Failure};
use serde::{Deserialize, Serialize};

/// A stage and its failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageFailure {
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// The branch it ran in; absent on the main line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// Why it failed.
    pub failure: Failure,
}

impl std::fmt::Display for StageFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let details = self.failure.details.as_ref().map(|details| format!(": {details}"));
        write!(f, "{}{}", self.headline(), details.unwrap_or_default())
    }
}

impl StageFailure {
    /// The stage and the failure, without its details.
    pub fn headline(&self) -> String {
        let branch = BranchPath::new(self.branch.as_deref().unwrap_or_default());
        format!("`{}{}` failed: {}", self.node, branch.elements(), self.failure.message)
    }

    /// The full name of the stage, `[BRANCH/]NODE@VISIT`.
    pub fn stage(&self) -> String {
        BranchPath::new(self.branch.as_deref().unwrap_or_default()).stage(&self.node, self.visit)
    }
}

/// A failed check that a person knew about when choosing an option of a gate, and that has not succeeded
/// since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverriddenCheck {
    /// The check and its failure.
    #[serde(flatten)]
    pub check: StageFailure,
    /// The gate.
    pub gate: Arc<str>,
    /// The option that was chosen there: its label, else its target.
    pub choice: Arc<str>,
    /// Who chose it.
    pub by: Arc<str>,
}

impl std::fmt::Display for OverriddenCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { check, gate, choice, by } = self;
        write!(f, "{}, by {by} ({choice} at {gate}): {}", check.node, check.failure.message)
    }
}
