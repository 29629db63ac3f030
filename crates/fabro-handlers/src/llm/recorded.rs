//! What the log has of a stage's conversation with another program.

use std::collections::BTreeSet;

use fabro_engine::{Stage, StageEnd};
use fabro_events::{Event, EventBody, MessagePurpose};
use fabro_types::Usage;

use crate::common::text_of;

/// A conversation with another program, as far as it is recorded.
#[derive(Default)]
pub(super) struct RecordedConversation {
    /// What all its runs used, with what was asked for besides.
    pub(super) usage: Usage,
    /// The session of the program that was used last.
    pub(super) session: Option<ProgramSession>,
    pub(super) corrections: u32,
    pub(super) files_touched: BTreeSet<String>,
    pub(super) last: Option<LastMessage>,
    /// The last answer.
    pub(super) answer: Option<String>,
}

/// A session of a program, which another run of it can continue.
#[derive(Clone)]
pub(super) struct ProgramSession {
    pub(super) id: String,
    /// What its runs used.
    pub(super) used: Usage,
}

/// The last message of a conversation.
pub(super) enum LastMessage {
    /// The stage's request.
    Request,
    /// The request to correct the last answer.
    Correction(String),
    /// The last answer.
    Answer,
}

impl RecordedConversation {
    /// Reads it from the events of the attempt.
    pub(super) fn read(stage: &Stage, recorded: &[Event]) -> Result<Self, StageEnd> {
        let mut read = Self::default();
        for Event { entry, .. } in recorded {
            if let Some(usage) = entry.body.request_usage() {
                read.usage.add(usage);
            }
            match &entry.body {
                EventBody::AgentMessage { role, message, usage, purpose, .. } => {
                    let usage = usage.clone().unwrap_or_default();
                    if entry.parent_session_id.is_some() {
                        continue;
                    }
                    read.used(entry.session_id.as_deref(), &usage);
                    if let Some(message) = message {
                        read.message(role, text_of(stage, message)?, *purpose);
                    }
                }
                EventBody::AgentToolCompleted(done) => {
                    read.files_touched.extend(done.files_modified.iter().cloned());
                }
                _ => {}
            }
        }
        Ok(read)
    }

    /// Counts what a run used in a session.
    pub(super) fn used(&mut self, session: Option<&str>, usage: &Usage) {
        let Some(id) = session else { return };
        if self.session.as_ref().is_none_or(|session| session.id != id) {
            self.session = Some(ProgramSession { id: id.to_owned(), used: Usage::default() });
        }
        if let Some(session) = &mut self.session {
            session.used.add(usage);
        }
    }

    fn message(&mut self, role: &str, text: String, purpose: Option<MessagePurpose>) {
        if role == "assistant" {
            self.answer = Some(text);
            self.last = Some(LastMessage::Answer);
        } else if purpose == Some(MessagePurpose::Correction) {
            self.corrections += 1;
            self.last = Some(LastMessage::Correction(text));
        } else {
            self.last = Some(LastMessage::Request);
        }
    }
}
