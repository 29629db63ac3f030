//! The end of a fan-out: which branch was best.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_engine::{Handler, Stage, StageEnd, keys};
use fabro_types::{Failure, FailureClass, Outcome, Status};
use serde_json::Value;

use crate::common::{text_of, value_of, warn};
use crate::llm::{
    Interpretation, LlmHandler, NoReply, Reply, StageRequest, cannot_record, response_outcome,
};
use crate::render::render_prompt;

/// How many characters of each branch's answer a model that chooses is shown.
const SHOWN: usize = 4_000;

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
        let results = results(stage)?;
        let mut ranked: Vec<&Value> =
            results.iter().filter(|result| status(result).is_some()).collect();
        ranked.sort_by_key(|result| status(result));
        let Some(best) = ranked.first().copied() else {
            return Err(failure("there is no fan-out to choose from").into());
        };
        if status(best) == Some(Status::Failed) {
            let message = format!("all {} branches failed", results.len());
            let outcome = chosen(Outcome::failed(failure(&message)), best);
            return Ok(outcome.into());
        }
        match stage.spec().llm() {
            None => Ok(chosen(Outcome::succeeded(), best).into()),
            Some(_) => self.choose(stage, &ranked, best).await,
        }
    }

    async fn choose(
        &self,
        stage: &mut Stage,
        ranked: &[&Value],
        best: &Value,
    ) -> Result<StageEnd, StageEnd> {
        let mut text = render_prompt(stage)?;
        text.push_str("\n\n## Branches\n");
        for result in ranked {
            let id = result["id"].as_str().unwrap_or_default();
            let shown: String = answer(stage, &result["response"])?.chars().take(SHOWN).collect();
            let _ =
                write!(text, "\n### {id} ({})\n{shown}\n", result["status"].as_str().unwrap_or(""));
        }
        text.push_str("\nName the id of the best branch on the last line of your answer.");
        let recorded = stage.recorded().await.map_err(cannot_record)?;
        let request = StageRequest { message: text, ..StageRequest::default() };
        let node = Arc::clone(&stage.at.node);
        let interpret = |reply: &Reply| choice(&node, ranked, best, reply);
        let outcome = match self.llm.ask(stage, &request, &recorded, &interpret).await {
            Ok(outcome) => outcome,
            Err(NoReply::End(end)) => return Err(end),
            Err(NoReply::Failed(outcome)) => {
                let Some(why) =
                    outcome.failure.as_ref().filter(|it| it.class != FailureClass::Canceled)
                else {
                    return Ok(request.finish(*outcome));
                };
                // The branches have succeeded: the stage does not fail because the model does.
                let warning = format!("the model cannot choose: {}", why.message);
                warn(&stage.reporter, "fan_in", warning).await;
                Outcome {
                    notes: Some("the model cannot choose; the best status won".to_owned()),
                    usage: outcome.usage,
                    ..chosen(Outcome::succeeded(), best)
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

fn failure(message: &str) -> Failure {
    Failure::new(FailureClass::Deterministic, message)
}

fn results(stage: &Stage) -> Result<Vec<Value>, Failure> {
    let Some(value) = stage.context.get(keys::PARALLEL_RESULTS) else {
        return Err(failure("a fan-in needs a fan-out before it"));
    };
    Ok(value_of(stage, value)?.as_array().cloned().unwrap_or_default())
}

fn answer(stage: &Stage, value: &Value) -> Result<String, Failure> {
    if value.is_null() { Ok(String::new()) } else { text_of(stage, value) }
}

fn status(result: &Value) -> Option<Status> {
    Status::parse(result["status"].as_str()?)
}

fn chosen(outcome: Outcome, best: &Value) -> Outcome {
    outcome
        .with_update(keys::FAN_IN_BEST_ID, best["id"].clone())
        .with_update(keys::FAN_IN_BEST_OUTCOME, best["status"].clone())
        .with_update(keys::FAN_IN_BEST_HEAD_SHA, best["head_sha"].clone())
}

/// The outcome by the reply of a model that was asked for the best branch.
fn choice(node: &str, ranked: &[&Value], best: &Value, reply: &Reply) -> Interpretation {
    let named = named(&reply.text, ranked);
    let mut outcome = chosen(response_outcome(node, &reply.text), named.unwrap_or(best));
    if named.is_none() {
        outcome.notes = Some("the answer names no branch; the best status won".to_owned());
    }
    Interpretation::Valid { outcome: Box::new(outcome), notices: Vec::new() }
}

/// The branch whose id an answer names last.
fn named<'a>(text: &str, results: &[&'a Value]) -> Option<&'a Value> {
    text.lines().rev().find_map(|line| {
        let mut words = line.rsplit(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.find_map(|word| results.iter().copied().find(|result| result["id"] == word))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_line_with_one_id_names_the_branch() {
        let (fast, slow) = (json!({"id": "fast"}), json!({"id": "slow"}));
        let results = [&fast, &slow];
        for (text, id) in [
            ("slow is nice, but\n**fast**", Some("fast")),
            ("Best: `slow`.\n\nThank you", Some("slow")),
            ("fast or slow?", Some("slow")),
            ("fast is better, so not slow: fast", Some("fast")),
            ("breakfast", None),
        ] {
            assert_eq!(named(text, &results).map(|r| &r["id"]), id.map(Value::from).as_ref());
        }
    }
}
