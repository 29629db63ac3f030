//! What every request begins with: the system prompt, and the definitions of the tools.

use std::borrow::Cow;
use std::sync::Arc;

use fabro_compaction::Meter;
use fabro_events::Given;
use fabro_llm::ToolSpec;
use fabro_types::BlobRef;
use serde_json::Value;

use crate::Settings;

/// A meter that has counted what every request begins with.
pub(crate) fn meter(settings: &Settings, specs: &[ToolSpec]) -> Meter {
    let mut before = Cow::Borrowed(settings.system.as_str());
    if let Some(tools) = definitions(specs) {
        before.to_mut().push_str(&tools.to_string());
    }
    let mut meter = Meter::default();
    meter.set_system_prompt(&before);
    meter
}

/// The same for a record, redacted; `None` when there is nothing.
pub(crate) fn recorded_prefix(settings: &Settings, specs: &[ToolSpec]) -> Option<Box<Given>> {
    let text = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let all = [text(&settings.system), definitions(specs), text(&opening(settings))];
    let [system, tools, opening] = all.map(|value| {
        let mut value = value?;
        settings.redactor.redact_value(&mut value);
        Some(Arc::new(value))
    });
    let given = Given { system, tools, opening };
    (given != Given::default()).then(|| Box::new(given))
}

/// What stands before the first message: the opening of the settings, and the JSON Schema of the answer. The
/// schema is there whether or not the provider takes it, so that the conversation is the same where a provider
/// refuses it, and where another one is asked.
fn opening(settings: &Settings) -> String {
    let schema = settings.output_schema.as_ref().map(|schema| {
        format!(
            "Your final answer must be one JSON object that matches the JSON Schema below, without any \
             other text.\n\n{schema}"
        )
    });
    let texts = [Some(settings.opening.clone()), schema].into_iter().flatten();
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// A message as the model gets it.
pub(crate) fn opened(opening: &str, text: &str) -> String {
    format!("{opening}\n\n{text}")
}

/// Whether a record, whose journal may have put its values into blobs, has the same system prompt and tools.
pub(crate) fn is_same(recorded: &Given, given: &Given) -> bool {
    let same = |recorded: &Option<Arc<Value>>, given: &Option<Arc<Value>>| match (recorded, given) {
        (Some(recorded), Some(given)) => {
            recorded == given
                || BlobRef::from_value(recorded)
                    .is_some_and(|blob| blob == BlobRef::of(given.to_string().as_bytes()))
        }
        (recorded, given) => recorded.is_none() && given.is_none(),
    };
    same(&recorded.system, &given.system) && same(&recorded.tools, &given.tools)
}

fn definitions(specs: &[ToolSpec]) -> Option<Value> {
    #[expect(clippy::expect_used, reason = "a definition has text keys only")]
    (!specs.is_empty()).then(|| serde_json::to_value(specs).expect("a definition is always JSON"))
}
