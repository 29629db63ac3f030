use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fabro_blob::DirBlobs;
use fabro_types::RunId;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::heads::Heads;
use super::schema;
use super::transaction::Transaction;
use super::wal;
use crate::{ChangeMark, StoreError};

/// A write-ahead log above this size is folded into the database when the store is closed. A
/// smaller one is left as it is: reading it again costs less than the two syncs.
const WAL_KEPT: u64 = 1024 * 1024;

/// How often a reader looks again at a write-ahead log that seems to be damaged, and how long it waits before.
const WAL_READS: usize = 2;
const WAL_PAUSE: Duration = Duration::from_millis(5);

/// How long folding the write-ahead log waits for readers.
const FOLD_TIMEOUT: Duration = Duration::from_millis(50);

/// One connection to a store, with the directory of its larger blobs. Every call blocks.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) dir: PathBuf,
    /// The database file.
    pub(super) path: PathBuf,
    conn: Mutex<Connection>,
    pub(super) files: DirBlobs,
    pub(super) heads: Heads,
    /// The files as they were opened; absent when the store is only read.
    opened: Option<OpenedFiles>,
    /// Where the write-ahead log hides a commit. The next one would overwrite it.
    hidden: Mutex<Option<u64>>,
    /// Counts what this object committed; `SQLite` counts only what others did.
    commits: AtomicU64,
    /// The head of a log could not be written after its batch was appended.
    pub(super) head_failed: AtomicBool,
}

impl Database {
    /// Opens the store for reading and writing, and creates it if there is none.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = schema::prepare_dir(dir)?;
        let path = dir.join(schema::FILE);
        if !schema::exists(&path)? {
            if let Some(error) = Heads::new(&dir).missing_database(&path)? {
                return Err(error);
            }
            schema::create(&dir, &path)?;
        }
        let opened = OpenedFiles::of(&path)?;
        let hidden = hidden_commit(&path)?;
        let conn = schema::connect(&path)?;
        let db = Self::with(dir, path, conn, Some(opened));
        if hidden.is_some() {
            // Again while no other process writes there.
            let found = Transaction::begin(&db.conn())
                .map_err(Fault::from)
                .and_then(|_writer| Ok(hidden_commit(&db.path)?));
            *db.hidden() = found.map_err(|fault| fault.at(&db.path))?;
        }
        if db.hidden().is_none() {
            db.read_with(|conn| schema::raise(conn, &db.path))?;
        }
        Ok(db)
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
            return Err(Heads::new(&dir).missing_database(&path)?.unwrap_or_else(no_store));
        }
        let mut hidden = hidden_commit(&path)?;
        let conn = schema::connect_read_only(&path)?;
        for _ in 0..WAL_READS {
            if hidden.is_none() {
                break;
            }
            // A writer may have been in the middle of it.
            std::thread::sleep(WAL_PAUSE);
            let again = hidden_commit(&path)?;
            hidden = hidden.filter(|_| hidden == again);
        }
        let db = Self::with(dir, path, conn, None);
        *db.hidden() = hidden;
        Ok(db)
    }

    fn with(dir: PathBuf, path: PathBuf, conn: Connection, opened: Option<OpenedFiles>) -> Self {
        let files = DirBlobs::new(dir.join("blobs"));
        let heads = Heads::new(&dir);
        let conn = Mutex::new(conn);
        Self {
            dir,
            path,
            conn,
            files,
            heads,
            opened,
            hidden: Mutex::default(),
            commits: AtomicU64::new(0),
            head_failed: AtomicBool::new(false),
        }
    }

    pub(super) fn runs_dir(&self) -> PathBuf {
        self.dir.join("runs")
    }

    /// The pool of the artifacts of all runs.
    pub(super) fn artifacts_dir(&self) -> PathBuf {
        fabro_artifacts::pool_of(&self.runs_dir().join("of-any-run"))
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
        let check_files = || self.opened.as_ref().map_or(Ok(()), |files| files.check(&self.path));
        self.check_hidden()?;
        let transaction = Transaction::begin(conn)?;
        check_files()?;
        let value = write(&transaction)?;
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        // Between the two, the commit may have gone into a file that no other process opens.
        check_files()?;
        Ok(value)
    }

    /// Fails when the write-ahead log hides a commit.
    pub(super) fn check_hidden(&self) -> Result<(), StoreError> {
        let mut hidden = self.hidden();
        if hidden.is_some() {
            // Another process may have given it up.
            *hidden = hidden_commit(&self.path)?;
        }
        let path = || schema::beside(&self.path, "-wal");
        hidden.map_or(Ok(()), |at| Err(StoreError::HiddenCommit { path: path(), at }))
    }

    /// Gives up the commit that the write-ahead log hides, and what follows it. Returns whether there was one.
    pub(super) fn give_up_hidden(&self) -> Result<bool, StoreError> {
        if self.hidden().is_none() {
            return Ok(false);
        }
        self.read_with(|conn| {
            let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
            let is_busy: bool = conn.query_row(fold, [], |row| row.get(0))?;
            if is_busy {
                return Err(StoreError::Busy { path: self.path.clone() }.into());
            }
            schema::raise(conn, &self.path)
        })?;
        *self.hidden() = None;
        Ok(true)
    }

    fn hidden(&self) -> MutexGuard<'_, Option<u64>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folds the write-ahead log into the database, so that the file alone has everything. Where other
    /// processes use the store, as much as they permit.
    pub(super) fn fold(&self) {
        let conn = self.conn();
        // The commits are durable as they are: nothing depends on this.
        let _ = conn.busy_timeout(FOLD_TIMEOUT);
        let _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = conn.busy_timeout(schema::BUSY_TIMEOUT);
    }
}

/// Which files a database was when it was opened. `SQLite` continues in files that were deleted or
/// replaced, where no other process finds what it writes.
#[derive(Debug)]
struct OpenedFiles {
    database: FileId,
    /// Known after the first commit.
    wal: OnceLock<FileId>,
}

/// A file of a file system: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    /// `None` when there is no such file.
    fn of(path: &Path) -> Result<Option<Self>, StoreError> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(Self(found.dev(), found.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io(path.to_owned(), error)),
        }
    }
}

impl OpenedFiles {
    fn of(path: &Path) -> Result<Self, StoreError> {
        let database =
            FileId::of(path)?.ok_or_else(|| StoreError::Replaced { path: path.to_owned() })?;
        Ok(Self { database, wal: OnceLock::new() })
    }

    /// Checks that they are still there.
    fn check(&self, path: &Path) -> Result<(), StoreError> {
        if FileId::of(path)? != Some(self.database) {
            return Err(StoreError::Replaced { path: path.to_owned() });
        }
        let wal = schema::beside(path, "-wal");
        let found = FileId::of(&wal)?;
        match (self.wal.get(), found) {
            (Some(known), found) if found != Some(*known) => {
                Err(StoreError::Replaced { path: wal })
            }
            (None, Some(found)) => {
                // A second thread would set the same.
                let _ = self.wal.set(found);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if schema::wal_size(&self.path) > WAL_KEPT && self.hidden().is_none() {
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

fn hidden_commit(path: &Path) -> Result<Option<u64>, StoreError> {
    let log = schema::beside(path, "-wal");
    wal::hidden_commit(&log).map_err(|error| StoreError::io(log, error))
}

/// The key of a run, if there is one.
pub(super) fn run_key(conn: &Connection, run: RunId) -> rusqlite::Result<Option<i64>> {
    let mut select = conn.prepare_cached("SELECT key FROM runs WHERE id = ?1")?;
    select.query_row([run.to_string()], |row| row.get(0)).optional()
}
