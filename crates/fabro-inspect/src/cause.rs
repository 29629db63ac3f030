use std::sync::Arc;

use fabro_events::{EventBody, StageFailure};
use fabro_types::{Failure, FailureClass};
use serde::Serialize;

/// The first cause of a run's failure, of its partial success, or of its pause because no model or
/// agent was available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The node whose stage failed; left out when the cause is not a stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// Which visit of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visit: Option<u32>,
    /// The branch it ran in; left out on the main line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// What happened.
    pub message: String,
    /// What exactly is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
    /// The class of the failure.
    pub class: FailureClass,
    /// The full name of the stage, as commands take it.
    #[serde(skip)]
    pub stage: Option<String>,
}

impl Cause {
    /// The cause that the last event of a run names: `run.failed`, `run.completed` or `run.paused`.
    pub fn of(last: &EventBody) -> Option<Self> {
        match (last.causes().first(), last) {
            (Some(stage), _) => Some(Self::of_stage(stage)),
            (None, EventBody::RunFailed { failure, .. }) => Some(Self::of_failure(failure)),
            _ => None,
        }
    }

    /// The failure of a stage as a cause.
    pub fn of_stage(stage: &StageFailure) -> Self {
        Self {
            node: Some(Arc::clone(&stage.node)),
            visit: Some(stage.visit),
            branch: stage.branch.clone(),
            stage: Some(stage.stage()),
            ..Self::of_failure(&stage.failure)
        }
    }

    /// Whether it says more than the reason of the run's failure.
    pub fn adds_to(&self, failure: &Failure) -> bool {
        !failure.message.contains(&self.message)
    }

    /// A failure that is not that of a stage.
    pub fn of_failure(failure: &Failure) -> Self {
        Self {
            node: None,
            visit: None,
            branch: None,
            message: failure.message.clone(),
            details: failure.details.clone(),
            class: failure.class,
            stage: None,
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(stage) = &self.stage {
            write!(f, "{stage}: ")?;
        }
        write!(f, "{}", self.message)?;
        if let Some(details) = &self.details {
            write!(f, ": {details}")?;
        }
        match self.class {
            FailureClass::Deterministic => Ok(()),
            class => write!(f, " ({class})"),
        }
    }
}
