//! Large values as local files of a running run.

use std::path::{Path, PathBuf};

use fabro_engine::{BlobError, BlobStore, ReadError, as_file, bytes_as_file, read_blob};
use fabro_types::BlobRef;
use serde_json::Value;

/// Values inside of others are read back up to so many bytes each.
const INNER: u64 = 102_400;
/// And up to so many in all.
const INNER_TOTAL: u64 = 1 << 20;

/// Puts the values that references inside of a value stand for in their place. Those of large
/// values stay.
pub(crate) fn read_inner(value: &mut Value, blobs: &dyn BlobStore) -> Result<(), ReadError> {
    let mut left = INNER_TOTAL;
    fabro_engine::read_inner(value, &mut |blob| {
        let bytes = len_of(blobs, blob)?.filter(|bytes| *bytes <= INNER.min(left));
        let Some(bytes) = bytes else { return Ok(None) };
        left -= bytes;
        shown_blob(blobs, blob)
    })
}

/// Reads back the values that references in a value stand for.
///
/// # Errors
/// They have more than `limit` bytes in all, or one cannot be read.
pub(crate) fn read_all_inner(
    value: &mut Value,
    blobs: &dyn BlobStore,
    limit: u64,
) -> Result<(), ReadError> {
    let mut total = 0;
    fabro_engine::read_inner(value, &mut |blob| {
        let Some(bytes) = len_of(blobs, blob)? else { return Ok(None) };
        total += bytes;
        if total > limit {
            return Err(ReadError::TooLarge { bytes: total });
        }
        shown_blob(blobs, blob)
    })
}

/// The size of a value; `None` for a text that only looks like a reference.
fn len_of(blobs: &dyn BlobStore, blob: &BlobRef) -> Result<Option<u64>, ReadError> {
    match blobs.len(blob) {
        Err(BlobError::Missing { .. }) => Ok(None),
        bytes => Ok(Some(bytes?)),
    }
}

/// The value of a reference. Text that is not JSON is shown by its name.
fn shown_blob(blobs: &dyn BlobStore, blob: &BlobRef) -> Result<Option<Value>, ReadError> {
    match read_blob(blobs, blob) {
        Err(ReadError::Json(_)) => Ok(None),
        value => value.map(Some),
    }
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
) -> Result<String, BlobError> {
    let path = as_file(&local_dir(run_dir), blobs, blob)?;
    Ok(path.to_string_lossy().into_owned())
}

/// The path of such a file for a value that is in no store.
pub(crate) fn value_path(run_dir: &Path, value: &Value) -> Result<String, BlobError> {
    let path = bytes_as_file(&local_dir(run_dir), value.to_string().as_bytes())?;
    Ok(path.to_string_lossy().into_owned())
}
