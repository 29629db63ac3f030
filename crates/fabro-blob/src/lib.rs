//! Content-addressed blobs: in memory, or in a directory that survives a crash.
//!
//! A blob is the serialized JSON of one value and is named by its SHA-256
//! ([`BlobRef`]). Writing the same bytes twice stores them once. A write
//! returns when the bytes are on stable storage, and a read checks them against their name.
//! [`offload_value`] puts blobs in the place of large values, and [`read_blob`] reads them back.
//!
//! ```
//! use fabro_blob::{BlobStore, MemoryBlobs};
//!
//! let blobs = MemoryBlobs::default();
//! let blob = blobs.put(br#""hello""#)?;
//! assert_eq!(blobs.get(&blob)?, br#""hello""#);
//! // The output of a command: a text becomes a JSON string while it streams through.
//! assert_eq!(blobs.put_json_string(&mut "hello\n".as_bytes())?, blob);
//! # Ok::<(), fabro_blob::BlobError>(())
//! ```
//!
//! Limits: [`BlobStore::get`] holds the whole blob in memory; [`BlobStore::copy_to`],
//! [`copy_text`] and [`BlobStore::put_json_string`] of a [`DirBlobs`] need 64 KiB for a blob of any size.

mod dir;
mod file;
mod json_string;
mod memory;
mod text;
mod value;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use dir::{DirBlobs, give_to_owner_of};
use fabro_types::BlobRef;
pub use file::{as_file, bytes_as_file};
pub use json_string::text_to_json_string;
pub use memory::MemoryBlobs;
pub use text::copy_text;
pub use value::{
    NewBlob, OFFLOAD_LIMIT, READ_LIMIT, ReadError, offload_value, read_blob, read_inner, reference,
};

/// Where blobs are kept. `put` and `get` are all an implementation has to have.
///
/// Calls block: they read, write, sync and hash. On an async runtime, do them on a thread for blocking
/// work wherever a value may be large.
pub trait BlobStore: Send + Sync {
    /// The bytes of a blob, after a check that they are the ones it names.
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError>;

    /// Keeps the bytes and returns their name; they are on stable storage when it returns.
    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError>;

    /// Keeps a text as the JSON string that [`text_to_json_string`] makes of it. Unless an
    /// implementation says otherwise, the whole string is held in memory.
    fn put_json_string(&self, text: &mut dyn io::Read) -> Result<BlobRef, BlobError> {
        let mut json = Vec::new();
        text_to_json_string(text, &mut json).map_err(|source| BlobError::Input { source })?;
        self.put(&json)
    }

    /// The size of a blob in bytes. The bytes themselves are not checked.
    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        Ok(self.get(blob)?.len() as u64)
    }

    /// Writes a blob to `out`, and returns its size in bytes. An error means that `out` got bytes
    /// that are not the blob's, or not all of them. Unless an implementation says otherwise, the
    /// whole blob is held in memory.
    fn copy_to(&self, blob: &BlobRef, out: &mut dyn io::Write) -> Result<u64, BlobError> {
        let bytes = self.get(blob)?;
        out.write_all(&bytes).map_err(|source| BlobError::Output { source })?;
        Ok(bytes.len() as u64)
    }
}

macro_rules! forward {
    ($($holder:ty),*) => {$(
        impl<B: BlobStore + ?Sized> BlobStore for $holder {
            fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
                (**self).get(blob)
            }

            fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
                (**self).put(bytes)
            }

            fn put_json_string(&self, text: &mut dyn io::Read) -> Result<BlobRef, BlobError> {
                (**self).put_json_string(text)
            }

            fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
                (**self).len(blob)
            }

            fn copy_to(&self, blob: &BlobRef, out: &mut dyn io::Write) -> Result<u64, BlobError> {
                (**self).copy_to(blob, out)
            }
        }
    )*};
}

forward!(&B, Box<B>, Arc<B>);

/// Why a blob could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// There is no such blob: none was stored, as far as is known.
    #[error("{blob} is not in the store, and no such value is known to have been stored")]
    Missing {
        /// The blob asked for.
        blob: BlobRef,
    },
    /// The blob was stored, as far as is known, and is gone.
    #[error(
        "{blob} was stored and is gone; restore the store's `blobs` directory, or run the stage that made it again"
    )]
    Lost {
        /// The blob asked for.
        blob: BlobRef,
    },
    /// The bytes found are not the ones that the name stands for.
    #[error("{blob}{} is damaged: its bytes do not match its name; restore it from a copy, or run the stage that made it again", at(path.as_deref()))]
    Corrupt {
        /// The blob asked for.
        blob: BlobRef,
        /// The file it was read from, if it was one.
        path: Option<PathBuf>,
    },
    /// A file or directory of the store could not be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The text to keep could not be read.
    #[error("cannot read the text to keep: {source}")]
    Input {
        /// What the reader says.
        source: io::Error,
    },
    /// The blob could not be written to where it was to be copied.
    #[error("cannot write the copy of a blob: {source}")]
    Output {
        /// What the writer says.
        source: io::Error,
    },
    /// A store that is no directory failed.
    #[error("{source}")]
    Backend {
        /// That store's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn at(path: Option<&Path>) -> String {
    path.map(|path| format!(" in {}", path.display())).unwrap_or_default()
}

#[cfg(test)]
mod tests;
