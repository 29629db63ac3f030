use std::collections::BTreeMap;
use std::io::{Cursor, ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::{FileError, FileKind, Files};

/// A file up to this size, in bytes, is hashed and returned without being read twice.
const IN_MEMORY: u64 = 8 << 20;

/// The maximum file size, checked before the file is read: a sparse file may have any length.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Held while a file is compared and changed: several readers may have read it. Files share them by their names.
static CHANGES: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// The SHA-256 of the content of files in hexadecimal digits, by their resolved paths; `None` for a
/// file that was removed.
pub type FileHashes = BTreeMap<String, Option<String>>;

/// The state of the files that one reader has read. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KnownFiles {
    hashes: Arc<Mutex<BTreeMap<String, String>>>,
}

impl KnownFiles {
    /// Adds what was [recorded](ReadFirst::recorded) before, as if it were read again.
    pub fn add(&self, recorded: &FileHashes) {
        let mut hashes = self.lock();
        for (path, hash) in recorded {
            match hash {
                Some(hash) => hashes.insert(path.clone(), hash.clone()),
                None => hashes.remove(path),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files of which an existing one can be changed only after it was read, and while it has not changed
/// since. New files can always be written.
///
/// What the reader has read before is a [`KnownFiles`]; what is [recorded](Self::recorded) since holds
/// here, and anywhere else once it is added there, in another process too. Contents are compared, so a
/// file that was touched without a change can still be written. No other reader of this process changes a
/// file between the comparison and the write; what another program writes there in that moment is lost.
///
/// ```
/// use std::sync::Arc;
///
/// use fabro_sandbox::{FileError, KnownFiles, MemoryFiles, ReadFirst};
///
/// let old = Arc::new(MemoryFiles::new([("notes.md", "old")]));
/// let files = ReadFirst::new(old, KnownFiles::default());
/// assert!(matches!(files.write("notes.md", b"new"), Err(FileError::Unread(_))));
/// files.open("notes.md")?;
/// files.write("notes.md", b"new")?;
///
/// // Another process, or another reader with the same state.
/// let known = KnownFiles::default();
/// known.add(&files.recorded());
/// let later = ReadFirst::new(Arc::new(MemoryFiles::new([("notes.md", "new")])), known);
/// later.write("notes.md", b"newer")?;
/// # Ok::<(), FileError>(())
/// ```
pub struct ReadFirst {
    files: Arc<dyn Files>,
    known: KnownFiles,
    recorded: Mutex<FileHashes>,
}

impl ReadFirst {
    /// The files for a reader who has already read these.
    pub fn new(files: Arc<dyn Files>, known: KnownFiles) -> Self {
        Self { files, known, recorded: Mutex::default() }
    }

    /// The files themselves: reading them does not count as read by the reader.
    pub fn inner(&self) -> &dyn Files {
        &*self.files
    }

    /// What was read and changed through this value.
    pub fn recorded(&self) -> FileHashes {
        self.lock().clone()
    }

    /// Whether this file was read, and is unchanged since, or does not exist.
    ///
    /// # Errors
    ///
    /// It exists and was not read, or has changed since; or the path leads nowhere.
    pub fn may_change(&self, path: &str) -> Result<(), FileError> {
        self.changeable(path, &self.lock()).map(drop)
    }

    /// Opens a file, and records its content as read.
    ///
    /// # Errors
    ///
    /// As for [`Files::open`].
    pub fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        let mut recorded = self.lock();
        let info = self.files.info(path)?;
        if info.len > MAX_FILE_BYTES {
            let path = path.to_owned();
            return Err(FileError::Huge { path, bytes: info.len, limit: MAX_FILE_BYTES });
        }
        let resolved = info.path;
        let mut file = self.files.open(path)?;
        let mut start = Vec::new();
        let io = |source| FileError::io(path, source);
        file.as_mut().take(IN_MEMORY).read_to_end(&mut start).map_err(io)?;
        if (start.len() as u64) < IN_MEMORY {
            recorded.insert(resolved, Some(hex(&Sha256::digest(&start))));
            return Ok(Box::new(Cursor::new(start)));
        }
        // If the file changes before it is read below, the hash differs, and it cannot be written.
        let whole = hash(path, Box::new(Cursor::new(start).chain(file)))?;
        recorded.insert(resolved, Some(whole));
        self.files.open(path)
    }

    /// Writes a file that may be changed.
    ///
    /// # Errors
    ///
    /// As for [`may_change`](Self::may_change) and [`Files::write`].
    pub fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        let _change = self.begin_change(path);
        let mut recorded = self.lock();
        self.changeable(path, &recorded)?;
        self.files.write(path, content)?;
        recorded.insert(self.files.info(path)?.path, Some(hex(&Sha256::digest(content))));
        Ok(())
    }

    /// Removes a file that may be changed.
    ///
    /// # Errors
    ///
    /// As for [`may_change`](Self::may_change) and [`Files::remove`].
    pub fn remove(&self, path: &str) -> Result<(), FileError> {
        let _change = self.begin_change(path);
        let mut recorded = self.lock();
        let resolved = self.changeable(path, &recorded)?;
        self.files.remove(path)?;
        recorded.extend(resolved.map(|resolved| (resolved, None)));
        Ok(())
    }

    /// Waits until no other reader changes this file. By its name alone: readers may have different directories.
    fn begin_change(&self, path: &str) -> MutexGuard<'static, ()> {
        let resolved = self.files.resolve(path);
        let path = resolved.as_deref().unwrap_or(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        let place =
            name.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        CHANGES[place % CHANGES.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, FileHashes> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resolved path of a file that exists and may be changed; `None` when there is no file.
    fn changeable(&self, path: &str, recorded: &FileHashes) -> Result<Option<String>, FileError> {
        let info = match self.files.info(path) {
            // The error of the operation itself explains better what is not a file.
            Ok(info) if info.kind != FileKind::File => return Ok(None),
            Ok(info) => info,
            Err(FileError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let hash_read = match recorded.get(&info.path) {
            Some(hash) => hash.clone(),
            None => self.known.lock().get(&info.path).cloned(),
        };
        let Some(hash_read) = hash_read else { return Err(FileError::Unread(path.to_owned())) };
        if hash(path, self.files.open(path)?)? != hash_read {
            return Err(FileError::Changed(path.to_owned()));
        }
        Ok(Some(info.path))
    }
}

fn hash(path: &str, mut file: Box<dyn Read + Send + '_>) -> Result<String, FileError> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(count) => hasher.update(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(FileError::io(path, source)),
        }
    }
}

fn hex(hash: &[u8]) -> String {
    let digits: Vec<_> = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}
