//! The stage that a sub-workflow runs for.

use std::sync::Arc;

use fabro_types::{BranchPath, RunId};
use serde::{Deserialize, Serialize};

/// The stage that a sub-workflow's run belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentStage {
    /// The parent run.
    pub run_id: RunId,
    /// Its node.
    pub node_id: Arc<str>,
    /// The visit of that node.
    pub visit: u32,
    /// The branch that the stage is in; absent on the main line, and in logs of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// Which attempt of the stage; 0 in logs of older versions.
    #[serde(default, skip_serializing_if = "is_unrecorded")]
    pub attempt: u32,
}

impl ParentStage {
    /// Whether it is this stage. Where an older version has recorded no branch, any branch may be meant.
    pub fn is(&self, branch: Option<&str>, node: &str, visit: u32) -> bool {
        let is_branch = self.attempt == 0 || self.branch.as_deref() == branch;
        is_branch && *self.node_id == *node && self.visit == visit
    }

    /// The full name of the stage, `[BRANCH/]NODE@VISIT`, from the second attempt on with its number.
    pub fn name(&self) -> String {
        let branch = BranchPath::new(self.branch.as_deref().unwrap_or_default());
        let stage = branch.stage(&self.node_id, self.visit);
        if self.attempt > 1 { format!("{stage}.{}", self.attempt) } else { stage }
    }
}

fn is_unrecorded<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
