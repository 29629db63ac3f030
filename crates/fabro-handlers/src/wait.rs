//! Waiting for a fixed time.

use std::time::Duration;

use async_trait::async_trait;
use fabro_engine::{Handler, Stage, StageEnd};
use fabro_types::Outcome;

use crate::common::canceled;

/// Waits for a wait node's `duration`.
pub struct WaitHandler;

#[async_trait]
impl Handler for WaitHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let duration = stage.node().attrs.duration("duration").unwrap_or(Duration::ZERO);
        tokio::select! {
            () = tokio::time::sleep(duration) => Outcome::succeeded().into(),
            () = stage.cancel.cancelled() => canceled().into(),
        }
    }
}
