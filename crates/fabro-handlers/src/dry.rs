//! Dry runs: the way through a workflow without executing anything.

use async_trait::async_trait;
use fabro_engine::{Handler, Stage, StageEnd, keys};
use fabro_types::{NodeKind, Outcome};

/// Ends every stage at once, with the keys that its handler would write.
pub struct DryHandler;

#[async_trait]
impl Handler for DryHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let outcome = Outcome { notes: Some("dry run".to_owned()), ..Outcome::succeeded() };
        match stage.spec().kind {
            NodeKind::Command => outcome
                .with_update(keys::COMMAND_OUTPUT, "")
                .with_update(keys::COMMAND_STDERR, "")
                .with_update(keys::COMMAND_EXIT_CODE, 0),
            _ => outcome,
        }
        .into()
    }
}
