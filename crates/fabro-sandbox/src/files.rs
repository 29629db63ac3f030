//! Files of a working directory.

pub(crate) mod beneath;
mod in_sandbox;
mod local;
mod memory;
mod protected;
mod read_first;
mod resolve;
mod values;

use std::io::{ErrorKind, Read};
use std::time::SystemTime;

pub use in_sandbox::InSandbox;
pub use local::LocalFiles;
pub use memory::MemoryFiles;
pub(crate) use protected::is_workflow;
pub use read_first::{FileHashes, KnownFiles, ReadFirst};
pub use values::WithValues;

/// The files of a working directory.
///
/// Paths are UTF-8 with `/` between names, relative to the root or absolute inside of it. All methods
/// may block.
pub trait Files: Send + Sync {
    /// Opens a regular file, through links that stay inside.
    ///
    /// # Errors
    ///
    /// There is no such file, it is outside, or it is a directory, device, pipe or socket.
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError>;

    /// Replaces the content of a file in one atomic step: readers see the old content or the new.
    /// Missing directories are created; an existing file keeps its mode.
    ///
    /// # Errors
    ///
    /// The path is outside, is not a regular file, or must not be written. Nothing has changed then.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError>;

    /// Removes a file, or a link but not its target.
    ///
    /// # Errors
    ///
    /// There is no such file, it is outside, or it is a directory.
    fn remove(&self, path: &str) -> Result<(), FileError>;

    /// What there is at a path, through links that stay inside.
    ///
    /// # Errors
    ///
    /// There is nothing, or the path is outside.
    fn info(&self, path: &str) -> Result<FileInfo, FileError>;

    /// The entries of a directory, by name.
    ///
    /// # Errors
    ///
    /// There is no such directory, or it is outside.
    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError>;

    /// The resolved path, in the form of [`FileInfo::path`], whether or not something is there: a
    /// dangling link resolves to the file that a write to it would create.
    ///
    /// # Errors
    ///
    /// The path is outside.
    fn resolve(&self, path: &str) -> Result<String, FileError>;

    /// The whole content of a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); also, the file is larger or cannot be read to its end.
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, FileError> {
        let mut content = Vec::new();
        let mut file = self.open(path)?.take(limit.saturating_add(1));
        file.read_to_end(&mut content).map_err(|source| FileError::io(path, source))?;
        if content.len() as u64 > limit {
            return Err(FileError::TooLarge { path: path.to_owned(), limit });
        }
        Ok(content)
    }
}

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Where it is: relative to the root, without links, `.` and `..`; `.` for the root.
    pub path: String,
    /// What it is; never a link.
    pub kind: FileKind,
    /// Its size, in bytes; 0 when it is not a file.
    pub len: u64,
    /// When its content changed last; `None` where that is not known.
    pub modified: Option<SystemTime>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name. Bytes that are not UTF-8 are U+FFFD, and such an entry cannot be opened.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

/// What there can be at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// A file operation that was refused or failed. Each holds the path as it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The path, or a link on the way, leads out of the root.
    #[error("{0} is outside of the working directory: use a path inside of it")]
    Outside(String),
    /// There is nothing at the path.
    #[error("{0} does not exist: check the path")]
    NotFound(String),
    /// It is a directory.
    #[error("{0} is a directory: name a file")]
    IsDirectory(String),
    /// It, or a component of its path, is not a directory.
    #[error("{0} is not a directory, or its path leads through a file: check the path")]
    NotDirectory(String),
    /// It is a device, pipe or socket, or belongs to a file system of the kernel's.
    #[error("{0} is not a regular file: only those are read and written")]
    NotRegular(String),
    /// The path is empty, too long, or has a NUL character; only its first characters are kept.
    #[error("{} is not a valid path: name a file or directory", .0.escape_debug())]
    Invalid(String),
    /// The links on the way are too many, or lead in a circle.
    #[error("{0} leads through too many links: name the file itself")]
    Links(String),
    /// The file is larger than was asked for.
    #[error("{path} is larger than {limit} bytes: read a part of it")]
    TooLarge {
        /// The path as it was given.
        path: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The file is write-protected.
    #[error("{0} is write-protected: leave it as it is, or ask for its protection to be removed")]
    ReadOnly(String),
    /// It controls another program, or is kept by one; see [`LocalFiles`] and [`WithValues`].
    #[error("{0} controls git, fabro or later agents: it can be read, but not changed here")]
    Protected(String),
    /// It is in a run store.
    #[error("{0} is in the run store: tools can read only values and artifacts of this run")]
    Store(String),
    /// The file is too large to read as a whole.
    #[error(
        "{path} is too large: {bytes} bytes (limit {limit}); use a command to read a part of it"
    )]
    Huge {
        /// The path as it was given.
        path: String,
        /// Its size.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The file exists, but was not read before.
    #[error("{0} exists, but was not read yet: read it before changing it")]
    Unread(String),
    /// The file has changed since it was read.
    #[error("{0} has changed since it was read: read it again before changing it")]
    Changed(String),
    /// The system refused it for another reason.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// The root is not a directory, or cannot be read.
    #[error("working directory {0} cannot be used: {1}")]
    Root(String, #[source] std::io::Error),
}

impl FileError {
    fn io(path: &str, source: std::io::Error) -> Self {
        let owned = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound => Self::NotFound(owned),
            ErrorKind::NotADirectory => Self::NotDirectory(owned),
            ErrorKind::IsADirectory => Self::IsDirectory(owned),
            ErrorKind::InvalidFilename => Self::invalid(path),
            _ => Self::Io(owned, source),
        }
    }

    fn invalid(path: &str) -> Self {
        Self::Invalid(path.chars().take(100).collect())
    }
}
