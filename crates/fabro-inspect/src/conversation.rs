use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};
use fabro_types::BlobRef;
use serde::Serialize;
use serde_json::Value;

use crate::ReportError;
use crate::at::{StageKey, find};
use crate::stage::read;

/// What a model is given besides the messages; nothing in logs of versions that did not record it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Given {
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Value>,
    /// The definitions of its tools: a list of objects `{name, description, parameters}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Value>,
}

/// One message of an agent's conversation, as it was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spoken {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The session, where it is not the stage's own: an agent that another one began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Arc<str>>,
    /// What was said: a text, or the parts of a message; of a tool, what the model got to read.
    pub content: Value,
    /// Of a tool: which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Of a tool: which call of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Of a tool: it failed, and the content says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Of a summary: how many messages before it it replaced. They stay in this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u64>,
    /// What the model was given from this message on, where that is told here first: in the
    /// conversation of an agent that another one began, and where it changed.
    #[serde(flatten)]
    pub given: Given,
}

/// A stage (as `NODE@VISIT`) and the events of its conversation with a model: those of its last
/// attempt, of agents that it began too, and none for a stage without one. `stage` names it as for
/// [`stage()`](crate::stage()); without it, it is the stage that talked last.
///
/// # Errors
///
/// The run has no such stage or several, or no stage that talked.
pub fn conversation<'e>(
    events: &'e [Event],
    stage: Option<&str>,
) -> Result<(String, Vec<&'e Event>), ReportError> {
    let events = checkpoint::effective(events);
    let key = match stage {
        Some(stage) => find(&events, stage)?,
        None => last_that_talked(&events).ok_or(ReportError::NoConversation)?,
    };
    Ok((key.name(), of_last_attempt(&events, &key)))
}

/// What the stage's model was given at first, and the messages of its conversation, with large ones
/// read back.
pub(crate) fn transcript(
    events: &[&Event],
    key: &StageKey,
    blobs: &dyn BlobStore,
) -> Result<(Given, Vec<Spoken>), ReportError> {
    let events = of_last_attempt(events, key);
    let spoken = events.into_iter().filter_map(|event| spoken(event, key, blobs).transpose());
    let mut spoken = spoken.collect::<Result<Vec<_>, _>>()?;
    let mut own = spoken.iter_mut().filter(|message| message.session_id.is_none());
    let first = own.find(|message| message.given != Given::default());
    let given = first.map(|message| std::mem::take(&mut message.given)).unwrap_or_default();
    Ok((given, spoken))
}

fn last_that_talked(events: &[&Event]) -> Option<StageKey> {
    let talks = |event: &&&Event| matches!(event.entry.body, EventBody::AgentMessage { .. });
    events.iter().rev().filter(talks).find_map(|event| StageKey::of(event))
}

fn of_last_attempt<'e>(events: &[&'e Event], key: &StageKey) -> Vec<&'e Event> {
    let own: Vec<&Event> = events.iter().copied().filter(|event| key.is(event)).collect();
    let retried = |event: &&Event| matches!(event.entry.body, EventBody::StageRetrying { .. });
    let from = own.iter().rposition(retried).map_or(0, |at| at + 1);
    let talks = own[from..].iter().copied().filter(|event| {
        matches!(
            event.entry.body,
            EventBody::AgentMessage { .. }
                | EventBody::AgentToolStarted { .. }
                | EventBody::AgentToolCompleted(_)
                | EventBody::AgentCompactionStarted { .. }
                | EventBody::AgentCompactionCompleted(_)
                | EventBody::AgentSubSpawned { .. }
                | EventBody::AgentSubCompleted { .. }
                | EventBody::AgentSubFailed { .. }
                | EventBody::AgentSubClosed { .. }
                | EventBody::AgentSteered { .. }
                | EventBody::AgentWarning { .. }
                | EventBody::AgentError { .. }
        )
    });
    talks.collect()
}

fn spoken(
    event: &Event,
    key: &StageKey,
    blobs: &dyn BlobStore,
) -> Result<Option<Spoken>, ReportError> {
    let read = |what: &'static str, value: &Value| match BlobRef::from_value(value) {
        Some(blob) => read(key, what, &blob, blobs),
        None => Ok(value.clone()),
    };
    let whole = |value: &Value| read("a message", value);
    let session_id = event.entry.parent_session_id.as_ref().and(event.entry.session_id.clone());
    let said = |role: &str, content| Spoken {
        role: role.to_owned(),
        session_id: session_id.clone(),
        content,
        tool: None,
        call_id: None,
        is_error: false,
        replaces: None,
        given: Given::default(),
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
                Ok(Given { system: system.transpose()?, tools: tools.transpose()? })
            });
            Spoken { given: given.transpose()?.unwrap_or_default(), ..said(role, content) }
        }
        EventBody::AgentToolCompleted(end) => Spoken {
            tool: Some(end.tool.clone()),
            call_id: Some(end.call_id.clone()),
            is_error: end.is_error,
            ..said("tool", whole(&end.output)?)
        },
        EventBody::AgentCompactionCompleted(done) => Spoken {
            replaces: Some(done.original_turn_count),
            ..said("system", whole(&done.summary)?)
        },
        EventBody::AgentSteered { text, .. } => said("user", Value::from(text.as_str())),
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
