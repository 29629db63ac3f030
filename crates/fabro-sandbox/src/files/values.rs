use std::io::{BufReader, Read};
use std::path::PathBuf;

use super::json_text::JsonText;
use super::{Entry, FileError, FileInfo, FindFiles, LocalFiles, ReadFiles, WriteFiles};

/// Files of a working directory, and values that are kept elsewhere, to be read and nothing more.
///
/// A value is a file of JSON named after its SHA-256, `{64 hex digits}.json`, that lies right in one
/// of some directories. Wherever those are, its path, which may be written as a `file://` address,
/// can be opened and looked at; it can be neither changed nor listed. A value that is a string is read
/// as its text, lines and all, with U+FFFD for NUL; any other as it is. Its [`FileInfo`] tells of the
/// file, with an absolute path when that is outside of the working directory.
///
/// ```
/// use fabro_sandbox::{FileError, LocalFiles, ReadFilesExt, WithValues, WriteFiles};
///
/// let (work, kept) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let value = kept.path().join(format!("{}.json", "0123456789abcdef".repeat(4)));
/// std::fs::write(&value, r#""one\ntwo""#)?;
///
/// let files = WithValues::new(LocalFiles::new(work.path())?, vec![kept.path().to_owned()]);
/// let path = value.to_str().ok_or("no UTF-8")?;
/// assert_eq!(files.read(path, 100)?, b"one\ntwo");
/// assert!(matches!(files.write(path, b"x"), Err(FileError::Protected { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WithValues {
    files: LocalFiles,
    dirs: Vec<PathBuf>,
}

impl WithValues {
    /// All files of `files`, and the values in these directories, which may come to be later.
    pub fn new(files: LocalFiles, dirs: Vec<PathBuf>) -> Self {
        Self { files, dirs }
    }

    /// The directory that has the value at this path, and the value's path in it.
    fn value(&self, path: &str) -> Option<(LocalFiles, String)> {
        // Most paths are distinguished from those of values by their file name, without reading the disk.
        if !is_value_name(path.rsplit('/').next()?) {
            return None;
        }
        let path = self.files.root().join(path.strip_prefix("file://").unwrap_or(path));
        self.dirs.iter().find_map(|dir| {
            let dir = LocalFiles::new(dir).ok()?;
            let name = dir.leads_to(path.to_str()?).ok()?;
            is_value_name(&name).then_some((dir, name))
        })
    }

    fn refuse_value(&self, path: &str) -> Result<(), FileError> {
        match self.value(path) {
            Some(_) => Err(FileError::Protected { path: path.to_owned() }),
            None => Ok(()),
        }
    }
}

fn is_value_name(name: &str) -> bool {
    name.strip_suffix(".json")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl ReadFiles for WithValues {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        match self.value(path) {
            Some((dir, name)) => Ok(Box::new(JsonText::new(BufReader::new(dir.open(&name)?)))),
            None => self.files.open(path),
        }
    }
}

impl WriteFiles for WithValues {
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        self.refuse_value(path)?;
        self.files.write(path, content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.refuse_value(path)?;
        self.files.remove(path)
    }
}

impl FindFiles for WithValues {
    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        match self.value(path) {
            Some((dir, name)) => Ok(FileInfo { path: self.leads_to(path)?, ..dir.info(&name)? }),
            None => self.files.info(path),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        self.files.list(path)
    }

    fn leads_to(&self, path: &str) -> Result<String, FileError> {
        let Some((dir, name)) = self.value(path) else { return self.files.leads_to(path) };
        let place = dir.root().join(name).to_string_lossy().into_owned();
        // One that is in the working directory too is named like all files there.
        Ok(self.files.leads_to(&place).unwrap_or(place))
    }
}
