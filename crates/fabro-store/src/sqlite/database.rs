use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabro_blob::DirBlobs;
use fabro_types::RunId;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::schema;
use super::transaction::Transaction;
use crate::{ChangeMark, StoreError};

/// A write-ahead log above this size is folded into the database when the store is closed. A
/// smaller one is left as it is: reading it again costs less than the two syncs.
const WAL_KEPT: u64 = 1024 * 1024;

/// One connection to a store, with the directory of its larger blobs. Every call blocks.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) dir: PathBuf,
    /// The database file.
    pub(super) path: PathBuf,
    conn: Mutex<Connection>,
    pub(super) files: DirBlobs,
    /// Counts what this object committed; `SQLite` counts only what others did.
    commits: AtomicU64,
}

impl Database {
    /// Opens the store for reading and writing, and creates it if there is none.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = schema::prepare_dir(dir)?;
        let path = dir.join(schema::FILE);
        if !schema::exists(&path)? {
            schema::create(&dir, &path)?;
        }
        let conn = schema::connect(&path)?;
        Ok(Self::with(dir, path, conn))
    }

    /// Opens the store for reading alone.
    pub(super) fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
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
        Self { dir, path, conn: Mutex::new(conn), files, commits: AtomicU64::new(0) }
    }

    pub(super) fn runs_dir(&self) -> PathBuf {
        self.dir.join("runs")
    }

    pub(super) fn conn(&self) -> MutexGuard<'_, Connection> {
        // A panic under the lock has rolled its transaction back.
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read_with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        read(&self.conn()).map_err(|fault| fault.at(&self.path))
    }

    /// One durable transaction: all of what `write` does, or, when it fails, nothing.
    pub(super) fn write_with<T>(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.commit(&self.conn(), write).map_err(|fault| fault.at(&self.path))
    }

    /// The same without a sync: other processes see it, and the next synced commit makes it durable.
    pub(super) fn write_unsynced<T>(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let conn = self.conn();
        let set = |level| conn.pragma_update(None, "synchronous", level).map_err(Fault::from);
        let committed = set("NORMAL").and_then(|()| self.commit(&conn, write));
        let restored = set("FULL");
        committed.and_then(|value| restored.map(|()| value)).map_err(|fault| fault.at(&self.path))
    }

    fn commit<T>(
        &self,
        conn: &Connection,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let transaction = Transaction::begin(conn)?;
        let value = write(&transaction)?;
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(value)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if schema::wal_size(&self.path) > WAL_KEPT {
            // Should this fail, the log only stays longer.
            let _ = self.conn().set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }
}

impl Database {
    pub(super) fn mark(&self) -> Result<ChangeMark, StoreError> {
        let others = self.read_with(|conn| {
            let mut version = conn.prepare_cached("PRAGMA data_version")?;
            Ok(version.query_row([], |row| row.get(0))?)
        })?;
        Ok(ChangeMark { ours: self.commits.load(Ordering::Acquire), others })
    }
}

/// The key of a run, if there is one.
pub(super) fn run_key(conn: &Connection, run: RunId) -> rusqlite::Result<Option<i64>> {
    let mut select = conn.prepare_cached("SELECT key FROM runs WHERE id = ?1")?;
    select.query_row([run.to_string()], |row| row.get(0)).optional()
}
