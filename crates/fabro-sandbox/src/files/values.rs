use std::io::{Cursor, Read};
use std::path::PathBuf;

use super::{Entry, FileError, FileInfo, Files, LocalFiles};

/// Files of a working directory, and read-only values that are stored elsewhere.
///
/// A value is a file of JSON named after its SHA-256, `{64 hex digits}.json`, directly in one of the
/// given directories. Its path, which may be written as a `file://` URL, can be opened; it can be
/// neither changed nor listed. A value that is a string is read as its text, with U+FFFD for NUL; any
/// other as JSON. Its [`FileInfo`] is that of the file, with an absolute path when that is outside of
/// the working directory.
///
/// ```
/// use fabro_sandbox::{FileError, Files, LocalFiles, WithValues};
///
/// let (work, kept) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let value = kept.path().join(format!("{}.json", "0123456789abcdef".repeat(4)));
/// std::fs::write(&value, r#""one\ntwo""#)?;
///
/// let files = WithValues::new(LocalFiles::new(work.path())?, vec![kept.path().to_owned()]);
/// let path = value.to_str().ok_or("no UTF-8")?;
/// assert_eq!(files.read(path, 100)?, b"one\ntwo");
/// assert!(matches!(files.write(path, b"x"), Err(FileError::Protected(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WithValues {
    files: LocalFiles,
    dirs: Vec<PathBuf>,
}

impl WithValues {
    /// All files of `files`, and the values in these directories, which may not exist yet.
    pub fn new(files: LocalFiles, dirs: Vec<PathBuf>) -> Self {
        Self { files, dirs }
    }

    /// The directory that has the value at this path, and the value's path in it.
    fn value(&self, path: &str) -> Option<(LocalFiles, String)> {
        // The file name distinguishes most paths from those of values without reading the disk.
        if !is_value_name(path.rsplit('/').next()?) {
            return None;
        }
        let path = self.files.root().join(path.strip_prefix("file://").unwrap_or(path));
        self.dirs.iter().find_map(|dir| {
            let dir = LocalFiles::new(dir).ok()?;
            let name = dir.resolve(path.to_str()?).ok()?;
            is_value_name(&name).then_some((dir, name))
        })
    }

    fn refuse_value(&self, path: &str) -> Result<(), FileError> {
        match self.value(path) {
            Some(_) => Err(FileError::Protected(path.to_owned())),
            None => Ok(()),
        }
    }
}

fn is_value_name(name: &str) -> bool {
    name.strip_suffix(".json")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl Files for WithValues {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        let Some((dir, name)) = self.value(path) else { return self.files.open(path) };
        let json = dir.read(&name, u64::MAX)?;
        let content = match serde_json::from_slice::<String>(&json) {
            Ok(text) => text.replace('\0', "\u{FFFD}").into_bytes(),
            // It is not a string.
            Err(_) => json,
        };
        Ok(Box::new(Cursor::new(content)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        self.refuse_value(path)?;
        self.files.write(path, content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.refuse_value(path)?;
        self.files.remove(path)
    }

    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        match self.value(path) {
            Some((dir, name)) => Ok(FileInfo { path: self.resolve(path)?, ..dir.info(&name)? }),
            None => self.files.info(path),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        self.files.list(path)
    }

    fn resolve(&self, path: &str) -> Result<String, FileError> {
        let Some((dir, name)) = self.value(path) else { return self.files.resolve(path) };
        let absolute = dir.root().join(name).to_string_lossy().into_owned();
        // One that is in the working directory too has a relative path like all files there.
        Ok(self.files.resolve(&absolute).unwrap_or(absolute))
    }
}
