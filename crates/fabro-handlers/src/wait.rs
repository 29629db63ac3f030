//! Waiting for a fixed time.

use async_trait::async_trait;
use fabro_engine::{Handler, NodeBody, Stage, StageEnd};
use fabro_types::{Failure, FailureClass, Outcome};

use crate::common::canceled;

/// Waits for a wait node's `duration`.
pub struct WaitHandler;

#[async_trait]
impl Handler for WaitHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let NodeBody::Wait(duration) = stage.spec().body else {
            return Failure::new(FailureClass::Structural, "the node is not a wait").into();
        };
        let Some(duration) = duration else {
            let failure =
                Failure::new(FailureClass::Deterministic, "the wait node has no `duration`");
            let remedy = "add one, such as duration=30s".to_owned();
            return Failure { details: Some(remedy), ..failure }.into();
        };
        tokio::select! {
            // Time that passed under an earlier driver counts.
            () = tokio::time::sleep(duration.saturating_sub(stage.begun)) => Outcome::succeeded().into(),
            () = stage.cancel.cancelled() => canceled().into(),
        }
    }
}
