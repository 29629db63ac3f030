//! The name of one attempt of one stage.

use std::sync::Arc;

use crate::active_stage::ActiveStage;

/// One attempt of one stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) branch: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) visit: u32,
    pub(crate) attempt: u32,
}

impl Key {
    pub(crate) fn of(branch: &Arc<str>, at: &ActiveStage) -> Self {
        Self {
            branch: Arc::clone(branch),
            node: Arc::clone(&at.node),
            visit: at.visit,
            attempt: at.attempt,
        }
    }
}
