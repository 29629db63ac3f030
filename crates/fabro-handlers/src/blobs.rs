//! Large values as local files, while a run is at work.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fabro_blob::{BlobError, BlobStore};
use fabro_engine::read_blob;
use fabro_types::BlobRef;
use serde_json::Value;

/// Values inside of others are read back up to so many bytes each.
const INNER: u64 = 102_400;
/// And up to so many in all.
const INNER_TOTAL: u64 = 1 << 20;

/// Puts the values that references inside of a value stand for in their place. Those of large
/// values stay.
pub(crate) fn read_inner(value: &mut Value, blobs: &dyn BlobStore) {
    let mut left = INNER_TOTAL;
    let Ok(()) = fabro_engine::read_inner(value, &mut |blob| {
        let fits = blobs.len(blob).ok().filter(|bytes| *bytes <= INNER.min(left));
        let read = fits.and_then(|bytes| Some((bytes, read_blob(blobs, blob).ok()?)));
        left -= read.as_ref().map_or(0, |(bytes, _)| *bytes);
        Ok::<_, Infallible>(read.map(|(_, value)| value))
    });
}

/// Why a large value could not be put into a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalBlobError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("write {path}: {source}")]
    Io { path: String, source: io::Error },
}

/// The directory of the files that hold blobs.
pub(crate) fn local_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("runtime").join("blobs")
}

/// The path of a file that holds a blob: `{run_dir}/runtime/blobs/{hex}.json`, made when it is
/// not there yet.
pub(crate) fn local_path(
    run_dir: &Path,
    blobs: &dyn BlobStore,
    blob: &BlobRef,
) -> Result<String, LocalBlobError> {
    let dir = local_dir(run_dir);
    let path = dir.join(format!("{}.json", blob.hex()));
    let shown = path.to_string_lossy().into_owned();
    if path.exists() {
        return Ok(shown);
    }
    let failed = |source| LocalBlobError::Io { path: shown.clone(), source };
    fs::create_dir_all(&dir).map_err(failed)?;
    // Written aside and renamed, so that a file under its final name is always whole.
    let part = dir.join(format!("{}.part", blob.hex()));
    let mut file = fs::File::create(&part).map_err(failed)?;
    blobs.copy_to(blob, &mut file)?;
    fs::rename(&part, &path).map_err(failed)?;
    Ok(shown)
}
