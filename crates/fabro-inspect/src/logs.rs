//! What stages wrote: the output of commands, the text of agents.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use fabro_blob::{BlobError, BlobStore, copy_text, reference};
use fabro_context::keys;
use fabro_engine::checkpoint::{self, StageName};
use fabro_events::{Event, EventBody};
use fabro_llm::{Content, Message};
use fabro_types::{BlobRef, one_line};
use serde::Serialize;
use serde_json::Value;

use crate::ReportError;
use crate::at::{StageKey, find};
use crate::blobs::read;
use crate::stage::response;

/// The most characters of a tool's arguments.
const ARGUMENTS: usize = 200;

/// Where a text of a stage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// The standard output of a command.
    Stdout,
    /// The standard error of a command, or of the program of an agent.
    Stderr,
    /// A model's answer.
    Text,
    /// A call of a tool.
    Tool,
    /// What became of the stage: a failure, another attempt.
    Note,
}

impl LogStream {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::Stdout, Self::Stderr, Self::Text, Self::Tool, Self::Note];
}

/// A text that a stage wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it comes from.
    pub stream: LogStream,
    /// One line or several.
    pub text: String,
}

/// What an event says that its stage wrote, without the output of commands; `None` when that is
/// nothing. Large texts are read back from `blobs`.
///
/// # Errors
///
/// A text cannot be read back.
pub fn written(event: &Event, blobs: &dyn BlobStore) -> Result<Option<Written>, ReportError> {
    let new = |stream, text: String| Some(Written { stream, text });
    Ok(match &event.entry.body {
        EventBody::AgentMessage { role, text, message, .. } if role == "assistant" => {
            let text = match (message, StageKey::of(event)) {
                (Some(message), Some(key)) => answer(&key, message, blobs)?,
                _ => text.clone(),
            };
            let is_said = !text.trim().is_empty();
            is_said.then(|| Written { stream: LogStream::Text, text: of_session(event, text) })
        }
        EventBody::AgentToolStarted { tool, arguments, .. } => {
            let call = format!("{} {}", one_line(tool, ARGUMENTS), one_line(arguments, ARGUMENTS));
            new(LogStream::Tool, of_session(event, call.trim_end().to_owned()))
        }
        EventBody::AgentToolCompleted(end) if end.is_error => {
            let why = end.output.as_str().map(|text| one_line(text, ARGUMENTS));
            let tool = one_line(&end.tool, ARGUMENTS);
            let text = format!("{tool} failed: {}", why.unwrap_or_default());
            new(LogStream::Tool, of_session(event, text))
        }
        EventBody::AgentSteered { text, source } => {
            new(LogStream::Note, format!("steered ({}): {text}", one_line(source, ARGUMENTS)))
        }
        EventBody::AgentWarning { message, .. } => {
            new(LogStream::Note, format!("warning: {message}"))
        }
        EventBody::AgentError { class, message, .. } => {
            new(LogStream::Note, format!("error: {message} ({class})"))
        }
        EventBody::StageRetrying { attempt, failure, .. } => {
            new(LogStream::Note, format!("attempt {attempt} failed: {failure}"))
        }
        EventBody::StageFailed(end) => {
            let failure = end.outcome.failure.as_ref();
            new(LogStream::Note, failure.map_or("failed".into(), |it| format!("failed: {it}")))
        }
        _ => None,
    })
}

/// A line of another session than the stage's own names it.
fn of_session(event: &Event, text: String) -> String {
    match (&event.entry.parent_session_id, &event.entry.session_id) {
        (Some(_), Some(session)) => format!("[{}] {text}", one_line(session, ARGUMENTS)),
        _ => text,
    }
}

/// The text of a model's message, without reasoning and calls.
fn answer(key: &StageKey, message: &Value, blobs: &dyn BlobStore) -> Result<String, ReportError> {
    let whole = match BlobRef::from_value(message) {
        Some(blob) => &read(key, "a message", &blob, blobs)?,
        None => message,
    };
    if let Some(text) = whole.as_str() {
        return Ok(text.to_owned());
    }
    let Ok(message) = serde_json::from_value::<Message>(whole.clone()) else {
        return Ok(whole.to_string());
    };
    let parts = message.content.into_iter().filter_map(|part| match part {
        Content::Text { text } => Some(text),
        _ => None,
    });
    Ok(parts.collect::<Vec<_>>().join("\n"))
}

/// What the end of a stage has of one of its streams: the value, which may be a reference. `Text` is
/// the response. `None` where the event is no end, or has nothing of it.
pub fn recorded_output(event: &Event, stream: LogStream) -> Option<Arc<Value>> {
    let (EventBody::StageCompleted(end) | EventBody::StageFailed(end)) = &event.entry.body else {
        return None;
    };
    let updates = &end.outcome.context_updates;
    match stream {
        LogStream::Stdout => updates.get(keys::COMMAND_OUTPUT).cloned(),
        LogStream::Stderr => updates.get(keys::COMMAND_STDERR).cloned(),
        LogStream::Text => response(event.entry.node_id.as_deref()?, end),
        LogStream::Tool | LogStream::Note => None,
    }
}

/// Writes such a value as text, however large. An error means that `out` did not get all of it, or something
/// else.
///
/// # Errors
///
/// It cannot be read back, or `out` fails.
pub fn copy_recorded_text(
    key: &StageKey,
    value: &Value,
    blobs: &dyn BlobStore,
    out: &mut dyn io::Write,
) -> Result<(), ReportError> {
    let failed = |source: BlobError| ReportError::Value {
        what: "the output",
        stage: key.full_name(),
        source: source.into(),
    };
    let written = match (value, reference(blobs, value)) {
        (_, Some(blob)) => return copy_text(blobs, &blob, out).map(drop).map_err(failed),
        (Value::String(text), None) => out.write_all(text.as_bytes()),
        (other, None) => out.write_all(format!("{other:#}").as_bytes()),
    };
    written.map_err(|source| failed(BlobError::Output { source }))
}

/// The stages that a name means, also those that start later: `NODE` is its last visit and those
/// that follow.
#[derive(Clone, Debug)]
pub struct StageSelection {
    name: String,
    /// The last event that was looked at when the selection was made.
    seen: u64,
    known: BTreeSet<StageKey>,
}

impl StageSelection {
    /// The stage that started last of those that the name means in a log.
    ///
    /// # Errors
    ///
    /// The name means several stages, or none so far.
    pub fn new(events: &[Event], name: &str) -> Result<Self, ReportError> {
        let key = find(&checkpoint::effective(events), name)?;
        let seen = events.last().map_or(0, |event| event.seq);
        Ok(Self { known: [key].into(), seen, ..Self::coming(name) })
    }

    /// Stages of this name that have not started.
    pub fn coming(name: &str) -> Self {
        Self { name: name.trim().to_owned(), seen: 0, known: BTreeSet::new() }
    }

    /// Takes a stage that starts after the selection was made.
    pub fn started(&mut self, event: &Event) {
        if event.seq > self.seen
            && StageName::parse(&self.name).is_of(&event.entry)
            && let Some(key) = StageKey::of(event)
        {
            self.known.insert(key);
        }
    }

    /// Whether the stage is selected.
    pub fn has(&self, key: &StageKey) -> bool {
        self.known.contains(key)
    }
}
