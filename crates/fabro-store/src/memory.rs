use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fabro_blob::{BlobError, BlobStore, MemoryBlobs};
use fabro_events::Event;
use fabro_types::{BlobRef, RunId};

use crate::gate::{self, Effect};
use crate::summary::{self, Known, RunSummary};
use crate::{
    Batch, ChangeMark, Follow, Inbox, InboxId, Lease, LeaseOwner, LeaseRecord, LeaseRequest,
    LeaseTime, Leases, Message, RunAt, RunLog, Runs, StoreError, StoreWarning,
};

/// A store in memory, for tests and for runs that need not outlive the process. Blobs of a
/// deleted run stay.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    blobs: MemoryBlobs,
    /// Where blobs are read that are not in `blobs`.
    fallback: Option<Arc<dyn BlobStore>>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<RunId, Run>,
    leases: BTreeMap<RunId, LeaseRecord>,
    /// Counts runs, messages and commits.
    clock: u64,
}

#[derive(Debug)]
struct Run {
    /// Orders runs by when they came.
    born: u64,
    summary: RunSummary,
    events: Vec<Event>,
    inbox: BTreeMap<InboxId, PostedMessage>,
}

#[derive(Debug)]
struct PostedMessage {
    message: Message,
    /// The gate it answers, as long as that keeps others from answering it.
    gate: Option<String>,
    pending: bool,
}

impl MemoryStore {
    /// An empty store. Blobs that it does not have are read from `fallback`, which is never written.
    pub fn above(fallback: Arc<dyn BlobStore>) -> Self {
        Self { fallback: Some(fallback), ..Self::default() }
    }

    /// The blobs that have this one.
    fn blobs_with(&self, blob: &BlobRef) -> &dyn BlobStore {
        match &self.fallback {
            Some(fallback) if self.blobs.len(blob).is_err() => fallback,
            _ => &self.blobs,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is checked first and then made without a step that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    fn commit(
        &self,
        lease: Option<Lease>,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        batch.check_order(run, expected_seq)?;
        let mut state = self.state();
        state.check_lease(run, lease)?;
        let found = state.runs.get(&run).map_or(0, Run::last_seq);
        if found != expected_seq {
            return Err(StoreError::Conflict { run, expected: expected_seq, found });
        }
        for id in batch.consumed {
            let known = state.runs.get(&run).and_then(|run| run.inbox.get(id));
            if !known.is_some_and(|posted| posted.pending) {
                return Err(StoreError::NotPending { run, id: *id });
            }
        }
        for (_, bytes) in batch.blobs {
            self.blobs.put(bytes)?;
        }
        state.clock += 1;
        let born = state.clock;
        let Some(first) = batch.events.first() else {
            if let Some(run) = state.runs.get_mut(&run) {
                run.consume(batch.consumed);
            }
            return Ok(());
        };
        let run = state.runs.entry(run).or_insert_with(|| Run {
            born,
            summary: RunSummary::new(run, first.ts_ms),
            events: Vec::new(),
            inbox: BTreeMap::new(),
        });
        run.consume(batch.consumed);
        for event in batch.events {
            run.push(event);
        }
        Ok(())
    }
}

#[async_trait]
impl RunLog for MemoryStore {
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        self.commit(None, run, expected_seq, batch)
    }

    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let state = self.state();
        let events = state.runs.get(&run).map_or(&[][..], |run| &run.events);
        let from = usize::try_from(after_seq).unwrap_or(usize::MAX).min(events.len());
        Ok(events[from..].iter().take(limit).cloned().collect())
    }
}

impl Run {
    fn last_seq(&self) -> u64 {
        self.events.len() as u64
    }

    fn consume(&mut self, consumed: &[InboxId]) {
        for id in consumed {
            if let Some(posted) = self.inbox.get_mut(id) {
                posted.pending = false;
            }
        }
    }

    fn push(&mut self, event: &Event) {
        match gate::effect(event) {
            Some(Effect::Asks(key)) => {
                for posted in self.inbox.values_mut() {
                    if !posted.pending && posted.gate.as_ref() == Some(&key) {
                        posted.gate = None;
                    }
                }
            }
            Some(Effect::Rewinds) => {
                for posted in self.inbox.values_mut().filter(|posted| posted.gate.is_some()) {
                    posted.gate = None;
                    posted.pending = false;
                }
            }
            None => {}
        }
        self.summary.apply(event);
        self.events.push(event.clone());
    }
}

impl State {
    fn check_lease(&self, run: RunId, lease: Option<Lease>) -> Result<(), StoreError> {
        let current = self.leases.get(&lease.map_or(run, |lease| lease.run));
        LeaseRecord::check(current, run, lease, LeaseTime::now)
    }

    fn summaries(&self) -> Vec<RunSummary> {
        let mut runs: Vec<_> =
            self.newest_first().into_iter().map(|run| run.summary.clone()).collect();
        let now = LeaseTime::now();
        let driven = self.leases.iter().filter(|(_, lease)| lease.owner(now).is_some());
        summary::mark_interrupted(&mut runs, &driven.map(|(run, _)| *run).collect());
        runs
    }

    fn newest_first(&self) -> Vec<&Run> {
        let mut runs: Vec<_> = self.runs.values().collect();
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.born));
        runs
    }
}

#[async_trait]
impl Runs for MemoryStore {
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        Ok(self.state().summaries())
    }

    async fn find(&self, text: &str) -> Result<RunId, StoreError> {
        let state = self.state();
        let runs = state.newest_first();
        let known = runs
            .iter()
            .map(|run| Known { id: run.summary.id, is_child: run.summary.parent.is_some() });
        summary::find(text, &known.collect::<Vec<_>>())
    }

    async fn delete(&self, run: RunId) -> Result<(), StoreError> {
        let mut state = self.state();
        if !state.runs.contains_key(&run) {
            return Err(StoreError::NotFound { text: run.to_string() });
        }
        let runs = state.summaries();
        state.check_lease(summary::root(run, &runs), None)?;
        for member in summary::family(run, &runs) {
            state.runs.remove(&member);
            state.leases.remove(&member);
        }
        state.clock += 1;
        Ok(())
    }

    async fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        Ok(self.state().runs.get(&run).map_or(0, Run::last_seq))
    }

    async fn knows_end(&self, _run: RunId) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn check(&self, _run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        Ok(None)
    }
}

#[async_trait]
impl Inbox for MemoryStore {
    async fn post_at(
        &self,
        run: RunId,
        message: &Message,
        at: Option<RunAt>,
    ) -> Result<InboxId, StoreError> {
        let mut state = self.state();
        if let Some(at) = at {
            at.check(state.runs.get(&at.run).map_or(0, Run::last_seq))?;
        }
        let id = InboxId((state.clock + 1).cast_signed());
        let found = state.runs.get_mut(&run);
        let found = found.ok_or_else(|| StoreError::NotFound { text: run.to_string() })?;
        let gate = gate::answered(message);
        if let Message::Answer { node, visit, .. } = message
            && found.inbox.values().any(|posted| posted.gate == gate)
        {
            return Err(StoreError::AlreadyAnswered { node: node.clone(), visit: *visit });
        }
        found.inbox.insert(id, PostedMessage { message: message.clone(), gate, pending: true });
        state.clock += 1;
        Ok(id)
    }

    async fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        let state = self.state();
        let messages = state.runs.get(&run).into_iter().flat_map(|run| &run.inbox);
        let pending = messages.filter(|(_, posted)| posted.pending);
        Ok(pending.map(|(id, posted)| (*id, posted.message.clone())).collect())
    }
}

#[async_trait]
impl Follow for MemoryStore {
    async fn mark(&self) -> Result<ChangeMark, StoreError> {
        Ok(ChangeMark { ours: self.state().clock, others: 0 })
    }
}

#[async_trait]
impl Leases for MemoryStore {
    async fn acquire(
        &self,
        run: RunId,
        owner: &LeaseOwner,
        ttl: Duration,
    ) -> Result<Lease, StoreError> {
        let mut state = self.state();
        let current = state.leases.get(&run).cloned();
        match LeaseRecord::request(current, owner, ttl, LeaseTime::now()) {
            LeaseRequest::Granted(granted) => {
                let epoch = granted.epoch;
                state.leases.insert(run, granted);
                Ok(Lease { run, epoch })
            }
            LeaseRequest::Refused(held) => {
                let pid = held.owner.as_ref().map(|owner| owner.pid);
                state.leases.insert(run, held);
                Err(StoreError::Driven { run, pid })
            }
        }
    }

    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        let mut state = self.state();
        state.check_lease(lease.run, Some(lease))?;
        if let Some(record) = state.leases.get_mut(&lease.run) {
            record.expires = LeaseTime::now().after(ttl);
        }
        Ok(())
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        let mut state = self.state();
        let record = state.leases.get_mut(&lease.run);
        if let Some(record) = record.filter(|record| record.epoch == lease.epoch) {
            record.owner = None;
        }
        Ok(())
    }

    async fn driver(&self, run: RunId) -> Result<Option<LeaseOwner>, StoreError> {
        let state = self.state();
        Ok(state.leases.get(&run).and_then(|record| record.owner(LeaseTime::now()).cloned()))
    }

    async fn append_leased(
        &self,
        lease: Lease,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        self.commit(Some(lease), run, expected_seq, batch)
    }
}

impl BlobStore for MemoryStore {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.blobs_with(blob).get(blob)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.blobs.put(bytes)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        self.blobs_with(blob).len(blob)
    }

    fn copy_to(&self, blob: &BlobRef, out: &mut dyn io::Write) -> Result<u64, BlobError> {
        self.blobs_with(blob).copy_to(blob, out)
    }
}
