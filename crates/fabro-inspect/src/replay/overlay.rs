//! A store in memory above the recorded one, of which only blobs are read.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_blob::{BlobError, BlobStore};
use fabro_events::Event;
use fabro_store::{
    Batch, ChangeMark, Follow, Inbox, InboxId, MemoryStore, Message, RunLog, RunSummary, Runs,
    Store, StoreError, StoreWarning,
};
use fabro_types::{BlobRef, RunId};

/// What is written stays in memory; blobs that are not there are those of the record.
pub(crate) struct Overlay {
    memory: MemoryStore,
    recorded: Arc<dyn Store>,
}

impl Overlay {
    pub(crate) fn new(recorded: Arc<dyn Store>) -> Self {
        Self { memory: MemoryStore::default(), recorded }
    }

    fn either<T>(
        &self,
        get: impl Fn(&dyn BlobStore) -> Result<T, BlobError>,
    ) -> Result<T, BlobError> {
        match get(&self.memory) {
            Err(BlobError::Missing { .. }) => get(&self.recorded),
            found => found,
        }
    }
}

impl BlobStore for Overlay {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.either(|blobs| blobs.get(blob))
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.memory.put(bytes)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        self.either(|blobs| blobs.len(blob))
    }

    fn copy_to(&self, blob: &BlobRef, out: &mut dyn io::Write) -> Result<u64, BlobError> {
        // Which store has it is known before anything is written.
        match self.memory.len(blob) {
            Err(BlobError::Missing { .. }) => self.recorded.copy_to(blob, out),
            Ok(_) => self.memory.copy_to(blob, out),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl RunLog for Overlay {
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        self.memory.append(run, expected_seq, batch).await
    }

    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.memory.read(run, after_seq, limit).await
    }
}

#[async_trait]
impl Runs for Overlay {
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        self.memory.list().await
    }

    async fn find(&self, text: &str) -> Result<RunId, StoreError> {
        self.memory.find(text).await
    }

    async fn delete(&self, run: RunId) -> Result<(), StoreError> {
        self.memory.delete(run).await
    }

    async fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        self.memory.last_seq(run).await
    }

    async fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        self.memory.check(run).await
    }
}

#[async_trait]
impl Inbox for Overlay {
    async fn post(&self, run: RunId, message: &Message) -> Result<InboxId, StoreError> {
        self.memory.post(run, message).await
    }

    async fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        self.memory.pending(run).await
    }
}

#[async_trait]
impl Follow for Overlay {
    async fn mark(&self) -> Result<ChangeMark, StoreError> {
        self.memory.mark().await
    }
}
