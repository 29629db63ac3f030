//! The messages of a session, and the list of them that requests share.

use std::ops::Deref;
use std::sync::Arc;

use fabro_llm::{Message, Role};

use crate::message::Turned;

/// The user's message after a summary that an answer follows directly.
const AFTER_SUMMARY: &str = "[Go on from the summary. What you did last follows.]";

/// The messages, oldest first, without the system prompt.
#[derive(Default)]
pub(crate) struct Conversation {
    messages: Vec<Turned>,
    sent: Sent,
}

/// The messages as the model gets them, kept from request to request, so that a turn costs the same
/// however many came before it.
#[derive(Default)]
struct Sent {
    list: Arc<Vec<Arc<Message>>>,
    /// How many messages of the conversation are in it.
    taken: usize,
}

impl Conversation {
    pub(crate) fn push(&mut self, message: Arc<Message>) {
        self.messages.push(Turned(message));
    }

    /// The messages, to be changed in any way: the next request builds a new list.
    pub(crate) fn change(&mut self) -> &mut Vec<Turned> {
        self.sent = Sent::default();
        &mut self.messages
    }

    /// All messages for a request, the system prompt first, with those since the last one.
    pub(crate) fn catch_up(&mut self, system: Option<&Arc<Message>>) -> Arc<Vec<Arc<Message>>> {
        let Self { messages, sent } = self;
        // The last request is gone when its answer is there, so that nothing is copied.
        let list = Arc::make_mut(&mut sent.list);
        if list.is_empty() {
            list.extend(system.cloned());
        }
        for Turned(message) in &messages[sent.taken..] {
            let only_system = || list.iter().all(|it| it.role == Role::System);
            if matches!(message.role, Role::Assistant | Role::Tool) && only_system() {
                // Some providers refuse a conversation that begins with an answer.
                list.push(Arc::new(Message::user(AFTER_SUMMARY)));
            }
            list.push(Arc::clone(message));
        }
        sent.taken = messages.len();
        Arc::clone(&sent.list)
    }
}

impl Deref for Conversation {
    type Target = [Turned];

    fn deref(&self) -> &[Turned] {
        &self.messages
    }
}
