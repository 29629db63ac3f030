//! A stage for which no model or agent is available, and whether its failure pauses the run.

use std::sync::Arc;

use fabro_events::StageFailure;
use fabro_types::Usage;

use crate::inconsistent::Inconsistent;
use crate::input::Finished;
use crate::key::Key;
use crate::machine::Machine;
use crate::pause_rule::pauses;

/// A stage for which no model or agent is available.
pub(crate) struct UnavailableStage {
    pub(crate) failure: StageFailure,
    /// What was used since the last request that is recorded.
    pub(crate) used: Usage,
}

impl UnavailableStage {
    /// Requests to a model that failed since the last one that is recorded.
    pub(crate) fn failed_turns(&self) -> u32 {
        self.used.requests()
    }
}

impl Machine {
    /// The failure that the run pauses for instead of recording it as the result of the stage;
    /// `None` when it is a result, or another attempt follows.
    pub(crate) fn unavailable(
        &self,
        key: &Key,
        finished: &Finished,
    ) -> Result<Option<UnavailableStage>, Inconsistent> {
        let failure = finished.outcome.failure.as_ref();
        let Some(failure) = failure.filter(|failure| failure.unavailable.is_some()) else {
            return Ok(None);
        };
        let ix = self.node_index(&key.node)?;
        let is_branch = self.cursor(&key.branch)?.is_branch();
        let failure = failure.clone().signed(&key.node);
        let retries = self.retry_delay(&key.branch, self.plan.spec(ix), &failure)?.is_some();
        if retries || !pauses(&self.plan, ix, is_branch) {
            return Ok(None);
        }
        let recorded = &self.running_stage(&key.branch)?.spent;
        let used = finished.outcome.usage.as_ref().map(|usage| usage.without(recorded));
        let branch = is_branch.then(|| Arc::clone(&key.branch));
        let node = Arc::clone(&key.node);
        Ok(Some(UnavailableStage {
            failure: StageFailure { node, visit: key.visit, branch, failure },
            used: used.unwrap_or_default(),
        }))
    }
}
