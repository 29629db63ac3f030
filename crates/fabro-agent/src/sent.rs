//! The list of messages that requests share.

use std::sync::Arc;

use fabro_llm::{Message, Role};

use crate::message::Turned;

/// What the user says to a summary that answers follow directly.
const GO_ON: &str = "[Go on from the summary. What you did last follows.]";

/// The conversation as the model gets it, kept from request to request, so that a turn costs the
/// same however many came before it.
///
/// It is to be replaced by a new one where messages of the session go away.
#[derive(Default)]
pub(crate) struct Sent {
    list: Arc<Vec<Arc<Message>>>,
    /// How many messages of the session are in it.
    taken: usize,
}

impl Sent {
    /// The whole conversation, after what was said since the last request.
    pub(crate) fn catch_up(
        &mut self,
        system: Option<&Arc<Message>>,
        messages: &[Turned],
    ) -> Arc<Vec<Arc<Message>>> {
        // The last request is gone when its answer is there, so that nothing is copied.
        let list = Arc::make_mut(&mut self.list);
        if list.is_empty() {
            list.extend(system.cloned());
        }
        for Turned(message) in &messages[self.taken..] {
            let only_system = || list.iter().all(|it| it.role == Role::System);
            if matches!(message.role, Role::Assistant | Role::Tool) && only_system() {
                // Some providers take no conversation that begins with an answer.
                list.push(Arc::new(Message::user(GO_ON)));
            }
            list.push(Arc::clone(message));
        }
        self.taken = messages.len();
        Arc::clone(&self.list)
    }
}
