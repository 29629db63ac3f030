//! Blobs as files for other programs.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fabro_types::BlobRef;

use crate::{BlobError, BlobStore};

/// The path of a file that holds a blob: `{hex}.json` in `dir`, both made when they are not there
/// yet.
///
/// # Errors
///
/// The blob cannot be read, or the file not written.
pub fn as_file(dir: &Path, blobs: &dyn BlobStore, blob: &BlobRef) -> Result<PathBuf, BlobError> {
    make(dir, blob, |file| blobs.copy_to(blob, file).map(drop))
}

/// The same for bytes that are in no store.
///
/// # Errors
///
/// The file cannot be written.
pub fn bytes_as_file(dir: &Path, bytes: &[u8]) -> Result<PathBuf, BlobError> {
    make(dir, &BlobRef::of(bytes), |file| {
        file.write_all(bytes).map_err(|source| BlobError::Output { source })
    })
}

fn make(
    dir: &Path,
    blob: &BlobRef,
    write: impl FnOnce(&mut File) -> Result<(), BlobError>,
) -> Result<PathBuf, BlobError> {
    // Two branches may make the same file at the same time.
    static PARTS: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(format!("{}.json", blob.hex()));
    if path.exists() {
        return Ok(path);
    }
    let failed = |source: io::Error| BlobError::Io { path: path.clone(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    // Written aside and renamed, so that a file under its final name is always whole.
    let number = PARTS.fetch_add(1, Ordering::Relaxed);
    let part = dir.join(format!("{}.{}-{number}.part", blob.hex(), std::process::id()));
    let mut file = File::create(&part).map_err(failed)?;
    let written = write(&mut file).and_then(|()| fs::rename(&part, &path).map_err(failed));
    if written.is_err() {
        // What was written of it is of no use; the error that matters is the first one.
        let _ = fs::remove_file(&part);
    }
    written.map(|()| path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBlobs;

    #[test]
    fn a_file_is_made_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = MemoryBlobs::default();
        let blob = blobs.put(b"\"hello\"").unwrap();
        let inner = dir.path().join("a/b");
        let path = as_file(&inner, &blobs, &blob).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"\"hello\"");
        // Not even asked for.
        assert_eq!(as_file(&inner, &MemoryBlobs::default(), &blob).unwrap(), path);
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
        assert_eq!(bytes_as_file(&inner, b"\"hello\"").unwrap(), path);
        let other = bytes_as_file(&inner, b"7").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"7");
        assert!(as_file(dir.path(), &MemoryBlobs::default(), &blob).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no part is left");
    }
}
