//! Large values leave the context for blobs before they reach the log.

use std::sync::Arc;

use fabro_blob::{BlobError, BlobStore};
use fabro_context::keys;
use fabro_types::{BlobRef, ContextPatch};
use serde_json::Value;

/// A value whose serialized JSON is longer than this many bytes becomes a blob.
pub const LIMIT: usize = 102_400;

/// Bytes that a record names, to be stored no later than the record.
pub type NewBlob = (BlobRef, Arc<[u8]>);

/// Stored blobs together with those of the commit that is being prepared.
pub(crate) struct Pending<'a> {
    pub(crate) new: &'a [NewBlob],
    pub(crate) stored: &'a dyn BlobStore,
}

impl BlobStore for Pending<'_> {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        match self.find(blob) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => self.stored.get(blob),
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.stored.put(bytes)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        match self.find(blob) {
            Some(bytes) => Ok(bytes.len() as u64),
            None => self.stored.len(blob),
        }
    }
}

impl Pending<'_> {
    fn find(&self, blob: &BlobRef) -> Option<&Arc<[u8]>> {
        self.new.iter().find(|(name, _)| name == blob).map(|(_, bytes)| bytes)
    }
}

/// The largest value that is read back as a whole, in bytes.
pub const READ_LIMIT: u64 = 16 << 20;

/// Why a large value could not be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is larger than [`READ_LIMIT`].
    #[error("its {bytes} bytes are more than the {} MB that are read back", READ_LIMIT >> 20)]
    TooLarge {
        /// How large it is.
        bytes: u64,
    },
    /// It cannot be had.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Its bytes are no JSON.
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The value that a reference stands for, when it is at most [`READ_LIMIT`] bytes.
pub fn read_blob(blobs: &dyn BlobStore, blob: &BlobRef) -> Result<Value, ReadError> {
    let bytes = blobs.len(blob)?;
    if bytes > READ_LIMIT {
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
    let bytes = serde_json::to_vec(value.as_ref()).unwrap_or_default();
    if bytes.len() > limit {
        let blob = BlobRef::of(&bytes);
        blobs.push((blob, Arc::from(bytes)));
        *value = Arc::new(blob.to_value());
    }
}

/// The same patch with large values, and all command output, replaced by references. The bytes
/// they name are added to `blobs`.
pub fn offload_patch(patch: &mut ContextPatch, blobs: &mut Vec<NewBlob>) {
    for (key, value) in patch {
        if BlobRef::from_value(value).is_none() {
            let always = key == keys::COMMAND_OUTPUT || key == keys::COMMAND_STDERR;
            offload_value(value, if always { 0 } else { LIMIT }, blobs);
        }
    }
}

/// How many values of the patch are references.
pub(crate) fn blobs_in(patch: &ContextPatch) -> u64 {
    patch.values().filter(|value| BlobRef::from_value(value).is_some()).count() as u64
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(key: &str, value: &Value, expect_blob: bool) {
        let mut patch = ContextPatch::from([(key.to_owned(), Arc::new(value.clone()))]);
        let mut blobs = Vec::new();
        offload_patch(&mut patch, &mut blobs);
        assert_eq!(BlobRef::from_value(&patch[key]).is_some(), expect_blob, "{key}");
        if expect_blob {
            assert_eq!(serde_json::from_slice::<Value>(&blobs[0].1).unwrap(), *value);
            assert_eq!(BlobRef::from_value(&patch[key]), Some(blobs[0].0));
        }
        assert_eq!(blobs_in(&patch), u64::from(expect_blob));
    }

    #[test]
    fn exactly_the_limit_stays() {
        check("plan", &json!("x".repeat(LIMIT - 2)), false);
        check("plan", &json!("x".repeat(LIMIT - 1)), true);
        check("plan", &json!("\n".repeat(LIMIT / 2)), true);
        check("plan", &json!(vec![1; LIMIT / 2]), true);
        check("plan", &json!({"a": "x".repeat(LIMIT)}), true);
        check("command.output", &json!(""), true);
    }
}
