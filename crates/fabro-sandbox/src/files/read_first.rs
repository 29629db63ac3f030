use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::{Entry, FileError, FileInfo, FileKind, Files, FindFiles, ReadFiles, WriteFiles};

/// What is hashed without being read twice, in bytes.
const IN_MEMORY: u64 = 8 << 20;

type Hash = [u8; 32];

/// Files of which those that exist can be changed only by who has read them, and has seen their
/// last state. New files are free.
///
/// One of these is one reader: what it has read is remembered as long as it lives. Contents are
/// compared, so a file that was touched without a change can still be written. Its reads and writes
/// follow one another; what another program writes between the comparison and the write is lost.
///
/// ```
/// use fabro_sandbox::{FileError, MemoryFiles, ReadFilesExt, ReadFirst, WriteFiles};
///
/// let files = ReadFirst::new(MemoryFiles::new([("notes.md", "old")]));
/// assert!(matches!(files.write("notes.md", b"new"), Err(FileError::Unread { .. })));
/// files.read("notes.md", 1_000)?;
/// files.write("notes.md", b"new")?;
/// # Ok::<(), FileError>(())
/// ```
#[derive(Debug, Default)]
pub struct ReadFirst<F> {
    files: F,
    /// What was read or written last, by the resolved path.
    seen: Mutex<BTreeMap<String, Hash>>,
}

impl<F: Files> ReadFirst<F> {
    /// Nothing was read yet.
    pub fn new(files: F) -> Self {
        Self { files, seen: Mutex::default() }
    }

    /// The files themselves: what is read of them does not count as seen by the reader.
    pub fn inner(&self) -> &F {
        &self.files
    }

    /// Whether this file may be changed, or made, as far as what was read is concerned.
    ///
    /// # Errors
    ///
    /// It exists and was not read, or has changed since; or the path leads nowhere.
    pub fn may_change(&self, path: &str) -> Result<(), FileError> {
        self.changeable(path, &self.seen()).map(drop)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Hash>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resolved path of a file that exists and may be changed; `None` when it is free.
    fn changeable(
        &self,
        path: &str,
        seen: &BTreeMap<String, Hash>,
    ) -> Result<Option<String>, FileError> {
        let info = match self.files.info(path) {
            Ok(info) => info,
            Err(FileError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if info.kind != FileKind::File {
            // What the files below say about it is more to the point.
            return Ok(None);
        }
        let Some(known) = seen.get(&info.path) else {
            return Err(FileError::Unread { path: path.to_owned() });
        };
        if hash(path, self.files.open(path)?)? != *known {
            return Err(FileError::Changed { path: path.to_owned() });
        }
        Ok(Some(info.path))
    }
}

impl<F: Files> ReadFiles for ReadFirst<F> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        let mut seen = self.seen();
        let resolved = self.files.info(path)?.path;
        let mut file = self.files.open(path)?;
        let mut start = Vec::new();
        let io = |source| FileError::io(path, source);
        file.as_mut().take(IN_MEMORY).read_to_end(&mut start).map_err(io)?;
        if (start.len() as u64) < IN_MEMORY {
            seen.insert(resolved, Sha256::digest(&start).into());
            return Ok(Box::new(Cursor::new(start)));
        }
        // What is read after this may be newer than what was hashed; then it cannot be written.
        let whole = hash(path, Box::new(Cursor::new(start).chain(file)))?;
        seen.insert(resolved, whole);
        self.files.open(path)
    }
}

impl<F: Files> WriteFiles for ReadFirst<F> {
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        let mut seen = self.seen();
        self.changeable(path, &seen)?;
        self.files.write(path, content)?;
        seen.insert(self.files.info(path)?.path, Sha256::digest(content).into());
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        let mut seen = self.seen();
        let resolved = self.changeable(path, &seen)?;
        self.files.remove(path)?;
        if let Some(resolved) = resolved {
            seen.remove(&resolved);
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

fn hash(path: &str, mut file: Box<dyn Read + Send + '_>) -> Result<Hash, FileError> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(count) => hasher.update(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(FileError::io(path, source)),
        }
    }
}
