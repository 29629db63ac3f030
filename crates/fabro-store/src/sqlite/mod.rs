//! The store in a directory: one `SQLite` database, larger blobs as files, a directory a run.

mod blobs;
mod chain;
mod database;
mod fault;
mod format;
mod heads;
mod inbox;
mod lease;
mod lease_rows;
mod log;
mod record;
mod refs;
mod requests;
mod row_hashes;
mod runs;
mod schema;
mod thread;
mod transaction;
mod usage;
mod verify;
mod wal;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use blobs::SMALL_BLOB;
use database::Database;
use fabro_blob::{BlobError, BlobStore, text_to_json_string};
use fabro_events::Event;
use fabro_types::{BlobRef, RunId};
use log::EncodedBatch;
use thread::Thread;
pub use usage::{RunUsage, StoreUsage};
pub use verify::RunVerification;

use crate::{
    Batch, ChangeMark, Follow, Inbox, InboxId, Lease, LeaseOwner, Leases, Message, RequestClaim,
    RequestKey, RunAt, RunLog, RunSummary, Runs, StoreError, StoreWarning,
};

/// A store in a directory, shared by any number of processes.
///
/// The database `fabro.db` holds the logs, the inbox and small blobs; `blobs/` holds larger ones,
/// and `runs/{id}/` what the run's stages write there. A `.gitignore` keeps all of it out of
/// version control.
///
/// One object is one connection with a thread of its own: asynchronous calls are done there, one
/// after the other, so that the caller's thread never waits for the disk. They need no runtime. A
/// call whose future is dropped is done all the same. Reading and keeping blobs
/// ([`BlobStore`]) blocks the caller.
#[derive(Debug)]
pub struct SqliteStore {
    db: Arc<Database>,
    thread: Thread,
}

impl SqliteStore {
    /// Opens the store in this directory for reading and writing, and creates it if there is
    /// none. Fails with [`StoreError::ReadOnly`] where nothing may be written.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::of(Database::open(dir)?)
    }

    /// Opens the store in this directory for reading alone; also one that may not be written, on
    /// a read-only disk for example. Fails with [`StoreError::NoStore`] when there is none.
    /// Every call that writes fails with [`StoreError::ReadOnly`].
    pub fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        Self::of(Database::open_read_only(dir)?)
    }

    fn of(db: Database) -> Result<Self, StoreError> {
        let db = Arc::new(db);
        let thread = Thread::start(Arc::clone(&db))
            .map_err(|source| StoreError::io(db.path.clone(), source))?;
        Ok(Self { db, thread })
    }

    /// Checks all that a run consists of: its records and their hashes, that none is missing, and that
    /// every blob its records name can be read.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] for a run that was never there. What is wrong with a run that
    /// there is, is in the result.
    pub async fn verify(&self, run: RunId) -> Result<RunVerification, StoreError> {
        self.thread.run(move |db| db.verify(run)).await
    }

    /// Makes the log as it is count as whole: without the events at its end that were lost, which
    /// cannot come back after that. What lists show of the run is computed anew. Of a run without any
    /// records, the last trace is removed.
    ///
    /// # Errors
    ///
    /// The log is damaged in other ways, the run is being driven, or the last commit
    /// [cannot be read](Self::give_up_last_commit).
    pub async fn accept_loss(&self, run: RunId) -> Result<(), StoreError> {
        self.thread.run(move |db| db.accept_loss(run)).await
    }

    /// Whether the last commit can be read: the write-ahead log was looked at when the store was opened.
    ///
    /// # Errors
    ///
    /// [`StoreError::HiddenCommit`] when it is damaged.
    pub fn check_last_commit(&self) -> Result<(), StoreError> {
        self.db.check_hidden()
    }

    /// Gives up the last commit where it cannot be read, and what follows it, so that the store may be written
    /// again. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Busy`] while another process reads the store.
    pub async fn give_up_last_commit(&self) -> Result<bool, StoreError> {
        self.thread.run(Database::give_up_hidden).await
    }

    /// The runs that were committed and of which the database has nothing.
    pub async fn lost_runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.thread.run(Database::lost_runs).await
    }

    /// What the database's own check of its structure found; nothing when it is whole. Reads all of it.
    pub async fn check_database(&self) -> Result<Vec<String>, StoreError> {
        self.thread.run(Database::check_database).await
    }

    /// Writes a copy of the store into one file, which must not exist: the database with all blobs in it.
    /// Runs may continue meanwhile; the copy has what was committed when it began. As `fabro.db` of an
    /// empty directory it is a store.
    pub async fn backup(&self, file: &Path) -> Result<(), StoreError> {
        let file = file.to_owned();
        self.thread.run(move |db| db.backup(&file)).await
    }

    /// The space that the store and its runs take.
    pub async fn usage(&self) -> Result<StoreUsage, StoreError> {
        self.thread.run(Database::usage).await
    }

    /// Removes the blobs that no run names, and, when at least `least` bytes of the database are free,
    /// gives them back to the disk. Does nothing while a run is being driven, and returns whether it did
    /// anything. A driver that starts meanwhile waits.
    pub async fn compact(&self, least: u64) -> Result<bool, StoreError> {
        self.thread.run(move |db| db.compact(least)).await
    }

    /// Claims an idempotency key for this process: only one process of those that use the store handles the request.
    /// `new_run` is the run that it would create. Answers are kept for `retention`.
    pub async fn claim_request(
        &self,
        key: &RequestKey,
        new_run: Option<RunId>,
        retention: Duration,
    ) -> Result<RequestClaim, StoreError> {
        let key = key.clone();
        self.thread.run(move |db| db.claim_request(&key, new_run, retention)).await
    }

    /// Stores the answer to a request that was [claimed](Self::claim_request); `None` releases the key.
    pub async fn answer_request(
        &self,
        key: &RequestKey,
        answer: Option<String>,
    ) -> Result<(), StoreError> {
        let key = key.clone();
        self.thread.run(move |db| db.answer_request(&key, answer.as_deref())).await
    }

    async fn append_batch(
        &self,
        batch: EncodedBatch,
        lease: Option<Lease>,
    ) -> Result<(), StoreError> {
        let append = move |db: &Database| {
            let head = db.append(&batch, lease)?;
            let write_head = move |db: &Database| {
                if let Some(head) = head {
                    db.write_head(batch.run(), &head);
                }
            };
            Ok(((), write_head))
        };
        self.thread.run_then(append).await
    }

    /// The store's directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.db.dir
    }

    /// The directory for what the stages of all runs leave behind, in a directory for each run that
    /// is removed with it. Nothing there is needed to resume a run.
    pub fn runs_dir(&self) -> PathBuf {
        self.db.runs_dir()
    }
}

#[async_trait]
impl RunLog for SqliteStore {
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        let batch = EncodedBatch::new(run, expected_seq, batch)?;
        self.append_batch(batch, None).await
    }

    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.thread.run(move |db| db.read(run, after_seq, limit)).await
    }
}

#[async_trait]
impl Runs for SqliteStore {
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        self.thread.run(Database::list).await
    }

    async fn find(&self, text: &str) -> Result<RunId, StoreError> {
        let text = text.to_owned();
        self.thread.run(move |db| db.find(&text)).await
    }

    async fn family(&self, run: RunId) -> Result<Vec<RunId>, StoreError> {
        self.thread.run(move |db| db.family(run)).await
    }

    async fn root(&self, run: RunId) -> Result<RunId, StoreError> {
        self.thread.run(move |db| db.root(run)).await
    }

    async fn delete(&self, run: RunId) -> Result<(), StoreError> {
        self.thread.run(move |db| db.delete(run)).await
    }

    async fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        self.thread.run(move |db| db.last_seq(run)).await
    }

    async fn knows_end(&self, run: RunId) -> Result<bool, StoreError> {
        self.thread.run(move |db| Ok(db.heads.read(run)?.is_some())).await
    }

    async fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        self.thread.run(move |db| db.check(run)).await
    }
}

#[async_trait]
impl Inbox for SqliteStore {
    async fn post_at(
        &self,
        run: RunId,
        message: &Message,
        at: Option<RunAt>,
    ) -> Result<InboxId, StoreError> {
        let message = message.clone();
        self.thread.run(move |db| db.post(run, &message, at)).await
    }

    async fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        self.thread.run(move |db| db.pending(run)).await
    }
}

#[async_trait]
impl Follow for SqliteStore {
    async fn mark(&self) -> Result<ChangeMark, StoreError> {
        self.thread.run(Database::mark).await
    }
}

#[async_trait]
impl Leases for SqliteStore {
    async fn acquire(
        &self,
        run: RunId,
        owner: &LeaseOwner,
        ttl: Duration,
    ) -> Result<Lease, StoreError> {
        let owner = owner.clone();
        self.thread.run(move |db| db.acquire(run, &owner, ttl)).await
    }

    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        self.thread.run(move |db| db.renew(lease, ttl)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.thread.run(move |db| db.release(lease)).await
    }

    async fn driver(&self, run: RunId) -> Result<Option<LeaseOwner>, StoreError> {
        self.thread.run(move |db| db.driver(run)).await
    }

    async fn append_leased(
        &self,
        lease: Lease,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        let batch = EncodedBatch::new(run, expected_seq, batch)?;
        self.append_batch(batch, Some(lease)).await
    }
}

impl BlobStore for SqliteStore {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        match self.db.small_bytes(blob)? {
            Some(bytes) => Ok(bytes),
            None => self.db.files.get(blob).map_err(|error| self.db.lost_or_unknown(error)),
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        if bytes.len() >= SMALL_BLOB {
            return self.db.files.put(bytes);
        }
        let blob = BlobRef::of(bytes);
        self.db.put_small(&blob, bytes)?;
        Ok(blob)
    }

    fn put_json_string(&self, text: &mut dyn Read) -> Result<BlobRef, BlobError> {
        let input = |source| BlobError::Input { source };
        let mut start = Vec::new();
        let mut text = text;
        (&mut text).take(SMALL_BLOB as u64).read_to_end(&mut start).map_err(input)?;
        if start.len() >= SMALL_BLOB {
            return self.db.files.put_json_string(&mut start.as_slice().chain(text));
        }
        let mut json = Vec::new();
        text_to_json_string(&mut start.as_slice(), &mut json).map_err(input)?;
        self.put(&json)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        const SQL: &str = "SELECT length(bytes) FROM blobs WHERE hash = ?1 AND bytes IS NOT NULL";
        match self.db.small_blob(SQL, blob, |row| row.get::<_, i64>(0))? {
            Some(size) => Ok(size.cast_unsigned()),
            None => self.db.files.len(blob).map_err(|error| self.db.lost_or_unknown(error)),
        }
    }

    fn copy_to(&self, blob: &BlobRef, out: &mut dyn Write) -> Result<u64, BlobError> {
        match self.db.files.copy_to(blob, out) {
            Err(BlobError::Lost { .. }) => {}
            copied => return copied,
        }
        let bytes = self.get(blob)?;
        out.write_all(&bytes).map_err(|source| BlobError::Output { source })?;
        Ok(bytes.len() as u64)
    }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wal_tests;
