use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::{Entry, FileError, FileInfo, FileKind, Files, FindFiles, ReadFiles, WriteFiles};

/// What is hashed without being read twice, in bytes.
const IN_MEMORY: u64 = 8 << 20;

/// What is known of files, or became known, by their resolved paths: the SHA-256 of the content, in
/// hexadecimal digits; `None` of a file that was removed.
pub type Noticed = BTreeMap<String, Option<String>>;

/// What one reader has seen of files before. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    last: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Seen {
    /// Takes up what was [noticed](ReadFirst::noticed) before, as if it were read again.
    pub fn recall(&self, noticed: &Noticed) {
        let mut last = self.lock();
        for (path, hash) in noticed {
            match hash {
                Some(hash) => last.insert(path.clone(), hash.clone()),
                None => last.remove(path),
            };
        }
    }

    fn hash_of(&self, path: &str) -> Option<String> {
        self.lock().get(path).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files of which those that exist can be changed only by who has read them, and has seen their
/// last state. New files are free.
///
/// What the reader has seen before is a [`Seen`]; what is [noticed](Self::noticed) since holds here,
/// and anywhere else once it is recalled there, in another process too. Contents are compared, so a
/// file that was touched without a change can still be written. Reads and writes follow one another;
/// what another program writes between the comparison and the write is lost.
///
/// ```
/// use fabro_sandbox::{FileError, MemoryFiles, ReadFilesExt, ReadFirst, WriteFiles};
///
/// let files = ReadFirst::new(MemoryFiles::new([("notes.md", "old")]));
/// assert!(matches!(files.write("notes.md", b"new"), Err(FileError::Unread { .. })));
/// files.read("notes.md", 1_000)?;
/// files.write("notes.md", b"new")?;
///
/// // Another process, or another reader with the same state.
/// let later = ReadFirst::new(MemoryFiles::new([("notes.md", "new")]));
/// later.seen().recall(&files.noticed());
/// later.write("notes.md", b"newer")?;
/// # Ok::<(), FileError>(())
/// ```
#[derive(Debug, Default)]
pub struct ReadFirst<F> {
    files: F,
    seen: Seen,
    noticed: Mutex<Noticed>,
}

impl<F: Files> ReadFirst<F> {
    /// Nothing was read yet.
    pub fn new(files: F) -> Self {
        Self::for_reader(files, Seen::default())
    }

    /// The files for a reader who has already read these.
    pub fn for_reader(files: F, seen: Seen) -> Self {
        Self { files, seen, noticed: Mutex::default() }
    }

    /// The files themselves: what is read of them does not count as seen by the reader.
    pub fn inner(&self) -> &F {
        &self.files
    }

    /// What the reader has seen before.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// What was read and changed through this value.
    pub fn noticed(&self) -> Noticed {
        self.lock().clone()
    }

    /// Whether this file may be changed, or made, as far as what was read is concerned.
    ///
    /// # Errors
    ///
    /// It exists and was not read, or has changed since; or the path leads nowhere.
    pub fn may_change(&self, path: &str) -> Result<(), FileError> {
        self.changeable(path, &self.lock()).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resolved path of a file that exists and may be changed; `None` when it is free.
    fn changeable(&self, path: &str, noticed: &Noticed) -> Result<Option<String>, FileError> {
        let info = match self.files.info(path) {
            Ok(info) => info,
            Err(FileError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if info.kind != FileKind::File {
            // What the files below say about it is more to the point.
            return Ok(None);
        }
        let known = noticed.get(&info.path).cloned();
        let Some(known) = known.unwrap_or_else(|| self.seen.hash_of(&info.path)) else {
            return Err(FileError::Unread { path: path.to_owned() });
        };
        if hash(path, self.files.open(path)?)? != known {
            return Err(FileError::Changed { path: path.to_owned() });
        }
        Ok(Some(info.path))
    }
}

impl<F: Files> ReadFiles for ReadFirst<F> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        let mut noticed = self.lock();
        let resolved = self.files.info(path)?.path;
        let mut file = self.files.open(path)?;
        let mut start = Vec::new();
        let io = |source| FileError::io(path, source);
        file.as_mut().take(IN_MEMORY).read_to_end(&mut start).map_err(io)?;
        if (start.len() as u64) < IN_MEMORY {
            noticed.insert(resolved, Some(digits(&Sha256::digest(&start))));
            return Ok(Box::new(Cursor::new(start)));
        }
        // What is read after this may be newer than what was hashed; then it cannot be written.
        let whole = hash(path, Box::new(Cursor::new(start).chain(file)))?;
        noticed.insert(resolved, Some(whole));
        self.files.open(path)
    }
}

impl<F: Files> WriteFiles for ReadFirst<F> {
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        let mut noticed = self.lock();
        self.changeable(path, &noticed)?;
        self.files.write(path, content)?;
        noticed.insert(self.files.info(path)?.path, Some(digits(&Sha256::digest(content))));
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        let mut noticed = self.lock();
        let resolved = self.changeable(path, &noticed)?;
        self.files.remove(path)?;
        if let Some(resolved) = resolved {
            noticed.insert(resolved, None);
        }
        Ok(())
    }
}

impl<F: Files> FindFiles for ReadFirst<F> {
    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        self.files.info(path)
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        self.files.list(path)
    }

    fn leads_to(&self, path: &str) -> Result<String, FileError> {
        self.files.leads_to(path)
    }
}

fn hash(path: &str, mut file: Box<dyn Read + Send + '_>) -> Result<String, FileError> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(digits(&hasher.finalize())),
            Ok(count) => hasher.update(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(FileError::io(path, source)),
        }
    }
}

fn digits(hash: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * hash.len());
    for byte in hash {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
