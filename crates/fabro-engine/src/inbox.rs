//! What reaches a driver while stages are running: their reports, and messages from other processes.

use fabro_events::{EventBody, Note};
use fabro_store::{InboxId, Message, StoreError};

use crate::attempt::Key;
use crate::drive::Driver;
use crate::handler::{Letter, Report, ReportError};
use crate::input::Input;

impl Driver {
    pub(crate) async fn report(&mut self, report: Report) -> Result<(), StoreError> {
        let Report { branch, notes, blobs, letters, done } = report;
        let active = self.machine.state().cursors.get(&branch).and_then(|cursor| cursor.active());
        let Some(key) = active.map(|at| Key::of(&branch, at)) else {
            // The branch has ended since the report was sent; its handler is being canceled too.
            let _ = done.send(Err(ReportError::Ending));
            return Ok(());
        };
        if let Some(running) = self.running.get(&key) {
            running.activity.notify_one();
        }
        if let Some(Note { body: EventBody::GateAnswered { source, label, text, .. }, .. }) =
            notes.first()
        {
            let choice = text.clone().unwrap_or_else(|| label.clone());
            let Some(id) =
                self.claim(&key, letters.first().copied(), choice, source.clone()).await?
            else {
                // The handler may have given up waiting.
                let _ = done.send(Err(ReportError::AlreadyAnswered));
                self.mark = None;
                return Ok(());
            };
            self.consumed.push(id);
        } else {
            self.consumed.extend(letters);
        }
        self.decide(Input::Note { branch, notes, blobs }).await;
        self.acks.push(done);
        Ok(())
    }

    /// Every answer goes through the inbox, which accepts one for a gate: it decides the race.
    async fn claim(
        &mut self,
        key: &Key,
        letter: Option<InboxId>,
        choice: String,
        source: String,
    ) -> Result<Option<InboxId>, StoreError> {
        if letter.is_some() {
            return Ok(letter);
        }
        let message = Message::Answer {
            node: key.node.to_string(),
            visit: key.visit,
            branch: (!key.branch.is_empty()).then(|| key.branch.to_string()),
            choice,
            source,
        };
        let post = self.world.store.post(self.machine.state().run_id, &message);
        match self.in_flight.during(post).await {
            Ok(id) => Ok(Some(id)),
            Err(StoreError::AlreadyAnswered { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes in what has arrived since the last time.
    pub(crate) async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let mark = self.in_flight.during(self.world.store.mark()).await?;
        if self.mark == Some(mark) {
            return Ok(());
        }
        self.mark = Some(mark);
        let pending = self.world.store.pending(self.machine.state().run_id);
        for (id, message) in self.in_flight.during(pending).await? {
            match message {
                // What was read before and is not committed yet is still pending.
                Message::Cancel { .. } if self.consumed.contains(&id) => {}
                Message::Cancel { reason } => {
                    self.consumed.push(id);
                    self.decide(Input::Cancel { reason }).await;
                }
                Message::Answer { node, visit, branch, choice, source } => {
                    let branch = branch.unwrap_or_default();
                    self.deliver(id, (&branch, &node, visit), &choice, &source);
                }
                Message::Steer { text, node } => self.steer(id, node.as_deref(), &text),
                _ => {}
            }
        }
        Ok(())
    }

    fn deliver(&mut self, id: InboxId, gate: (&str, &str, u32), choice: &str, source: &str) {
        let is_gate = |key: &Key| (key.branch.as_ref(), key.node.as_ref(), key.visit) == gate;
        self.suspended.retain(|key, _| !is_gate(key));
        for (_, running) in self.running.iter_mut().filter(|(key, _)| is_gate(key)) {
            if running.delivered.insert(id) {
                let letter =
                    Letter::Answer { id, choice: choice.to_owned(), source: source.to_owned() };
                // The stage may have just ended.
                let _ = running.letters.send(letter);
            }
        }
    }

    /// Delivers steering to the running agents, or to those of one node. Without any, it waits in the
    /// inbox for the next.
    fn steer(&mut self, id: InboxId, node: Option<&str>, text: &str) {
        let is_meant = |key: &Key| node.is_none_or(|node| node == &*key.node);
        let agents = self.running.iter_mut().filter(|(_, running)| running.is_agent);
        for (_, running) in agents.filter(|(key, _)| is_meant(key)) {
            if running.delivered.insert(id) {
                let letter = Letter::Steer { id, text: text.to_owned() };
                // The stage may have just ended.
                let _ = running.letters.send(letter);
            }
        }
    }
}
