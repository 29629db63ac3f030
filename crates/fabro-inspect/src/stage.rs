use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_context::keys;
use fabro_engine::checkpoint;
use fabro_events::{CompletedStage, Event, EventBody};
use fabro_run::{Gate, open_gates};
use fabro_types::{BlobRef, Outcome};
use serde::Serialize;
use serde_json::Value;

use crate::ReportError;
use crate::at::{end_of, find};
use crate::blobs::read;
use crate::conversation::{ModelInputs, TranscriptMessage, transcript};

/// One visit of a node: its inputs and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// What the model received before the prompt, in the last attempt.
    #[serde(flatten)]
    pub given: ModelInputs,
    /// The prompt; `None` for stages without a model.
    pub prompt: Option<String>,
    /// The answer of the model, or the output of the command.
    pub response: Option<Value>,
    /// The outcome; `None` while it is running.
    pub outcome: Option<Outcome>,
    /// Its question to a person, while it waits for the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// Its conversation with a model, of its last attempt; left out when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<TranscriptMessage>,
}

/// A stage, named as [`StageName`](checkpoint::StageName) has it.
/// Prompt and response are read back from `blobs`, unless they are too large for that; large values
/// in the outcome stay references.
pub fn stage(
    events: &[Event],
    stage: &str,
    blobs: &dyn BlobStore,
) -> Result<StageReport, ReportError> {
    let gates = open_gates(events);
    let events = checkpoint::effective(events);
    let key = find(&events, stage)?;
    let end = end_of(&events, &key).and_then(|at| match &events[at].entry.body {
        EventBody::StageCompleted(end) | EventBody::StageFailed(end) => Some(end),
        _ => None,
    });
    let prompt = end.and_then(|end| end.prompt).map(|blob| read(&key, "the prompt", &blob, blobs));
    let response = end.and_then(|end| response(&key.node, end));
    let response = response.map(|value| match BlobRef::from_value(&value) {
        Some(blob) => read(&key, "the response", &blob, blobs),
        None => Ok(Value::clone(&value)),
    });
    let (given, transcript) = transcript(&events, &key, blobs)?;
    Ok(StageReport {
        given,
        transcript,
        prompt: prompt.transpose()?.map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        }),
        response: response.transpose()?,
        outcome: end.map(|end| end.outcome.clone()),
        gate: gates.into_iter().find(|gate| {
            (&gate.node, gate.visit, &gate.branch) == (&key.node, key.visit, &key.branch)
        }),
        node: key.node,
        visit: key.visit,
    })
}

/// The answer of the stage's model, else the output of its command.
fn response(node: &str, end: &CompletedStage) -> Option<Arc<Value>> {
    let updates = &end.outcome.context_updates;
    let own = format!("{}{node}", keys::RESPONSE_PREFIX);
    updates.get(&own).or_else(|| updates.get(keys::COMMAND_OUTPUT)).cloned()
}
