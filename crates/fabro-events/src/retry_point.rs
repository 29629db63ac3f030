use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The events that a retry discards. Each line has its own cutoff, so that finished work in branches is
/// kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPoint {
    /// The last event to keep of each affected line. The main line has the empty name.
    pub lines: BTreeMap<Arc<str>, u64>,
    /// The fan-outs that start over: all events of their branches are discarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fan_outs: Vec<Arc<str>>,
    /// The full names of the stages that run again.
    pub stages: Vec<Arc<str>>,
}

impl RetryPoint {
    /// Whether it discards an earlier event of a line.
    pub fn takes_back(&self, seq: u64, branch: Option<&str>) -> bool {
        let line = branch.unwrap_or_default();
        self.lines.get(line).is_some_and(|last| seq > *last)
            || self.fan_outs.iter().any(|fan_out| {
                line.strip_prefix(&**fan_out).is_some_and(|rest| rest.starts_with('/'))
            })
    }
}
