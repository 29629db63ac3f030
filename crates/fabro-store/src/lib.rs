//! The durable log of runs: append with an expected sequence, read, follow, inbox.
//!
//! A run is an append-only log of [`Event`]s. [`RunLog::append`] commits a batch in one durable
//! transaction, and only if the log ends where the writer expects (optimistic concurrency). A
//! driver holds the run's lease ([`Leases`]) and commits under it, so one process at a time drives
//! a run. [`Inbox`] carries answers, cancellation and steering from other processes to the driver.
//! [`MemoryStore`] keeps all that for tests; `SqliteStore` (feature `sqlite`) keeps it in a
//! directory.
//!
//! ```
//! use fabro_events::{Entry, Event, EventBody};
//! use fabro_store::{Batch, MemoryStore, RunLog, StoreError};
//! use fabro_types::RunId;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), StoreError> {
//! let store = MemoryStore::default();
//! let run_id = RunId::from_parts(1_700_000_000_000, 1);
//! let event = |seq| Event { run_id, seq, ts_ms: 0, entry: Entry::new(EventBody::RunStarted {}) };
//!
//! store.append(run_id, 0, &Batch::of(&[event(1), event(2)])).await?;
//! // A writer that has not seen those two is refused.
//! let late = store.append(run_id, 0, &Batch::of(&[event(1)])).await;
//! assert!(matches!(late, Err(StoreError::Conflict { found: 2, .. })));
//! assert_eq!(store.read(run_id, 1, 100).await?, [event(2)]);
//! # Ok(())
//! # }
//! ```
//!
//! # A store of your own
//!
//! Implement the traits of [`RunStore`]: they assume no shared disk and no shared memory. With the
//! feature `conformance`, one call in a test checks an implementation:
//! `fabro_store::conformance::check(async || MyStore::new()).await`.
//!
//! Limits: 2³² − 1 events a run; JSON in events nests at most 256 deep.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod gate;
mod lease;
mod leased;
mod memory;
mod request;
#[cfg(feature = "sqlite")]
mod sqlite;
mod summary;

use std::sync::Arc;

use async_trait::async_trait;
pub use error::{StoreError, StoreWarning};
use fabro_blob::BlobStore;
use fabro_events::{AnsweredBy, Event};
use fabro_types::{BlobRef, RunId};
pub use lease::{Lease, LeaseOwner, LeaseRecord, LeaseRequest, LeaseTime, Leases};
pub use leased::LeasedStore;
pub use memory::MemoryStore;
pub use request::{RequestClaim, RequestKey};
use serde::{Deserialize, Serialize};
#[cfg(feature = "sqlite")]
pub use sqlite::{RunUsage, RunVerification, SqliteStore, StoreUsage};
pub use summary::RunSummary;

/// What one commit adds to a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// The events, with the sequence numbers that follow the expected one.
    pub events: &'a [Event],
    /// Blobs that the events name and that are not stored yet: small ones become part of the
    /// transaction, larger ones are on stable storage before it.
    pub blobs: &'a [(BlobRef, Arc<[u8]>)],
    /// Messages of the run's inbox that the events take account of: they are no longer pending.
    pub consumed: &'a [InboxId],
}

impl<'a> Batch<'a> {
    /// Events alone.
    pub fn of(events: &'a [Event]) -> Self {
        Self { events, ..Self::default() }
    }

    /// Checks that the events are this run's, numbered on from `expected_seq`.
    fn check_order(&self, run: RunId, expected_seq: u64) -> Result<(), StoreError> {
        let mut after = expected_seq;
        for event in self.events {
            if event.run_id != run || after.checked_add(1) != Some(event.seq) {
                return Err(StoreError::OutOfOrder { run: event.run_id, seq: event.seq, after });
            }
            after = event.seq;
        }
        Ok(())
    }
}

/// The logs of all runs.
#[async_trait]
pub trait RunLog: Send + Sync {
    /// Commits a batch, all or nothing; it is on stable storage when this returns. `expected_seq`
    /// is the last sequence number the caller knows, 0 for a run that does not exist yet. Fails
    /// with [`StoreError::Conflict`] when the log ends elsewhere, and with [`StoreError::Driven`]
    /// while a process has the run's lease: its owner uses [`Leases::append_leased`].
    ///
    /// A `gate.asked` permits a new answer to that gate once the earlier answer is consumed, by
    /// this batch or before. A rewind drops answers that are still pending.
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError>;

    /// The events after `after_seq`, at most `limit`, in order; none for an unknown run. A last
    /// record that is cut off does not count (see [`Runs::check`]), and the next append replaces
    /// it; anything else that cannot be read is [`StoreError::BadEvent`].
    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;
}

/// The runs of a store.
#[async_trait]
pub trait Runs: Send + Sync {
    /// All runs, those of sub-workflows included, newest first: by when they started, then as they were
    /// made.
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError>;

    /// The run that a text means: an id, the beginning of exactly one id, or `latest`. Runs of
    /// sub-workflows are never `latest`, and the beginning of an id means one only if no other
    /// run's id begins so.
    async fn find(&self, text: &str) -> Result<RunId, StoreError>;

    /// A run and the runs of its sub-workflows, however deep, each after the run it is part of;
    /// the run alone when it is not known. Unless an implementation has an index, all runs are
    /// listed.
    async fn family(&self, run: RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(summary::family(run, &self.list().await?))
    }

    /// The run that is driven when this one is: the outermost run that it is a sub-workflow of;
    /// itself when it is not a sub-workflow or not known. Unless an implementation has an index,
    /// all runs are listed.
    async fn root(&self, run: RunId) -> Result<RunId, StoreError> {
        Ok(summary::root(run, &self.list().await?))
    }

    /// Removes a run with its sub-workflows' runs, their messages, and blobs that no other run
    /// names. Fails with [`StoreError::NotFound`] or, while its family is driven,
    /// [`StoreError::Driven`].
    async fn delete(&self, run: RunId) -> Result<(), StoreError>;

    /// The last sequence number of a run, 0 for an unknown run.
    async fn last_seq(&self, run: RunId) -> Result<u64, StoreError>;

    /// Whether it is known how far the log of a run went, apart from the log itself. Where it is not, a loss of the
    /// last events is not noticed by reading.
    async fn knows_end(&self, run: RunId) -> Result<bool, StoreError>;

    /// A warning about a run that can be read all the same.
    async fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError>;
}

/// Messages for the drivers of runs, from any process.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Sends a message to the run's driver; it is on stable storage when this returns. Fails
    /// with [`StoreError::NotFound`] for an unknown run and with [`StoreError::AlreadyAnswered`]
    /// for a second answer to a gate.
    async fn post(&self, run: RunId, message: &Message) -> Result<InboxId, StoreError> {
        self.post_at(run, message, None).await
    }

    /// The same, but only if the log of `at.run` ends at `at.seq`. That is checked in the transaction of
    /// the message; fails with [`StoreError::Changed`] when it ends elsewhere.
    async fn post_at(
        &self,
        run: RunId,
        message: &Message,
        at: Option<RunAt>,
    ) -> Result<InboxId, StoreError>;

    /// The messages that no commit has consumed, oldest first.
    async fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError>;
}

/// A cheap way to detect that a store has changed.
#[async_trait]
pub trait Follow: Send + Sync {
    /// Differs from an earlier mark of the same object if any process committed something in
    /// between.
    async fn mark(&self) -> Result<ChangeMark, StoreError>;
}

/// Everything a driver and its tools ask of a store.
pub trait Store: RunLog + Runs + Inbox + Follow + BlobStore {}

impl<S: RunLog + Runs + Inbox + Follow + BlobStore + ?Sized> Store for S {}

/// A store that also knows which process drives which run.
pub trait RunStore: Store + Leases {}

impl<S: Store + Leases + ?Sized> RunStore for S {}

/// The state of a store at one moment; only equality means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMark {
    ours: u64,
    others: i64,
}

/// Where the log of a run ends: what the caller of a change has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAt {
    /// The run; a message may be for one of its sub-workflows.
    pub run: RunId,
    /// Its last sequence number.
    pub seq: u64,
}

impl RunAt {
    /// Checks where the log ends.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`] when `found` is another sequence number.
    pub fn check(self, found: u64) -> Result<(), StoreError> {
        let Self { run, seq: expected } = self;
        if found == expected {
            return Ok(());
        }
        Err(StoreError::Changed { run, expected, found })
    }
}

/// Names a message in a store's inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InboxId(i64);

impl std::fmt::Display for InboxId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A message to a run's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// An answer to a gate.
    Answer {
        /// The gate's node.
        node: String,
        /// Which visit of it, from 1.
        visit: u32,
        /// The branch it is asked in; absent on the main line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
        /// An option's key or label, or free text.
        choice: String,
        /// Where the answer comes from: `cli`, `http`, ….
        source: String,
        /// Who answered; absent in messages of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<AnsweredBy>,
    },
    /// The run is to end.
    Cancel {
        /// Who or what asks for it.
        reason: String,
    },
    /// Something an agent should know.
    Steer {
        /// The text.
        text: String,
        /// The agent's node; absent for every agent that is running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
}

#[cfg(test)]
mod tests;
