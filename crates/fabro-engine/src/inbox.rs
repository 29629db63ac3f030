//! What reaches a driver while stages are running: their reports, and messages from other processes.

use fabro_events::{EventBody, Note, ParentStage, PauseReason};
use fabro_store::{InboxId, Message, Store, StoreError};
use fabro_types::{NodeKind, RunId};

use crate::drive::{Driver, INBOX_PERIOD, Running};
use crate::handler::{Report, ReportError};
use crate::input::Input;
use crate::key::Key;

impl Driver {
    pub(crate) async fn report(&mut self, report: Report) -> Result<(), StoreError> {
        let Report { key, notes, blobs, consumed, done } = report;
        if self.finished().is_some() || !self.machine.state().is_current(&key) {
            // The attempt has ended since the report was sent; its handler is being canceled too.
            let _ = done.send(Err(ReportError::Ending));
            return Ok(());
        }
        if let Some(running) = self.running.get(&key) {
            running.activity.notify_one();
        }
        if let Some(Note {
            body: EventBody::GateAnswered { source, label, text, by, .. }, ..
        }) = notes.first()
        {
            let claimed = if let Some(received) = consumed.first() {
                Some(*received)
            } else {
                let answer = Message::Answer {
                    node: key.node.to_string(),
                    visit: key.visit,
                    branch: (!key.branch.is_empty()).then(|| key.branch.to_string()),
                    choice: text.clone().unwrap_or_else(|| label.clone()),
                    source: source.clone(),
                    by: by.clone(),
                };
                self.claim(&answer).await?
            };
            let Some(id) = claimed else {
                // The handler may have given up waiting.
                let _ = done.send(Err(ReportError::AlreadyAnswered));
                self.mark = None;
                return Ok(());
            };
            self.consumed.push(id);
        } else {
            self.consumed.extend(consumed);
        }
        self.decide(Input::Note { branch: key.branch, notes, blobs }).await;
        self.acks.push(done);
        Ok(())
    }

    /// Posts an answer to the inbox, which accepts one answer per gate and so decides the race.
    /// Returns `None` if another answer won.
    async fn claim(&mut self, message: &Message) -> Result<Option<InboxId>, StoreError> {
        let post = self.world.store.post(self.machine.state().run_id, message);
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
            match &message {
                // What was read before and is not committed yet is still pending.
                Message::Cancel { .. } if self.consumed.contains(&id) => {}
                Message::Cancel { reason } => {
                    self.consumed.push(id);
                    self.decide(Input::Cancel { reason: reason.clone(), by_parent: None }).await;
                }
                Message::Answer { node, visit, branch, .. } => {
                    let gate = (branch.as_deref().unwrap_or_default(), &**node, *visit);
                    let is_gate = |key: &Key| (&*key.branch, &*key.node, key.visit) == gate;
                    self.suspended.retain(|key, _| !is_gate(key));
                    self.deliver(id, &message, |key, _| is_gate(key));
                }
                // Without a running agent that it is for, it waits in the inbox for the next.
                Message::Steer { node, .. } => self.deliver(id, &message, |key, running| {
                    running.is_agent && node.as_ref().is_none_or(|node| **node == *key.node)
                }),
                // A message of a later version stays in the inbox.
                _ => {}
            }
        }
        self.wake_sub_workflows().await
    }

    /// Ends the suspension of stages whose sub-workflow waits for a person, when an answer has arrived in its inbox or
    /// below it. Each answer does so once: its gate may not be open any more.
    async fn wake_sub_workflows(&mut self) -> Result<(), StoreError> {
        let plan = self.machine.plan();
        let is_sub_workflow =
            |key: &Key| plan.find(&key.node).is_some_and(|node| node.kind == NodeKind::ManagerLoop);
        let waits = |(key, reason): (&Key, &PauseReason)| {
            *reason == PauseReason::Human && is_sub_workflow(key)
        };
        if !self.suspended.iter().any(waits) {
            return Ok(());
        }
        let run = self.machine.state().run_id;
        for member in self.world.store.family(run).await? {
            if member == run {
                continue;
            }
            let pending = self.world.store.pending(member).await?.into_iter();
            let answers = pending.filter(|(_, message)| matches!(message, Message::Answer { .. }));
            let ids: Vec<_> = answers.map(|(id, _)| (member, id)).collect();
            if ids.iter().all(|id| self.woken_by.contains(id)) {
                continue;
            }
            let Some(stage) = stage_above(&*self.world.store, member, run).await? else { continue };
            let is_of = |key: &Key| {
                let branch = Some(&*key.branch).filter(|branch| !branch.is_empty());
                stage.is(branch, &key.node, key.visit)
            };
            if self.suspended.keys().any(is_of) {
                self.suspended.retain(|key, _| !is_of(key));
                self.woken_by.extend(ids);
            }
        }
        Ok(())
    }

    /// If an ancestor run was canceled, waits for the cancellation of this sub-workflow, which
    /// follows, so that no further stage starts.
    pub(crate) async fn wait_for_ancestor_cancel(&mut self) -> Result<(), StoreError> {
        let parent =
            self.machine.state().created.as_ref().and_then(|created| created.parent.clone());
        let Some(parent) = parent else { return Ok(()) };
        // Does not poll running stages meanwhile: the drivers of sub-workflows would nest deeper.
        let mark = self.world.store.mark().await?;
        if self.ancestor_mark == Some(mark) {
            return Ok(());
        }
        if !is_canceled(&*self.world.store, parent.run_id).await? {
            self.ancestor_mark = Some(mark);
            return Ok(());
        }
        while self.finished().is_none() && !self.stop.is_cancelled() {
            // Either way the inbox is read next.
            let _ = tokio::time::timeout(INBOX_PERIOD, self.stop.cancelled()).await;
            self.read_inbox().await?;
        }
        Ok(())
    }

    /// Sends a message to the running stages that it is for, once.
    fn deliver(&mut self, id: InboxId, message: &Message, is_for: impl Fn(&Key, &Running) -> bool) {
        for (key, running) in &mut self.running {
            if is_for(key, running) && running.delivered.insert(id) {
                // The stage may have just ended.
                let _ = running.messages.send((id, message.clone()));
            }
        }
    }
}

/// The stage of `run` that contains a sub-workflow, directly or through other sub-workflows.
async fn stage_above(
    store: &dyn Store,
    sub_workflow: RunId,
    run: RunId,
) -> Result<Option<ParentStage>, StoreError> {
    let mut parent = parent(store, sub_workflow).await?;
    while let Some(stage) = parent.take_if(|stage| stage.run_id != run) {
        parent = self::parent(store, stage.run_id).await?;
    }
    Ok(parent)
}

/// The stage that started this run as its sub-workflow; `None` for a root run.
async fn parent(store: &dyn Store, run: RunId) -> Result<Option<ParentStage>, StoreError> {
    let first = store.read(run, 0, 1).await?;
    Ok(first.first().and_then(|event| match &event.entry.body {
        EventBody::RunCreated(created) => created.parent.clone(),
        _ => None,
    }))
}

/// Whether a run or one of its ancestors has a pending cancellation.
async fn is_canceled(store: &dyn Store, run: RunId) -> Result<bool, StoreError> {
    let mut next = Some(run);
    while let Some(run) = next {
        let pending = store.pending(run).await?;
        if pending.iter().any(|(_, message)| matches!(message, Message::Cancel { .. })) {
            return Ok(true);
        }
        next = parent(store, run).await?.map(|stage| stage.run_id);
    }
    Ok(false)
}
