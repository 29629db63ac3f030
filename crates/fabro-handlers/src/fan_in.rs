//! Fan-ins: the best branch by status, or by asking a model.

use std::sync::Arc;

use async_trait::async_trait;
use fabro_engine::{Handler, Stage, StageEnd};
use fabro_types::{Failure, FailureClass, Outcome};

use crate::common::warn;
use crate::llm::{FanIn, LlmHandler, NoReply, Reply};

/// Chooses among the branches of a fan-out: by status and order, or by asking a model.
pub struct FanInHandler {
    llm: Arc<LlmHandler>,
}

impl FanInHandler {
    /// A fan-in with a prompt asks by way of `llm`.
    pub fn new(llm: Arc<LlmHandler>) -> Self {
        Self { llm }
    }

    async fn run(&self, stage: &mut Stage) -> Result<StageEnd, StageEnd> {
        let fan_in = FanIn::of(stage)?;
        if stage.spec().llm().is_none() {
            return Ok(fan_in.best(Outcome::succeeded()).into());
        }
        let recorded = stage.recorded().await?;
        let request = self.llm.prepare_from(stage, &recorded).await?;
        let node = Arc::clone(&stage.at.node);
        let interpret = |reply: &Reply| fan_in.interpret(&node, reply);
        let outcome = match self.llm.ask(stage, &request, &recorded, &interpret).await {
            Ok(outcome) => outcome,
            Err(NoReply::End(end)) => return Err(end),
            Err(NoReply::Failed(outcome)) => {
                // Where no model could be asked, the workflow decides: it pauses, or handles the failure.
                let ends_stage = |failure: &Failure| {
                    failure.class == FailureClass::Canceled || failure.unavailable.is_some()
                };
                let Some(why) = outcome.failure.as_ref().filter(|it| !ends_stage(it)) else {
                    return Ok(request.finish(fan_in.best(*outcome)));
                };
                // The branches have succeeded: the stage does not fail because the answer does.
                let warning = format!("the model cannot choose: {}", why.message);
                warn(&stage.reporter, "fan_in", warning).await;
                Outcome {
                    notes: Some("the model cannot choose; the best status won".to_owned()),
                    usage: outcome.usage,
                    ..fan_in.best(Outcome::succeeded())
                }
            }
        };
        Ok(request.finish(outcome))
    }
}

#[async_trait]
impl Handler for FanInHandler {
    async fn execute(&self, mut stage: Stage) -> StageEnd {
        self.run(&mut stage).await.unwrap_or_else(|end| end)
    }
}
