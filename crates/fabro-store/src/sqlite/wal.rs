//! Room in the write-ahead log before it is needed.
//!
//! `SQLite` appends to its log page by page. A sync of a file that has grown waits for the file
//! system's journal too, and takes about twice as long as one of a file that was overwritten in
//! place. So the log grows in strides: zeros, which `SQLite` takes for the remains of an older log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::transaction::Transaction;

/// A log below this size is left to grow as it does: most runs of a few stages end before.
const SHORT: u64 = 64 * 1024;

/// The log's size is brought to a multiple of this. Four of them hold what is folded in at a time,
/// 256 pages and those of the commit that reaches that number.
const STRIDE: u64 = 264 * 1024;

/// A log above this size only waits for a reader that keeps it from being folded in, and is cut
/// back afterwards.
const LONG: u64 = 4 * 1024 * 1024;

/// The write-ahead log beside a database.
#[derive(Debug)]
pub(super) struct Wal {
    path: PathBuf,
    /// Kept open, for it is looked at in each transaction.
    file: OnceLock<File>,
}

impl Wal {
    /// The one that belongs to the database at this path.
    pub(super) fn of(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        Self { path: path.into(), file: OnceLock::new() }
    }

    /// How long it is; 0 when there is none.
    pub(super) fn len(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Makes room when the last commit was the one that made the log grow. The transaction is what
    /// keeps other writers off its end.
    pub(super) fn make_room(&self, _: &Transaction<'_>) -> io::Result<()> {
        let mut file = self.file()?;
        // Its metadata would tell it, too. But a file whose times were looked at gets new ones with
        // the next write, however soon, and the sync has to wait for them.
        let size = file.seek(SeekFrom::End(0))?;
        if (SHORT..LONG).contains(&size) && size % STRIDE != 0 {
            let missing = STRIDE - size % STRIDE;
            file.write_all(&vec![0; missing as usize])?;
        }
        Ok(())
    }

    fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = OpenOptions::new().write(true).open(&self.path)?;
        Ok(self.file.get_or_init(|| file))
    }
}
