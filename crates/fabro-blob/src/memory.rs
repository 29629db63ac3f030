use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabro_types::BlobRef;

use crate::{BlobError, BlobStore};

/// Blobs in memory, for tests and for runs that need not outlive the process.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    blobs: Mutex<BTreeMap<BlobRef, Vec<u8>>>,
}

impl MemoryBlobs {
    fn blobs(&self) -> MutexGuard<'_, BTreeMap<BlobRef, Vec<u8>>> {
        // A panic elsewhere cannot leave half a blob: entries are inserted whole.
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlobStore for MemoryBlobs {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.blobs().get(blob).cloned().ok_or(BlobError::Missing { blob: *blob })
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        let blob = BlobRef::of(bytes);
        self.blobs().entry(blob).or_insert_with(|| bytes.to_vec());
        Ok(blob)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        let blobs = self.blobs();
        blobs.get(blob).map(|bytes| bytes.len() as u64).ok_or(BlobError::Missing { blob: *blob })
    }
}
