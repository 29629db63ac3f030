use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::{Entry, FileError, FileInfo, FileKind, Files};

/// Files in memory only: for tests, and for agents that must not touch a disk.
///
/// The root is `/`. A directory exists while a file is in it; there are no links. Each write is a
/// second younger than the one before, so that sorting by age is deterministic.
///
/// ```
/// use fabro_sandbox::{Files, MemoryFiles};
///
/// let files = MemoryFiles::new([("src/main.rs", "fn main() {}")]);
/// files.write("notes.md", b"# Notes")?;
/// assert_eq!(files.read("src/../notes.md", 1_000)?, b"# Notes");
/// # Ok::<(), fabro_sandbox::FileError>(())
/// ```
#[derive(Debug, Default)]
pub struct MemoryFiles {
    files: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, MemoryFile>,
    writes: u64,
}

#[derive(Debug)]
struct MemoryFile {
    content: Vec<u8>,
    written: u64,
}

impl MemoryFiles {
    /// These files, by path.
    pub fn new<P: AsRef<str>, C: Into<Vec<u8>>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        let mut state = State::default();
        for (path, content) in files {
            // An invalid path is not a file.
            if let Ok(path) = normal(path.as_ref()) {
                state.put(path, content.into());
            }
        }
        Self { files: Mutex::new(state) }
    }

    /// All files and their content, by path.
    pub fn all(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state.files.iter().map(|(path, file)| (path.clone(), file.content.clone())).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, path: String, content: Vec<u8>) {
        self.writes += 1;
        self.files.insert(path, MemoryFile { content, written: self.writes });
    }

    fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || self.below(path).next().is_some()
    }

    fn below(&self, path: &str) -> impl Iterator<Item = (&str, &MemoryFile)> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let range = self.files.range(prefix.clone()..);
        range.map_while(move |(path, file)| Some((path.strip_prefix(&prefix)?, file)))
    }

    /// The file at a path, or the error.
    fn file(&self, path: &str, normal: &str) -> Result<&MemoryFile, FileError> {
        let owned = path.to_owned();
        match self.files.get(normal) {
            Some(file) => Ok(file),
            None if self.is_directory(normal) => Err(FileError::IsDirectory(owned)),
            None if self.crosses_file(normal) => Err(FileError::NotDirectory(owned)),
            None => Err(FileError::NotFound(owned)),
        }
    }

    /// Whether a file is where the path needs a directory.
    fn crosses_file(&self, normal: &str) -> bool {
        let mut parents = normal.match_indices('/').map(|(end, _)| &normal[..end]);
        parents.any(|parent| self.files.contains_key(parent))
    }
}

impl Files for MemoryFiles {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        let content = self.state().file(path, &normal(path)?)?.content.clone();
        Ok(Box::new(Cursor::new(content)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        let normal = normal(path)?;
        let mut state = self.state();
        match state.file(path, &normal) {
            Ok(_) | Err(FileError::NotFound(_)) => {
                state.put(normal, content.to_owned());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        let normal = normal(path)?;
        let mut state = self.state();
        state.file(path, &normal)?;
        state.files.remove(&normal);
        Ok(())
    }

    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        let normal = normal(path)?;
        let state = self.state();
        let (kind, len, written) = match state.file(path, &normal) {
            Ok(file) => (FileKind::File, file.content.len() as u64, Some(file.written)),
            Err(FileError::IsDirectory(_)) => {
                let last = state.below(&normal).map(|(_, file)| file.written).max();
                (FileKind::Directory, 0, last)
            }
            Err(error) => return Err(error),
        };
        let modified = written.map(|written| SystemTime::UNIX_EPOCH + Duration::from_secs(written));
        Ok(FileInfo { path: shown(normal), kind, len, modified })
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        let normal = normal(path)?;
        let state = self.state();
        match state.file(path, &normal) {
            Ok(_) => return Err(FileError::NotDirectory(path.to_owned())),
            Err(FileError::IsDirectory(_)) => {}
            Err(error) => return Err(error),
        }
        let entries = state.below(&normal).map(|(path, _)| match path.split_once('/') {
            Some((name, _)) => (name.to_owned(), FileKind::Directory),
            None => (path.to_owned(), FileKind::File),
        });
        let entries: BTreeMap<_, _> = entries.collect();
        Ok(entries.into_iter().map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn resolve(&self, path: &str) -> Result<String, FileError> {
        normal(path).map(shown)
    }
}

fn shown(normal: String) -> String {
    if normal.is_empty() { ".".to_owned() } else { normal }
}

fn normal(path: &str) -> Result<String, FileError> {
    if path.is_empty() || path.contains('\0') {
        return Err(FileError::invalid(path));
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err(FileError::Outside(path.to_owned()));
                }
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}
