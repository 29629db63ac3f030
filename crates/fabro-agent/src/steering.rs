use tokio::sync::mpsc;

/// A message to an agent while it is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// The message.
    pub text: String,
    /// Where it comes from: `inbox`, ….
    pub source: String,
    /// Identifies the message for its sender: it is in [`Record::tickets`](crate::Record::tickets) of
    /// the record of its delivery.
    pub ticket: Option<u64>,
}

impl Steer {
    /// A text, with no ticket.
    pub fn new(text: impl Into<String>, source: impl Into<String>) -> Self {
        Self { text: text.into(), source: source.into(), ticket: None }
    }
}

/// Sends messages to a session. Any number of them may exist, in any task.
#[derive(Clone, Debug)]
pub struct Steering {
    sender: mpsc::UnboundedSender<Steer>,
}

impl Steering {
    /// The agent gets the message before its next turn. False when the session has ended, so that no
    /// agent will get it.
    pub fn send(&self, steer: Steer) -> bool {
        self.sender.send(steer).is_ok()
    }
}

/// The messages that the agent has not got yet.
#[derive(Debug)]
pub(crate) struct SteeringQueue {
    receiver: mpsc::UnboundedReceiver<Steer>,
    /// The one that [`wait`](Self::wait) received.
    first: Option<Steer>,
}

impl SteeringQueue {
    /// Takes all messages, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Steer> {
        let first = self.first.take();
        let others = std::iter::from_fn(|| self.receiver.try_recv().ok());
        first.into_iter().chain(others).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.receiver.is_empty()
    }

    /// Waits for a message; false when there are no senders any more.
    pub(crate) async fn wait(&mut self) -> bool {
        if self.first.is_none() {
            self.first = self.receiver.recv().await;
        }
        self.first.is_some()
    }
}

pub(crate) fn steering() -> (Steering, SteeringQueue) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Steering { sender }, SteeringQueue { receiver, first: None })
}
