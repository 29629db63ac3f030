use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};
use fabro_types::BlobRef;
use serde::Serialize;
use serde_json::Value;

use crate::ReportError;
use crate::at::{StageKey, find};
use crate::blobs::read;

/// What a model receives besides the messages; empty in logs of versions that did not record it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelInputs {
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Value>,
    /// The definitions of its tools: a list of objects `{name, description, parameters}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Value>,
    /// What stands before the text of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opening: Option<Value>,
}

/// One message of an agent's conversation, as it was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TranscriptMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The session of a subagent; absent for the stage's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Arc<str>>,
    /// A text, or the parts of a message; of a tool, the result that the model received.
    pub content: Value,
    /// Of a tool: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Of a tool: the id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Of a tool: the call failed, and the content is the reason.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Of a summary: how many earlier messages it replaced. They stay in this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u64>,
    /// What the model receives from this message on, where it is new: in the conversation of a
    /// subagent, and where it changed.
    #[serde(flatten)]
    pub given: ModelInputs,
}

/// A stage (as `NODE@VISIT`) and the events of its last attempt: its conversation with a model, and
/// those of its subagents. `stage` names it as for [`stage()`](crate::stage()); without it, it is the
/// last stage that used a model.
///
/// # Errors
///
/// The run has no such stage or several, or no stage that used a model.
pub fn conversation<'e>(
    events: &'e [Event],
    stage: Option<&str>,
) -> Result<(String, Vec<&'e Event>), ReportError> {
    let events = checkpoint::effective(events);
    let key = match stage {
        Some(stage) => find(&events, stage)?,
        None => last_with_model(&events).ok_or(ReportError::NoConversation)?,
    };
    Ok((key.name(), of_last_attempt(&events, &key)))
}

/// Whether an event is a message of a conversation.
pub(crate) fn is_message(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::AgentMessage { .. }
            | EventBody::AgentToolCompleted(_)
            | EventBody::AgentCompactionCompleted(_)
            | EventBody::AgentSteered { .. }
    )
}

/// What the stage's model received at first, and the messages of its conversation. Large ones are read back; without
/// `blobs` they stay references.
pub(crate) fn transcript(
    events: &[&Event],
    key: &StageKey,
    blobs: Option<&dyn BlobStore>,
) -> Result<(ModelInputs, Vec<TranscriptMessage>), ReportError> {
    let events = of_last_attempt(events, key);
    let messages = events.into_iter().filter_map(|event| message(event, key, blobs).transpose());
    let mut messages = messages.collect::<Result<Vec<_>, _>>()?;
    let mut own = messages.iter_mut().filter(|message| message.session_id.is_none());
    let first = own.find(|message| message.given != ModelInputs::default());
    let given = first.map(|message| std::mem::take(&mut message.given)).unwrap_or_default();
    Ok((given, messages))
}

fn last_with_model(events: &[&Event]) -> Option<StageKey> {
    let uses_model = |event: &&&Event| matches!(event.entry.body, EventBody::AgentMessage { .. });
    events.iter().rev().filter(uses_model).find_map(|event| StageKey::of(event))
}

fn of_last_attempt<'e>(events: &[&'e Event], key: &StageKey) -> Vec<&'e Event> {
    let own: Vec<&Event> = events.iter().copied().filter(|event| key.is(event)).collect();
    let retried = |event: &&Event| matches!(event.entry.body, EventBody::StageRetrying { .. });
    let from = own.iter().rposition(retried).map_or(0, |at| at + 1);
    own[from..].to_vec()
}

fn message(
    event: &Event,
    key: &StageKey,
    blobs: Option<&dyn BlobStore>,
) -> Result<Option<TranscriptMessage>, ReportError> {
    let read = |what: &'static str, value: &Value| match BlobRef::from_value(value).zip(blobs) {
        Some((blob, blobs)) => read(key, what, &blob, blobs),
        None => Ok(value.clone()),
    };
    let whole = |value: &Value| read("a message", value);
    let session_id = event.entry.parent_session_id.as_ref().and(event.entry.session_id.clone());
    let new = |role: &str, content| TranscriptMessage {
        role: role.to_owned(),
        session_id: session_id.clone(),
        content,
        tool: None,
        call_id: None,
        is_error: false,
        replaces: None,
        given: ModelInputs::default(),
    };
    Ok(Some(match &event.entry.body {
        EventBody::AgentMessage { role, text, message, given, .. } => {
            let content = match message {
                Some(message) => content(whole(message)?),
                None => Value::from(text.as_str()),
            };
            let given = given.as_deref().map(|given| -> Result<_, ReportError> {
                let system = given.system.as_deref().map(|it| read("the system prompt", it));
                let tools = given.tools.as_deref().map(|it| read("the tools", it));
                let opening = given.opening.as_deref().map(|it| read("the opening", it));
                Ok(ModelInputs {
                    system: system.transpose()?,
                    tools: tools.transpose()?,
                    opening: opening.transpose()?,
                })
            });
            TranscriptMessage {
                given: given.transpose()?.unwrap_or_default(),
                ..new(role, content)
            }
        }
        EventBody::AgentToolCompleted(end) => TranscriptMessage {
            tool: Some(end.tool.clone()),
            call_id: Some(end.call_id.clone()),
            is_error: end.is_error,
            ..new("tool", whole(&end.output)?)
        },
        EventBody::AgentCompactionCompleted(done) => TranscriptMessage {
            replaces: Some(done.replaced()),
            ..new("system", whole(&done.summary)?)
        },
        EventBody::AgentSteered { text, .. } => new("user", Value::from(text.as_str())),
        _ => return Ok(None),
    }))
}

/// The content of a message object; anything else is content itself.
fn content(mut message: Value) -> Value {
    match message.get_mut("content") {
        Some(content) => content.take(),
        None => message,
    }
}
