use tokio::sync::mpsc;

/// A message to an agent while it is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// What.
    pub text: String,
    /// Who says so: `inbox`, ….
    pub source: String,
    /// Names the message for the one who delivers it; comes back in
    /// [`Record::tickets`](crate::Record::tickets) of the record by which the agent was told.
    pub ticket: Option<u64>,
}

impl Steer {
    /// A text, with no ticket.
    pub fn new(text: impl Into<String>, source: impl Into<String>) -> Self {
        Self { text: text.into(), source: source.into(), ticket: None }
    }

    /// The same with a ticket.
    pub fn with_ticket(self, ticket: u64) -> Self {
        Self { ticket: Some(ticket), ..self }
    }
}

/// Tells a session something. Any number of them may exist, in any task.
#[derive(Clone, Debug)]
pub struct Steering {
    sender: mpsc::UnboundedSender<Steer>,
}

impl Steering {
    /// The agent is told before its next turn. False when the session is over and nobody will be
    /// told.
    pub fn send(&self, steer: Steer) -> bool {
        self.sender.send(steer).is_ok()
    }
}

/// The session's end of it.
#[derive(Debug)]
pub(crate) struct SteeringQueue {
    receiver: mpsc::UnboundedReceiver<Steer>,
    /// One that was waited for, and not taken yet.
    first: Option<Steer>,
}

impl SteeringQueue {
    /// What has come since the last time, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Steer> {
        let first = self.first.take();
        let others = std::iter::from_fn(|| self.receiver.try_recv().ok());
        first.into_iter().chain(others).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.receiver.is_empty()
    }

    /// Waits until something has come; false when nothing ever will.
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
