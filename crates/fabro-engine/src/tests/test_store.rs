use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fabro_blob::{BlobError, BlobStore};
use fabro_events::Event;
use fabro_store::{
    Batch, ChangeMark, Follow, Inbox, InboxId, MemoryStore, Message, RunAt, RunLog, RunSummary,
    Runs, StoreError, StoreWarning,
};
use fabro_types::{BlobRef, RunId};

/// A store in memory that counts the events it reads, and whose commits may take time.
#[derive(Default)]
pub(super) struct TestStore {
    pub(super) store: MemoryStore,
    pub(super) events_read: AtomicUsize,
    pub(super) append_takes: Duration,
}

#[async_trait]
impl RunLog for TestStore {
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        if !self.append_takes.is_zero() {
            tokio::time::sleep(self.append_takes).await;
        }
        self.store.append(run, expected_seq, batch).await
    }

    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let events = self.store.read(run, after_seq, limit).await?;
        self.events_read.fetch_add(events.len(), Ordering::Relaxed);
        Ok(events)
    }
}

#[async_trait]
impl Runs for TestStore {
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        self.store.list().await
    }

    async fn find(&self, text: &str) -> Result<RunId, StoreError> {
        self.store.find(text).await
    }

    async fn delete(&self, run: RunId) -> Result<(), StoreError> {
        self.store.delete(run).await
    }

    async fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        self.store.last_seq(run).await
    }

    async fn knows_end(&self, run: RunId) -> Result<bool, StoreError> {
        self.store.knows_end(run).await
    }

    async fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        self.store.check(run).await
    }
}

#[async_trait]
impl Inbox for TestStore {
    async fn post_at(
        &self,
        run: RunId,
        message: &Message,
        at: Option<RunAt>,
    ) -> Result<InboxId, StoreError> {
        self.store.post_at(run, message, at).await
    }

    async fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        self.store.pending(run).await
    }
}

#[async_trait]
impl Follow for TestStore {
    async fn mark(&self) -> Result<ChangeMark, StoreError> {
        self.store.mark().await
    }
}

impl BlobStore for TestStore {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.store.get(blob)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.store.put(bytes)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        self.store.len(blob)
    }
}
