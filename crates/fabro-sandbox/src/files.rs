//! Files of a working directory.

mod beneath;
mod json_text;
mod local;
mod memory;
mod protected;
mod read_first;
mod resolve;
mod values;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

pub use local::LocalFiles;
pub use memory::MemoryFiles;
pub use protected::Protected;
pub use read_first::{Noticed, ReadFirst, Seen};
pub use values::WithValues;

/// Gives the content of files.
///
/// Paths of this and its sister traits are UTF-8 with `/` between names, relative to the root or
/// absolute inside of it. All methods may block.
pub trait ReadFiles: Send + Sync {
    /// Opens a regular file, through links that stay inside.
    ///
    /// # Errors
    ///
    /// There is no such file, it is outside, or it is a directory, device, pipe or socket.
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError>;
}

/// Changes files.
pub trait WriteFiles: Send + Sync {
    /// Replaces the content of a file in one atomic step: readers see the old content or the new.
    /// Directories that it needs are made; a file that was there keeps its mode.
    ///
    /// # Errors
    ///
    /// The path is outside, is not a regular file, or must not be written. Nothing has changed then.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError>;

    /// Removes a file, or a link and not what it leads to.
    ///
    /// # Errors
    ///
    /// There is no such file, it is outside, or it is a directory.
    fn remove(&self, path: &str) -> Result<(), FileError>;
}

/// Finds files.
pub trait FindFiles: Send + Sync {
    /// What there is at a path, through links that stay inside.
    ///
    /// # Errors
    ///
    /// There is nothing, or the path is outside.
    fn info(&self, path: &str) -> Result<FileInfo, FileError>;

    /// What is in a directory, by name.
    ///
    /// # Errors
    ///
    /// There is no such directory, or it is outside.
    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError>;

    /// Where a path leads, in the form of [`FileInfo::path`], whether or not something is there: a
    /// link to what does not exist leads to what a write to it would make.
    ///
    /// # Errors
    ///
    /// The path is outside.
    fn leads_to(&self, path: &str) -> Result<String, FileError>;
}

/// All that can be done with the files of a working directory.
pub trait Files: ReadFiles + WriteFiles + FindFiles {}

impl<T: ReadFiles + WriteFiles + FindFiles + ?Sized> Files for T {}

/// Reading in one go.
pub trait ReadFilesExt: ReadFiles {
    /// The whole content of a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// As for [`ReadFiles::open`]; also, the file is larger or cannot be read to its end.
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

impl<T: ReadFiles + ?Sized> ReadFilesExt for T {}

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

/// What a directory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name. Bytes that are not UTF-8 are U+FFFD, and such an entry cannot be opened.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

/// What a path can lead to.
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

/// A file operation that was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The path, or a link on the way, leads out of the root.
    #[error("{path} is outside of the working directory: use a path inside of it")]
    Outside {
        /// The path as it was given.
        path: String,
    },
    /// There is nothing at the path.
    #[error("{path} does not exist: check the path")]
    NotFound {
        /// The path as it was given.
        path: String,
    },
    /// It is a directory.
    #[error("{path} is a directory: name a file")]
    IsDirectory {
        /// The path as it was given.
        path: String,
    },
    /// It, or a component of its path, is not a directory.
    #[error("{path} is not a directory, or its path leads through a file: check the path")]
    NotDirectory {
        /// The path as it was given.
        path: String,
    },
    /// It is a device, pipe or socket, or belongs to a file system of the kernel's.
    #[error("{path} is not a regular file: only those are read and written")]
    NotRegular {
        /// The path as it was given.
        path: String,
    },
    /// The path is empty, too long, or has a NUL character.
    #[error("{} is not a valid path: name a file or directory", path.escape_debug())]
    Invalid {
        /// The first characters of the path.
        path: String,
    },
    /// The links on the way are too many, or lead in a circle.
    #[error("{path} leads through too many links: name the file itself")]
    Links {
        /// The path as it was given.
        path: String,
    },
    /// The file is larger than was asked for.
    #[error("{path} is larger than {limit} bytes: read a part of it")]
    TooLarge {
        /// The path as it was given.
        path: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Nobody may write the file.
    #[error(
        "{path} is write-protected: leave it as it is, or ask for its protection to be removed"
    )]
    ReadOnly {
        /// The path as it was given.
        path: String,
    },
    /// It steers another program, or is kept by one; see [`Protected`] and [`WithValues`].
    #[error("{path} belongs to git or to fabro: it can be read, but not changed here")]
    Protected {
        /// The path as it was given.
        path: String,
    },
    /// The file exists, but was not read before.
    #[error("{path} exists, but was not read yet: read it before changing it")]
    Unread {
        /// The path as it was given.
        path: String,
    },
    /// The file is not what it was when it was read.
    #[error("{path} has changed since it was read: read it again before changing it")]
    Changed {
        /// The path as it was given.
        path: String,
    },
    /// The system refused it for another reason.
    #[error("{path}: {source}")]
    Io {
        /// The path as it was given.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The root is not a directory.
    #[error("working directory {} cannot be used: {source}", path.display())]
    Root {
        /// The root as it was given.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl FileError {
    fn io(path: &str, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound => Self::NotFound { path },
            ErrorKind::NotADirectory => Self::NotDirectory { path },
            ErrorKind::IsADirectory => Self::IsDirectory { path },
            ErrorKind::InvalidFilename => Self::Invalid { path: start(&path) },
            _ => Self::Io { path, source },
        }
    }
}

fn start(path: &str) -> String {
    path.chars().take(100).collect()
}

impl<T: ReadFiles + ?Sized> ReadFiles for Arc<T> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        (**self).open(path)
    }
}

impl<T: WriteFiles + ?Sized> WriteFiles for Arc<T> {
    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        (**self).write(path, content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        (**self).remove(path)
    }
}

impl<T: FindFiles + ?Sized> FindFiles for Arc<T> {
    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        (**self).info(path)
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        (**self).list(path)
    }

    fn leads_to(&self, path: &str) -> Result<String, FileError> {
        (**self).leads_to(path)
    }
}
