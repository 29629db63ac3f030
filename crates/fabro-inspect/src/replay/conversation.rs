//! The conversation of one attempt: its request is prepared anew, its answers are the recorded ones.

use std::sync::Arc;

use fabro_agent::recorded_purpose;
use fabro_events::{Event, EventBody, MessagePurpose};
use fabro_handlers::{AgentFiles, Reply};
use fabro_llm::Message;
use serde_json::Value;

/// How far the conversation of an attempt has come.
#[derive(Default)]
pub(crate) struct Conversation {
    /// The request was sent.
    pub(crate) has_request: bool,
    /// The answer so far, continuations included, of the stage's own agent.
    answer: String,
    /// The last answer calls tools.
    has_calls: bool,
    /// A message that no answer followed yet.
    pub(crate) is_open: bool,
    /// How many corrections were sent.
    pub(crate) corrections: u32,
    /// A warning that the answer is invalid was recorded just before.
    follows_warning: bool,
}

/// What a recorded event is in the conversation of its stage.
pub(crate) enum Turn {
    /// The request of the stage.
    Request,
    /// A correction of an invalid answer.
    Correction,
    /// Anything else, which is as it was recorded.
    Other,
}

impl Conversation {
    /// Reads the next event, a message with its contents.
    pub(crate) fn read(&mut self, event: &Event, message: Option<&Message>) -> Turn {
        let entry = &event.entry;
        let is_own = entry.parent_session_id.is_none();
        let follows_warning = std::mem::replace(
            &mut self.follows_warning,
            matches!(&entry.body, EventBody::AgentWarning { kind, .. } if kind == "output_schema"),
        );
        let EventBody::AgentMessage { role, purpose, .. } = &entry.body else { return Turn::Other };
        let Some(message) = message.filter(|_| is_own) else { return Turn::Other };
        if role == "assistant" {
            self.answer.push_str(&message.text());
            self.has_calls = message.tool_calls().next().is_some();
            self.is_open = false;
            return Turn::Other;
        }
        self.is_open = true;
        if !self.has_request {
            self.has_request = true;
            return Turn::Request;
        }
        match recorded_purpose(*purpose, &message.text(), follows_warning) {
            MessagePurpose::Continuation => Turn::Other,
            MessagePurpose::Correction => Turn::Correction,
            _ => {
                self.answer.clear();
                Turn::Other
            }
        }
    }

    /// The tools of an answer gave their results: another answer follows.
    pub(crate) fn tool_completed(&mut self) {
        self.answer.clear();
        self.has_calls = false;
        self.is_open = true;
    }

    /// The answer to interpret; `None` when there is none yet.
    pub(crate) fn reply(&self, files: AgentFiles) -> Option<Reply> {
        let is_complete = self.has_request && !self.is_open && !self.has_calls;
        is_complete.then(|| Reply { text: self.answer.clone(), files, ..Reply::default() })
    }

    /// A correction is sent: the next answer stands for itself.
    pub(crate) fn correct(&mut self) {
        self.corrections += 1;
        self.answer.clear();
    }
}

/// The event with this text as its message.
pub(crate) fn with_text(body: &EventBody, text: &str) -> EventBody {
    let mut body = body.clone();
    if let EventBody::AgentMessage { message, text: preview, .. } = &mut body {
        *preview = text.chars().take(200).collect();
        *message = Some(Arc::new(Value::from(text)));
    }
    body
}
