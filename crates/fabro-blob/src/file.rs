//! Blobs as files for other programs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use fabro_types::BlobRef;

use crate::{BlobError, BlobStore};

/// The path of a file that holds a blob: `{hex}.json` in `dir`, both made when they are not there
/// yet.
///
/// # Errors
///
/// The blob cannot be read, or the file not written.
pub fn as_file(dir: &Path, blobs: &dyn BlobStore, blob: &BlobRef) -> Result<PathBuf, BlobError> {
    let path = dir.join(format!("{}.json", blob.hex()));
    if path.exists() {
        return Ok(path);
    }
    let failed = |source: io::Error| BlobError::Io { path: path.clone(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    // Written aside and renamed, so that a file under its final name is always whole.
    let part = dir.join(format!("{}.part", blob.hex()));
    let mut file = File::create(&part).map_err(failed)?;
    blobs.copy_to(blob, &mut file)?;
    fs::rename(&part, &path).map_err(failed)?;
    Ok(path)
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
        assert!(as_file(dir.path(), &MemoryBlobs::default(), &blob).is_err());
    }
}
