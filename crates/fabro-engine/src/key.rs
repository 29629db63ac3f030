//! The name of one attempt of one stage.

use std::sync::Arc;

use crate::active_stage::ActiveStage;
use crate::cursor::Position;
use crate::state::RunState;

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

    /// Whether this attempt of a stage, not a fan-out, is running.
    pub(crate) fn is_current(&self, state: &RunState) -> bool {
        match state.cursors.get(&self.branch).map(|cursor| &cursor.position) {
            Some(Position::Active(at)) => Self::of(&self.branch, at) == *self,
            _ => false,
        }
    }

    /// Whether this attempt of a fan-out is running.
    pub(crate) fn is_running_fan_out(&self, state: &RunState) -> bool {
        match state.cursors.get(&self.branch).map(|cursor| &cursor.position) {
            Some(Position::Fanned(fan)) => Self::of(&self.branch, &fan.stage) == *self,
            _ => false,
        }
    }
}
