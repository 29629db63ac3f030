use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a retry takes back: of each line the events after a place of its own, so that what branches have finished
/// stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPoint {
    /// The last event that counts of each line that is continued from an earlier place; the main line's under the
    /// empty name.
    pub lines: BTreeMap<Arc<str>, u64>,
    /// The fan-outs that begin again later: nothing of their branches counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fan_outs: Vec<Arc<str>>,
    /// The stages that run again, by their full names.
    pub stages: Vec<Arc<str>>,
}

impl RetryPoint {
    /// Whether it takes back an earlier event of a line.
    pub fn takes_back(&self, seq: u64, branch: Option<&str>) -> bool {
        let line = branch.unwrap_or_default();
        self.lines.get(line).is_some_and(|last| seq > *last)
            || self.fan_outs.iter().any(|fan_out| {
                line.strip_prefix(&**fan_out).is_some_and(|rest| rest.starts_with('/'))
            })
    }
}
