//! Creating and opening the database.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabro_blob::give_to_owner_of;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::fault::{self, Fault};
use super::format::{FORMAT, format, has_hashes, has_leases};
use super::transaction::Transaction;
use super::{lease_rows, row_hashes};
use crate::StoreError;

/// The database's name in the store's directory.
pub(super) const FILE: &str = fabro_types::control_files::STORE_FILE;

/// The prefix of directories in which databases are created.
const UNFINISHED: &str = ".new-";

/// Says in the file's header that it is ours: `Fabr`.
const APPLICATION: i64 = 0x4661_6272;

/// The timeout of a call that waits for other processes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// `events.id` is the run's key in the upper 32 bits and the sequence number in the lower ones:
/// a run's log is one stretch of the table, and a record carries neither.
/// `blobs.bytes` is NULL for a blob that is a file. `uses` says which run names which blob.
/// `inbox.gate` is what an answer answers, as long as it keeps others from answering it.
/// `leases` is created by [`LEASES`], and the columns for hashes by [`HASHES`].
const SCHEMA: &str = "
    BEGIN;
    CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        parent TEXT,
        workflow TEXT NOT NULL,
        goal TEXT NOT NULL,
        status TEXT NOT NULL,
        started INTEGER NOT NULL,
        ended INTEGER
    );
    CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
    CREATE TABLE events (id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, entry TEXT NOT NULL);
    CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, bytes BLOB);
    CREATE TABLE uses (
        run INTEGER NOT NULL,
        blob INTEGER NOT NULL,
        PRIMARY KEY (run, blob)
    ) WITHOUT ROWID;
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        gate TEXT,
        pending INTEGER NOT NULL DEFAULT 1,
        message TEXT NOT NULL
    );
    CREATE UNIQUE INDEX inbox_gate ON inbox (run, gate) WHERE gate IS NOT NULL;
    CREATE INDEX inbox_pending ON inbox (run) WHERE pending;
    COMMIT;
";

/// New in format 2. `owner` is NULL once a lease is released; the row stays, because epochs only
/// increase.
const LEASES: &str = "
    CREATE TABLE leases (
        run TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        owner TEXT,
        expires INTEGER NOT NULL
    ) WITHOUT ROWID;
";

/// New in format 3. `events.hash` is the chain's; records up to `runs.unhashed` were written before there was
/// one. `sum` is the hash of a run's row, and of a message.
const HASHES: &str = "
    ALTER TABLE events ADD COLUMN hash BLOB;
    ALTER TABLE runs ADD COLUMN unhashed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN sum BLOB;
    ALTER TABLE inbox ADD COLUMN sum BLOB;
";

/// The file that drivers of format 1 lock shared.
const FORMAT_1_DRIVERS: &str = "drivers.lock";

/// The mode of a directory that only its owner may enter.
const PRIVATE: u32 = 0o700;

/// Creates the store's directory if need be, and returns its absolute path.
pub(super) fn prepare_dir(dir: &Path) -> Result<PathBuf, StoreError> {
    let here = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            StoreError::NotAStore { path: dir.to_owned() }
        }
        _ => StoreError::io(dir.to_owned(), error),
    };
    create_dir(dir, PRIVATE).map_err(here)?;
    let dir = fs::canonicalize(dir).map_err(here)?;
    // A directory that was there before may be open to others; what runs print is not.
    let runs = dir.join("runs");
    create_dir(&runs, PRIVATE).map_err(|error| StoreError::io(runs, error))?;
    let ignore = dir.join(".gitignore");
    match File::options().write(true).create_new(true).mode(0o600).open(&ignore) {
        Ok(mut file) => {
            io::Write::write_all(&mut file, b"*\n")
                .map_err(|error| StoreError::io(ignore, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(StoreError::io(ignore, error)),
    }
    Ok(dir)
}

/// Creates a directory with this mode, and its missing parents. Each new directory gets the owner
/// of its parent: root may start the first run in another user's directory. An existing one is left
/// unchanged.
fn create_dir(dir: &Path, mode: u32) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = match dir.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    create_dir(above, 0o777)?;
    match DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        created => created.and_then(|()| give_to_owner_of(above, dir)),
    }
}

/// Whether there is a database. An error if that cannot be told.
pub(super) fn exists(path: &Path) -> Result<bool, StoreError> {
    match std::fs::metadata(path) {
        // To open a pipe would wait for its other end.
        Ok(about) if !about.is_file() => Err(StoreError::NotAStore { path: path.to_owned() }),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io(path.to_owned(), error)),
    }
}

/// Creates an empty database beside its place and moves it there whole. When another process
/// does the same at this moment, one of the two is kept, and it does not matter which.
///
/// The directory is synced by the first commit: `SQLite` does that for its log, which is new too.
pub(super) fn create(dir: &Path, path: &Path) -> Result<(), StoreError> {
    match move_in(dir, path) {
        Err(_) if exists(path)? => Ok(()),
        created => created,
    }
}

fn move_in(dir: &Path, path: &Path) -> Result<(), StoreError> {
    let here = |error| StoreError::io(path.to_owned(), error);
    let temporary = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(dir).map_err(here)?;
    let new = temporary.path().join(FILE);
    fill(&new).map_err(|error| fault::sql(&error, path))?;
    // The files that SQLite puts beside it get the same permissions.
    fs::set_permissions(&new, Permissions::from_mode(0o600)).map_err(here)?;
    give_to_owner_of(dir, &new).map_err(here)?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(here)?;
    match fs::hard_link(&new, path) {
        // Some file systems have no hard links. There the other process would have to come
        // between these two lines.
        Err(_) if !exists(path)? => fs::rename(&new, path).map_err(here),
        linked => linked.map_err(here),
    }
}

/// Removes what creators that were killed left behind.
pub(super) fn remove_unfinished(dir: &Path) -> Result<(), StoreError> {
    let here = |error| StoreError::io(dir.to_owned(), error);
    for entry in fs::read_dir(dir).map_err(here)? {
        let entry = entry.map_err(here)?;
        if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            fs::remove_dir_all(entry.path()).map_err(here)?;
        }
    }
    Ok(())
}

fn fill(path: &Path) -> rusqlite::Result<()> {
    let conn = Connection::open(path)?;
    // No other process knows the file yet: one sync at the end is enough.
    conn.pragma_update(None, "synchronous", "OFF")?;
    conn.pragma_update(None, "journal_mode", "OFF")?;
    conn.pragma_update(None, "application_id", APPLICATION)?;
    conn.pragma_update(None, "user_version", FORMAT)?;
    conn.execute_batch(SCHEMA)?;
    conn.execute_batch(LEASES)?;
    conn.execute_batch(HASHES)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.close().map_err(|(_, error)| error)
}

/// Opens a database for reading and writing, whose format may be older.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|fault| fault.at(path))?;
    let set_up = || {
        if conn.is_readonly("main")? {
            return Err(StoreError::ReadOnly { path: path.to_owned() }.into());
        }
        conn.pragma_update(None, "synchronous", "FULL")?;
        // What is no longer there is not left in the file, as far as that takes no writing.
        conn.pragma_update(None, "secure_delete", "FAST")?;
        conn.pragma_update(None, "journal_size_limit", 8 * 1024 * 1024)?;
        // A write-ahead log that stays small is soon overwritten in place, where a commit waits for
        // its own bytes alone and not for the file system's journal.
        conn.pragma_update(None, "wal_autocheckpoint", 256)?;
        Ok(())
    };
    set_up().map_err(|fault: Fault| fault.at(path))?;
    Ok(conn)
}

/// Raises a store of an older format to this one.
pub(super) fn raise(conn: &Connection, path: &Path) -> Result<(), Fault> {
    if format(conn)? < FORMAT { migrate(conn, path) } else { Ok(()) }
}

/// Opens a database for reading.
pub(super) fn connect_read_only(path: &Path) -> Result<Connection, StoreError> {
    let opened = match open(path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
        // SQLite needs a file beside the database for its locks. Where that cannot be created,
        // no process can write either, and without a write-ahead log the file is not needed.
        Err(fault) if fault.cannot_open() && wal_size(path) == 0 => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            open(&immutable(path), flags)
        }
        opened => opened,
    };
    opened.map_err(|fault| fault.at(path))
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, Fault> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Not even of a store that is refused: the end of the log may be damaged.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(64);
    // Without it SQLite compiles a statement anew for each other value that is bound to a range.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    check(&conn, path)?;
    Ok(conn)
}

/// The size of the write-ahead log beside a database; 0 when there is none.
pub(super) fn wal_size(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).map_or(0, |file| file.len())
}

/// A file that belongs to a database.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(end);
    PathBuf::from(beside)
}

fn immutable(path: &Path) -> PathBuf {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(*byte)),
            byte => {
                uri.push('%');
                uri.extend(
                    [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])),
                );
            }
        }
    }
    uri.push_str("?immutable=1");
    PathBuf::from(uri)
}

fn migrate(conn: &Connection, path: &Path) -> Result<(), Fault> {
    let drivers = path.with_file_name(FORMAT_1_DRIVERS);
    // Drivers of format 1 have no lease. One of them would not be noticed.
    let locked = match File::open(&drivers) {
        Ok(file) if file.try_lock().is_err() => {
            return Err(StoreError::Busy { path: path.to_owned() }.into());
        }
        opened => opened,
    };
    let transaction = Transaction::begin(conn)?;
    if !has_leases(&transaction)? {
        transaction.execute_batch(LEASES)?;
    }
    if !has_hashes(&transaction)? {
        // A driver of format 2 would write records without a hash.
        if !lease_rows::driven(&transaction)?.is_empty() {
            return Err(StoreError::Busy { path: path.to_owned() }.into());
        }
        transaction.execute_batch(HASHES)?;
        row_hashes::hash_old_rows(&transaction)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()?;
    make_private(path).map_err(|error| StoreError::io(path.to_owned(), error))?;
    if locked.is_ok() {
        // No version uses it any more. Should this fail, it only stays.
        let _ = fs::remove_file(drivers);
    }
    Ok(())
}

/// Takes away what other users may do with a store of an older format.
fn make_private(path: &Path) -> io::Result<()> {
    let set = |path: &Path, mode| match fs::set_permissions(path, Permissions::from_mode(mode)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        set => set,
    };
    for end in ["", "-wal", "-shm"] {
        set(&beside(path, end), 0o600)?;
    }
    path.parent().map_or(Ok(()), |dir| set(dir, 0o700))
}

/// Refuses what is not a store, and stores of newer versions.
fn check(conn: &Connection, path: &Path) -> Result<(), Fault> {
    let application: i64 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let found = format(conn)?;
    let path = path.to_owned();
    match found {
        _ if application != APPLICATION => Err(StoreError::NotAStore { path }.into()),
        found if found > FORMAT => {
            Err(StoreError::NewerVersion { path, found, supported: FORMAT }.into())
        }
        _ => Ok(()),
    }
}
