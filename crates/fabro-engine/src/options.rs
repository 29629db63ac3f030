use std::collections::BTreeMap;
use std::sync::Arc;

/// How one driver runs a plan.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// A token limit besides the workflow's own; the lower one counts.
    pub max_tokens: Option<u64>,
    /// For a replay: stages are retried without a delay, and only these attempts of fan-outs reach
    /// their time limits, the one with the lowest number first, when stages wait for what will not
    /// come. Each is named as the names of its branches begin: `outer@1/lint/deep@1#2`.
    pub replay_overdue: Option<BTreeMap<Arc<str>, u64>>,
}

impl RunOptions {
    pub(crate) fn has_delays(&self) -> bool {
        self.replay_overdue.is_none()
    }

    /// When this attempt of a fan-out reaches its time limit, as a rank among the others.
    pub(crate) fn overdue_rank(&self, fan_out: &str) -> Option<u64> {
        self.replay_overdue.as_ref()?.get(fan_out).copied()
    }
}
