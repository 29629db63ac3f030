use std::io;
use std::path::Path;

use rusqlite::ffi::{self, ErrorCode};

use crate::StoreError;

/// What can go wrong inside a transaction.
pub(super) enum Fault {
    /// `SQLite` failed; what that means depends on its code.
    Sql(rusqlite::Error),
    /// Anything else.
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// Whether `SQLite` could not open a file that it needs.
    pub(super) fn cannot_open(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen))
    }

    /// The same as an error about the database at this path.
    pub(super) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Sql(error) => sql(&error, path),
            Self::Store(error) => error,
        }
    }
}

/// What an error of `SQLite` means for the database at this path.
pub(super) fn sql(error: &rusqlite::Error, path: &Path) -> StoreError {
    let path = path.to_owned();
    let detail = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        // A value of a type that the schema does not have there.
        return StoreError::Corrupt { path, detail };
    };
    match (failure.code, failure.extended_code) {
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => StoreError::DiskFull { path },
        (ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed, _)
        | (_, ffi::SQLITE_IOERR_LOCK | ffi::SQLITE_IOERR_RDLOCK | ffi::SQLITE_IOERR_SHMLOCK)
            if lacks_locks(try_lock(&path)) =>
        {
            StoreError::NoLocks { path }
        }
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => StoreError::Busy { path },
        (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => StoreError::ReadOnly { path },
        (ErrorCode::NotADatabase, _) => StoreError::NotAStore { path },
        (ErrorCode::DatabaseCorrupt, _) => StoreError::Corrupt { path, detail },
        (ErrorCode::CannotOpen, _) => match may_write_beside(&path) {
            Err(error) => StoreError::io(path, error),
            Ok(()) => StoreError::Database { path, detail },
        },
        _ => StoreError::Database { path, detail },
    }
}

/// Whether files can be created beside the database, as `SQLite` must.
fn may_write_beside(path: &Path) -> io::Result<()> {
    tempfile::tempfile_in(path.parent().unwrap_or(path)).map(drop)
}

/// Locks a temporary file next to the database. `SQLite` reports a file system without locks as a busy database.
fn try_lock(path: &Path) -> io::Result<()> {
    let file = tempfile::tempfile_in(path.parent().unwrap_or(path))?;
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    Ok(rustix::fs::fcntl_lock(&file, operation)?)
}

fn lacks_locks(tried: io::Result<()>) -> bool {
    use rustix::io::Errno;

    let codes = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL];
    let code = tried.err().and_then(|error| Errno::from_io_error(&error));
    code.is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lock_support_is_not_taken_for_a_busy_database() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!lacks_locks(try_lock(&dir.path().join("fabro.db"))));
        let errno = |errno: rustix::io::Errno| lacks_locks(Err(errno.into()));
        assert!(errno(rustix::io::Errno::NOLCK));
        assert!(!errno(rustix::io::Errno::AGAIN));
        assert!(!errno(rustix::io::Errno::NOSPC));
    }
}
