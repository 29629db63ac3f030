//! Records the notes of a session in the run's log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fabro_agent::{Journal, JournalError, Record};
use fabro_engine::{InboxId, NewBlob, OFFLOAD_LIMIT, Reporter, offload_value};
use fabro_events::{EventBody, Note};
use fabro_llm::{Content, Message};
use serde::Deserialize;
use serde_json::Value;

/// Records a session's notes as events of its stage.
pub(super) struct StageJournal {
    reporter: Reporter,
    /// Inbox messages that were given to the session, by ticket.
    messages: Mutex<BTreeMap<u64, InboxId>>,
}

impl StageJournal {
    pub(super) fn new(reporter: Reporter) -> Self {
        Self { reporter, messages: Mutex::default() }
    }

    /// The ticket for an inbox message, which is consumed when the ticket is recorded.
    pub(super) fn ticket(&self, message: InboxId) -> u64 {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = messages.last_key_value().map_or(0, |(last, _)| last + 1);
        messages.insert(ticket, message);
        ticket
    }
}

#[async_trait]
impl Journal for StageJournal {
    async fn record(&self, record: Record) -> Result<(), JournalError> {
        let Record { mut notes, tickets } = record;
        let blobs = offload_notes(&mut notes);
        let consumed = {
            let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            tickets.iter().filter_map(|ticket| messages.get(ticket).copied()).collect()
        };
        let recorded = self.reporter.record(notes, blobs, consumed).await;
        recorded.map_err(|_| JournalError::Ending)
    }

    fn touch(&self) {
        self.reporter.touch();
    }
}

/// Offloads the large values of a session's notes to blobs, as they are recorded.
pub fn offload_notes(notes: &mut [Note]) -> Vec<NewBlob> {
    let mut blobs = Vec::new();
    for note in notes {
        offload(note, &mut blobs);
    }
    blobs
}

/// Offloads the large values of a note to blobs, and at any size the request, which is the
/// blob that the end of the stage names as its prompt, and the system prompt and tools, which many
/// sessions share.
fn offload(note: &mut Note, blobs: &mut Vec<NewBlob>) {
    match &mut note.body {
        EventBody::AgentMessage { role, message, given, .. } => {
            if let Some(given) = given {
                let values = [&mut given.system, &mut given.tools].into_iter().flatten();
                values.for_each(|value| offload_value(value, 0, blobs));
                if let Some(opening) = &mut given.opening {
                    offload_value(opening, OFFLOAD_LIMIT, blobs);
                }
            }
            match message {
                Some(message) if role == "user" => {
                    if let Some(text) = plain_text(message) {
                        *message = Arc::new(Value::String(text));
                    }
                    offload_value(message, 0, blobs);
                }
                Some(message) => offload_value(message, OFFLOAD_LIMIT, blobs),
                None => {}
            }
        }
        EventBody::AgentToolCompleted(done) => {
            offload_value(&mut done.output, OFFLOAD_LIMIT, blobs);
        }
        EventBody::AgentCompactionCompleted(done) => {
            offload_value(&mut done.summary, OFFLOAD_LIMIT, blobs);
        }
        _ => {}
    }
}

fn plain_text(message: &Value) -> Option<String> {
    let message = Message::deserialize(message).ok()?;
    match &message.content[..] {
        [Content::Text { text }] => Some(text.clone()),
        _ => None,
    }
}
