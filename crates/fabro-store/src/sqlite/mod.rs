//! The store in a directory: one `SQLite` database, larger blobs as files, a directory a run.

mod fault;
mod inbox;
mod lock;
mod log;
mod record;
mod refs;
mod runs;
mod schema;
mod transaction;
mod wal;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabro_blob::{BlobError, BlobStore, DirBlobs, text_to_json_string};
use fabro_types::{BlobRef, RunId};
use fault::Fault;
pub use lock::DriverLock;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};
use transaction::Transaction;
use wal::Wal;

use crate::{ChangeMark, Follow, StoreError};

/// Blobs of this size and more are files; smaller ones are rows, and are written with the events
/// that name them.
const SMALL_BLOB: usize = 64 * 1024;

/// A write-ahead log above this size is folded into the database when the store is closed. A
/// smaller one is left as it is: reading it again costs less than the two syncs.
const WAL_KEPT: u64 = 1024 * 1024;

/// A store in a directory, shared by any number of processes.
///
/// The database `fabro.db` holds the logs, the inbox and small blobs; `blobs/` holds larger ones,
/// and `runs/{id}/` whatever the run's stages leave there. A `.gitignore` keeps all of it out of
/// version control. One object is one connection; its calls wait for each other.
#[derive(Debug)]
pub struct SqliteStore {
    dir: PathBuf,
    /// The database file.
    path: PathBuf,
    wal: Wal,
    conn: Mutex<Connection>,
    files: DirBlobs,
    /// Counts what this object committed; `SQLite` counts only what others did.
    commits: AtomicU64,
}

impl SqliteStore {
    /// Opens the store in this directory for reading and writing, and creates it if there is
    /// none. Fails with [`StoreError::ReadOnly`] where nothing may be written.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = schema::prepare_dir(dir)?;
        let path = dir.join(schema::FILE);
        if !schema::exists(&path)? {
            schema::create(&dir, &path)?;
        }
        let conn = schema::connect(&path)?;
        Ok(Self::with(dir, path, conn))
    }

    /// Opens the store in this directory for reading alone; also one that may not be written, on
    /// a read-only disk for example. Fails with [`StoreError::NoStore`] when there is none.
    /// Whatever would write fails with [`StoreError::ReadOnly`].
    pub fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        let no_store = || StoreError::NoStore { path: dir.to_owned() };
        let dir = match fs::canonicalize(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_store()),
            found => found.map_err(|error| StoreError::io(dir.to_owned(), error))?,
        };
        let path = dir.join(schema::FILE);
        if !schema::exists(&path)? {
            return Err(no_store());
        }
        let conn = schema::connect_read_only(&path)?;
        Ok(Self::with(dir, path, conn))
    }

    fn with(dir: PathBuf, path: PathBuf, conn: Connection) -> Self {
        let files = DirBlobs::new(dir.join("blobs"));
        let wal = Wal::of(&path);
        Self { dir, path, wal, conn: Mutex::new(conn), files, commits: AtomicU64::new(0) }
    }

    /// The store's directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory for what a run's stages leave behind. It is created by whoever writes there
    /// first, and removed with the run.
    pub fn run_dir(&self, run: RunId) -> PathBuf {
        self.dir.join("runs").join(run.to_string())
    }

    /// The store as the place where blobs are: small ones in the database, others as files.
    pub fn blobs(&self) -> &dyn BlobStore {
        self
    }

    fn conn(&self) -> MutexGuard<'_, Connection> {
        // A panic under the lock has rolled its transaction back.
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        read(&self.conn()).map_err(|fault| fault.at(&self.path))
    }

    /// One durable transaction: all of what `write` does, or, when it fails, nothing.
    fn write_with<T>(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let conn = self.conn();
        let commit = || {
            let transaction = Transaction::begin(&conn)?;
            // Without more room the commit does as well, and if the disk is full, it says so.
            let _ = self.wal.make_room(&transaction);
            let value = write(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        let value = { commit }().map_err(|fault: Fault| fault.at(&self.path))?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(value)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if self.wal.len() > WAL_KEPT {
            // Should this fail, the log only stays longer.
            let _ = self.conn().set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }
}

impl Follow for SqliteStore {
    fn mark(&self) -> Result<ChangeMark, StoreError> {
        let others = self.read_with(|conn| {
            let mut version = conn.prepare_cached("PRAGMA data_version")?;
            Ok(version.query_row([], |row| row.get(0))?)
        })?;
        Ok(ChangeMark { ours: self.commits.load(Ordering::Acquire), others })
    }
}

impl SqliteStore {
    fn small_blob<T>(
        &self,
        sql: &str,
        blob: &BlobRef,
        take: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, BlobError> {
        let found = self.read_with(|conn| {
            let mut select = conn.prepare_cached(sql)?;
            Ok(select.query_row([blob.digest()], take).optional()?)
        });
        found.map_err(|error| BlobError::Backend { source: Box::new(error) })
    }

    fn put_small(&self, blob: &BlobRef, bytes: &[u8]) -> Result<(), BlobError> {
        let stored = self.write_with(|transaction| Ok(log::insert_blob(transaction, blob, bytes)?));
        stored.map_err(|error| BlobError::Backend { source: Box::new(error) })
    }
}

impl BlobStore for SqliteStore {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        const SQL: &str = "SELECT bytes FROM blobs WHERE hash = ?1 AND bytes IS NOT NULL";
        let Some(bytes) = self.small_blob(SQL, blob, |row| row.get::<_, Vec<u8>>(0))? else {
            return self.files.get(blob);
        };
        if BlobRef::of(&bytes) != *blob {
            return Err(BlobError::Corrupt { blob: *blob, path: Some(self.path.clone()) });
        }
        Ok(bytes)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        if bytes.len() >= SMALL_BLOB {
            return self.files.put(bytes);
        }
        let blob = BlobRef::of(bytes);
        self.put_small(&blob, bytes)?;
        Ok(blob)
    }

    fn put_json_string(&self, text: &mut dyn Read) -> Result<BlobRef, BlobError> {
        let input = |source| BlobError::Input { source };
        let mut start = Vec::new();
        let mut text = text;
        (&mut text).take(SMALL_BLOB as u64).read_to_end(&mut start).map_err(input)?;
        if start.len() >= SMALL_BLOB {
            return self.files.put_json_string(&mut start.as_slice().chain(text));
        }
        let mut json = Vec::new();
        text_to_json_string(&mut start.as_slice(), &mut json).map_err(input)?;
        self.put(&json)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        const SQL: &str = "SELECT length(bytes) FROM blobs WHERE hash = ?1 AND bytes IS NOT NULL";
        match self.small_blob(SQL, blob, |row| row.get::<_, i64>(0))? {
            Some(size) => Ok(size.cast_unsigned()),
            None => self.files.len(blob),
        }
    }

    fn copy_to(&self, blob: &BlobRef, out: &mut dyn Write) -> Result<u64, BlobError> {
        match self.files.copy_to(blob, out) {
            Err(BlobError::Missing { .. }) => {}
            copied => return copied,
        }
        let bytes = self.get(blob)?;
        out.write_all(&bytes).map_err(|source| BlobError::Output { source })?;
        Ok(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests;
