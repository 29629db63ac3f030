use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabro_types::BlobRef;

use crate::{BlobError, BlobStore};

/// Blobs in memory, for tests and for runs that need not outlive the process.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    /// `None` for one that is lost.
    blobs: Mutex<BTreeMap<BlobRef, Option<Vec<u8>>>>,
}

impl MemoryBlobs {
    /// Loses a blob, as a disk may: from then on it is [`BlobError::Lost`].
    pub fn lose(&self, blob: &BlobRef) {
        self.blobs().insert(*blob, None);
    }

    fn with<T>(&self, blob: &BlobRef, read: impl FnOnce(&[u8]) -> T) -> Result<T, BlobError> {
        match self.blobs().get(blob) {
            Some(Some(bytes)) => Ok(read(bytes)),
            Some(None) => Err(BlobError::Lost { blob: *blob }),
            None => Err(BlobError::Missing { blob: *blob }),
        }
    }

    fn blobs(&self) -> MutexGuard<'_, BTreeMap<BlobRef, Option<Vec<u8>>>> {
        // A panic elsewhere cannot leave half a blob: entries are inserted whole.
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlobStore for MemoryBlobs {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.with(blob, <[u8]>::to_vec)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        let blob = BlobRef::of(bytes);
        self.blobs().entry(blob).or_default().get_or_insert_with(|| bytes.to_vec());
        Ok(blob)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        self.with(blob, |bytes| bytes.len() as u64)
    }
}
