//! Reading large values of a stage back.

use fabro_blob::BlobStore;
use fabro_engine::{ReadError, read_blob};
use fabro_types::BlobRef;
use serde_json::Value;

use crate::ReportError;
use crate::at::StageKey;

/// A value that the log refers to. One that is too large stays a reference.
pub(crate) fn read(
    key: &StageKey,
    what: &'static str,
    blob: &BlobRef,
    blobs: &dyn BlobStore,
) -> Result<Value, ReportError> {
    read_blob(blobs, blob).or_else(|source| match source {
        // Prompts and answers are stored as JSON; a text of another writer is shown too.
        ReadError::Json(_) => match blobs.get(blob) {
            Ok(bytes) => Ok(Value::from(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) => Err(failed(key, what, error.into())),
        },
        ReadError::TooLarge { .. } => Ok(blob.to_value()),
        source => Err(failed(key, what, source)),
    })
}

fn failed(key: &StageKey, what: &'static str, source: ReadError) -> ReportError {
    ReportError::Value { what, stage: key.name(), source }
}
