//! The conversation of one attempt: its request is prepared anew, its answers are the recorded ones.

use std::sync::Arc;

use fabro_agent::{CUT_OFF_WARNING, recorded_purpose};
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
    /// The answer is still cut off.
    is_cut_off: bool,
    state: AnswerState,
    /// How many corrections were sent.
    pub(crate) corrections: u32,
    /// The answer that the last correction was about.
    corrected: Option<String>,
    /// A warning that the answer is invalid was recorded just before.
    follows_warning: bool,
}

/// How far the answer to the last message has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum AnswerState {
    /// It is not there.
    #[default]
    Awaited,
    /// It calls tools, so another one follows.
    CallsTools,
    Complete,
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
        if matches!(&entry.body, EventBody::AgentWarning { kind, .. } if is_own && kind == CUT_OFF_WARNING)
        {
            self.is_cut_off = true;
        }
        let EventBody::AgentMessage { role, purpose, .. } = &entry.body else { return Turn::Other };
        let Some(message) = message.filter(|_| is_own) else { return Turn::Other };
        if role == "assistant" {
            self.answer.push_str(&message.text());
            self.is_cut_off = false;
            let has_calls = message.tool_calls().next().is_some();
            self.state = if has_calls { AnswerState::CallsTools } else { AnswerState::Complete };
            return Turn::Other;
        }
        if !self.has_request {
            self.has_request = true;
            self.state = AnswerState::Awaited;
            return Turn::Request;
        }
        match recorded_purpose(*purpose, &message.text(), follows_warning) {
            // The answer to be corrected is interpreted first.
            MessagePurpose::Correction => Turn::Correction,
            MessagePurpose::Continuation => {
                self.state = AnswerState::Awaited;
                Turn::Other
            }
            _ => {
                self.await_answer();
                Turn::Other
            }
        }
    }

    /// Another answer follows, after a message or the results of tools.
    pub(crate) fn await_answer(&mut self) {
        self.answer.clear();
        self.state = AnswerState::Awaited;
    }

    /// The answer to interpret; `None` when there is none yet.
    pub(crate) fn reply(&self, files: AgentFiles) -> Option<Reply> {
        let is_complete = self.has_request && self.state == AnswerState::Complete;
        is_complete.then(|| Reply {
            text: self.answer.clone(),
            is_cut_off: self.is_cut_off,
            is_unchanged: self.corrected.as_ref() == Some(&self.answer),
            files,
            ..Reply::default()
        })
    }

    /// A correction is sent: the next answer stands for itself.
    pub(crate) fn correct(&mut self) {
        self.corrections += 1;
        self.corrected = Some(std::mem::take(&mut self.answer));
        self.await_answer();
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
