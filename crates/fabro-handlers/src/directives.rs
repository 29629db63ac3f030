//! What a model's answer asks of the engine, as far as it may.

use fabro_context::keys;
use fabro_engine::Stage;
use fabro_events::EventBody;
use fabro_redact::Redactor;
use fabro_types::Outcome;

use crate::common::warn;

/// Puts the directives of `text` into the outcome, without secrets; what is not allowed is reported
/// and left out.
pub(crate) async fn apply(outcome: &mut Outcome, stage: &Stage, redactor: &Redactor, text: &str) {
    // The text was looked through already, but not what its JSON writes in escapes.
    let object = fabro_routing::extract(text).map(|found| redactor.redact_json(&text[found.span]));
    let Some(found) = object.and_then(|object| fabro_routing::extract(&object)) else { return };
    for warning in found.warnings {
        warn(&stage.reporter, "directive", warning.message).await;
    }
    let mut directives = found.directives;
    let updates = std::mem::take(&mut directives.context_updates);
    let takes = |word: &str| {
        stage.plan.node(&stage.at.node).is_some_and(|(ix, _)| stage.plan.takes_word(ix, word))
    };
    if let Err(word) = directives.apply(outcome, takes) {
        let message = format!("outcome `{word}` is no status, and no edge asks for it: ignored");
        warn(&stage.reporter, "directive", message).await;
    }
    for (key, value) in updates {
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
