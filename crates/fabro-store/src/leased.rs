use std::io::{Read, Write};
use std::sync::Arc;

use async_trait::async_trait;
use fabro_blob::{BlobError, BlobStore};
use fabro_events::Event;
use fabro_types::{BlobRef, RunId};

use crate::{
    Batch, ChangeMark, Follow, Inbox, InboxId, Lease, Message, RunAt, RunLog, RunStore, RunSummary,
    Runs, StoreError, StoreWarning,
};

/// A store as the owner of a lease uses it: every commit is made under that lease.
pub struct LeasedStore {
    store: Arc<dyn RunStore>,
    lease: Lease,
}

impl LeasedStore {
    /// The store with this lease.
    pub fn new(store: Arc<dyn RunStore>, lease: Lease) -> Self {
        Self { store, lease }
    }
}

#[async_trait]
impl RunLog for LeasedStore {
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        self.store.append_leased(self.lease, run, expected_seq, batch).await
    }

    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.store.read(run, after_seq, limit).await
    }
}

#[async_trait]
impl Runs for LeasedStore {
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        self.store.list().await
    }

    async fn find(&self, text: &str) -> Result<RunId, StoreError> {
        self.store.find(text).await
    }

    async fn family(&self, run: RunId) -> Result<Vec<RunId>, StoreError> {
        self.store.family(run).await
    }

    async fn root(&self, run: RunId) -> Result<RunId, StoreError> {
        self.store.root(run).await
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
impl Inbox for LeasedStore {
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
impl Follow for LeasedStore {
    async fn mark(&self) -> Result<ChangeMark, StoreError> {
        self.store.mark().await
    }
}

impl BlobStore for LeasedStore {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.store.get(blob)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.store.put(bytes)
    }

    fn put_json_string(&self, text: &mut dyn Read) -> Result<BlobRef, BlobError> {
        self.store.put_json_string(text)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        self.store.len(blob)
    }

    fn copy_to(&self, blob: &BlobRef, out: &mut dyn Write) -> Result<u64, BlobError> {
        self.store.copy_to(blob, out)
    }
}
