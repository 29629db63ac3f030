//! What a model's answer asks of the engine, as far as it may.

use fabro_context::keys;
use fabro_engine::Stage;
use fabro_events::EventBody;
use fabro_routing::OutcomeWord;
use fabro_types::{Failure, FailureClass, Outcome, Status};

use crate::common::warn;

/// Puts the directives of `text` into the outcome; what is not allowed is reported and left out.
pub(crate) async fn apply(outcome: &mut Outcome, stage: &Stage, text: &str) {
    let Some(found) = fabro_routing::extract(text) else { return };
    for warning in found.warnings {
        warn(&stage.reporter, "directive", warning.message).await;
    }
    let directives = found.directives;
    match directives.outcome {
        Some(OutcomeWord::Status(status)) => outcome.status = status,
        Some(OutcomeWord::Custom(word)) if takes(stage, &word) => outcome.word = Some(word),
        Some(OutcomeWord::Custom(word)) => {
            let message =
                format!("outcome `{word}` is no status, and no edge asks for it: ignored");
            warn(&stage.reporter, "directive", message).await;
        }
        None => {}
    }
    if outcome.status == Status::Failed {
        let reason = directives.failure_reason.unwrap_or_else(|| "the stage said it failed".into());
        let failure = Failure::new(FailureClass::Deterministic, reason);
        outcome.failure = Some(Failure { stated: true, ..failure });
    } else {
        outcome.notes = directives.failure_reason;
    }
    outcome.preferred_label = directives.preferred_next_label;
    outcome.suggested_next_ids = directives.suggested_next_ids;
    for (key, value) in directives.context_updates {
        match keys::refusal(&key) {
            None => {
                outcome.context_updates.insert(key, value);
            }
            Some(reason) => {
                // Nothing is lost when the driver is ending: the stage runs again.
                let _ = stage.reporter.report(EventBody::ContextRefused { key, reason }).await;
            }
        }
    }
}

fn takes(stage: &Stage, word: &str) -> bool {
    stage.plan.node(&stage.at.node).is_some_and(|(ix, _)| stage.plan.takes_word(ix, word))
}
