//! Values as blobs: large ones leave a record for a blob, and are read back.

use std::io;
use std::sync::Arc;

use fabro_types::BlobRef;
use serde_json::Value;

use crate::{BlobError, BlobStore};

/// A value whose serialized JSON is longer than this many bytes becomes a blob.
pub const OFFLOAD_LIMIT: usize = 102_400;

/// Bytes that a record names, to be stored no later than the record.
pub type NewBlob = (BlobRef, Arc<[u8]>);

/// The largest value that is read back as a whole, in bytes.
pub const READ_LIMIT: u64 = 16 << 20;

/// Why a large value could not be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is larger than [`READ_LIMIT`], or several values together are larger than the limit of the reader.
    #[error("the value is too large: {bytes} bytes (limit {} MB)", READ_LIMIT >> 20)]
    TooLarge {
        /// How large it is.
        bytes: u64,
    },
    /// It cannot be read.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Its bytes are not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The blob that a value refers to. `None` also for a text that only looks like a reference: the store
/// never had such a blob.
pub fn reference(blobs: &dyn BlobStore, value: &Value) -> Option<BlobRef> {
    let blob = BlobRef::from_value(value)?;
    (!matches!(blobs.len(&blob), Err(BlobError::Missing { .. }))).then_some(blob)
}

/// The value that a reference stands for, when it is at most [`READ_LIMIT`] bytes. A name that the store never
/// had is text, of a model, say, that only looks like a reference: it stands for itself.
///
/// # Errors
///
/// The value is too large, lost, damaged, or not JSON.
pub fn read_blob(blobs: &dyn BlobStore, blob: &BlobRef) -> Result<Value, ReadError> {
    let bytes = match blobs.len(blob) {
        Err(BlobError::Missing { .. }) => return Ok(blob.to_value()),
        bytes => bytes?,
    };
    if bytes > READ_LIMIT {
        // A damaged file may have become larger than what was stored.
        blobs.copy_to(blob, &mut io::sink())?;
        return Err(ReadError::TooLarge { bytes });
    }
    Ok(serde_json::from_slice(&blobs.get(blob)?)?)
}

/// Puts what `read` gives for each reference inside of an array or object in its place; `None`
/// leaves it. References in what was read stay.
pub fn read_inner<E>(
    value: &mut Value,
    read: &mut impl FnMut(&BlobRef) -> Result<Option<Value>, E>,
) -> Result<(), E> {
    // Values come from JSON that was parsed, which bounds their depth.
    let visit = |inner: &mut Value| match BlobRef::from_value(inner) {
        Some(blob) => read(&blob).map(|found| {
            if let Some(found) = found {
                *inner = found;
            }
        }),
        None => read_inner(inner, read),
    };
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(visit),
        Value::Object(fields) => fields.values_mut().try_for_each(visit),
        _ => Ok(()),
    }
}

/// Replaces a value whose serialized JSON is longer than `limit` bytes by a reference; the bytes
/// that it names are added to `blobs`. With a limit of 0 every value is replaced.
pub fn offload_value(value: &mut Arc<Value>, limit: usize, blobs: &mut Vec<NewBlob>) {
    if !may_exceed(value, limit) {
        return;
    }
    let bytes = value.to_string().into_bytes();
    if bytes.len() > limit {
        let blob = BlobRef::of(&bytes);
        blobs.push((blob, Arc::from(bytes)));
        *value = Arc::new(blob.to_value());
    }
}

/// False when the serialized form is certainly within the limit; spares small values the work.
fn may_exceed(value: &Value, limit: usize) -> bool {
    fn size(value: &Value, left: &mut usize) -> bool {
        let own = match value {
            Value::Null | Value::Bool(_) => 5,
            Value::Number(_) => 30,
            // A control character takes six bytes.
            Value::String(text) => text.len() * 6 + 2,
            Value::Array(_) | Value::Object(_) => 2,
        };
        *left = left.saturating_sub(own + 1);
        if *left == 0 {
            return true;
        }
        match value {
            Value::Array(items) => items.iter().any(|item| size(item, left)),
            Value::Object(fields) => fields.iter().any(|(key, item)| {
                *left = left.saturating_sub(key.len() * 6 + 3);
                size(item, left)
            }),
            _ => false,
        }
    }
    size(value, &mut { limit })
}
