use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use super::{Entry, FileError, FileInfo, Files, LocalFiles};

/// Files of a working directory, and read-only values and trees that are stored elsewhere.
///
/// A value is a file of JSON named after its SHA-256, `{64 hex digits}.json`, directly in one of the
/// given directories. Its path, which may be written as a `file://` URL, can be opened; it can be
/// neither changed nor listed. A value that is a string is read as its text, with U+FFFD for NUL; any
/// other as JSON. Its [`FileInfo`] is that of the file, with an absolute path when that is outside of
/// the working directory. What is below the directories of [`reading`](Self::reading) can be listed too.
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
    trees: Vec<PathBuf>,
}

impl WithValues {
    /// All files of `files`, and the values in these directories, which may not exist yet.
    pub fn new(files: LocalFiles, dirs: Vec<PathBuf>) -> Self {
        Self { files, dirs, trees: Vec::new() }
    }

    /// With all files below these directories, by their absolute paths. They may not exist yet.
    #[must_use]
    pub fn reading(self, trees: Vec<PathBuf>) -> Self {
        Self { trees, ..self }
    }

    /// The tree that has this absolute path, and the path in it.
    fn in_tree(&self, path: &str) -> Option<(LocalFiles, String)> {
        let path = Path::new(path.strip_prefix("file://").unwrap_or(path));
        let tree = self.trees.iter().find(|tree| path.starts_with(tree))?;
        let tree = LocalFiles::new(tree).ok()?;
        let inside = tree.resolve(path.to_str()?).ok()?;
        Some((tree, inside))
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

    fn refuse(&self, path: &str) -> Result<(), FileError> {
        match self.value(path).or_else(|| self.in_tree(path)) {
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
        let Some((dir, name)) = self.value(path) else {
            return match self.in_tree(path) {
                Some((tree, inside)) => tree.open(&inside),
                None => self.files.open(path),
            };
        };
        let json = dir.read(&name, u64::MAX)?;
        let content = match serde_json::from_slice::<String>(&json) {
            Ok(text) => text.replace('\0', "\u{FFFD}").into_bytes(),
            // It is not a string.
            Err(_) => json,
        };
        Ok(Box::new(Cursor::new(content)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        self.refuse(path)?;
        self.files.write(path, content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.refuse(path)?;
        self.files.remove(path)
    }

    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        match self.value(path).or_else(|| self.in_tree(path)) {
            Some((dir, name)) => Ok(FileInfo { path: self.resolve(path)?, ..dir.info(&name)? }),
            None => self.files.info(path),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        match self.in_tree(path) {
            Some((tree, inside)) => tree.list(&inside),
            None => self.files.list(path),
        }
    }

    fn resolve(&self, path: &str) -> Result<String, FileError> {
        let elsewhere = self.value(path).or_else(|| self.in_tree(path));
        let Some((dir, name)) = elsewhere else { return self.files.resolve(path) };
        let absolute = dir.root().join(name).to_string_lossy().into_owned();
        // One that is in the working directory too has a relative path like all files there.
        Ok(self.files.resolve(&absolute).unwrap_or(absolute))
    }
}
