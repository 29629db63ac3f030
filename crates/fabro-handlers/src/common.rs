//! What several handlers have in common.

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use fabro_engine::{BlobError, BlobStore, ReadError, Reporter, Stage, read_blob};
use fabro_events::EventBody;
use fabro_sandbox::git::UnknownFiles;
use fabro_sandbox::is_exhausted;
use fabro_types::{BlobRef, Failure, FailureClass, Fidelity, Outcome};
use serde_json::Value;

/// The outcome of a stage that was canceled.
pub(crate) fn canceled() -> Outcome {
    Outcome::failed(Failure::new(FailureClass::Canceled, "canceled"))
}

/// A failure because of this error; it can succeed later when the system lacked resources.
pub(crate) fn failed(error: &(dyn Error + 'static)) -> Failure {
    let class = if is_exhausted(error) {
        FailureClass::TransientInfra
    } else {
        FailureClass::Deterministic
    };
    Failure { damage: is_damage(error), ..Failure::new(class, error.to_string()) }
}

/// Whether the store has lost or damaged something that it should have.
pub(crate) fn is_damage(error: &(dyn Error + 'static)) -> bool {
    let is_blob = |error: &(dyn Error + 'static)| {
        let read = match error.downcast_ref::<ReadError>() {
            Some(ReadError::Blob(error)) => Some(error),
            _ => error.downcast_ref::<BlobError>(),
        };
        // Without `Missing`: a name that the store never had is only text.
        read.is_some_and(|error| !matches!(error, BlobError::Missing { .. }))
    };
    let mut cause = Some(error);
    while let Some(error) = cause {
        if is_blob(error) {
            return !is_exhausted(error);
        }
        cause = error.source();
    }
    false
}

/// A value, read back when it is a reference.
pub(crate) fn value_of<'a>(stage: &Stage, value: &'a Value) -> Result<Cow<'a, Value>, Failure> {
    value_in(&*stage.store, value)
}

fn value_in<'a>(blobs: &dyn BlobStore, value: &'a Value) -> Result<Cow<'a, Value>, Failure> {
    let Some(blob) = BlobRef::from_value(value) else { return Ok(Cow::Borrowed(value)) };
    read_blob(blobs, &blob).map(Cow::Owned).map_err(|error| failed(&error))
}

/// A text value, read back when it is a reference.
pub(crate) fn text_of(stage: &Stage, value: &Value) -> Result<String, Failure> {
    text_in(&*stage.store, value)
}

/// The same without a stage.
pub(crate) fn text_in(blobs: &dyn BlobStore, value: &Value) -> Result<String, Failure> {
    let value = value_in(blobs, value)?;
    Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// The first 200 characters.
pub(crate) fn preview(text: &str) -> String {
    text.chars().take(200).collect()
}

/// The files that git knows of, or none, which is reported once.
pub(crate) async fn known<T: Default>(stage: &Stage, files: Result<T, UnknownFiles>) -> T {
    match files {
        Ok(files) => files,
        Err(UnknownFiles(message)) => {
            if let Some(message) = message {
                warn(&stage.reporter, "files", message).await;
            }
            T::default()
        }
    }
}

/// Reports something that the stage did not like.
pub(crate) async fn warn(reporter: &Reporter, kind: &str, message: String) {
    let body = EventBody::AgentWarning { kind: kind.to_owned(), message, window: None };
    // Nothing is lost when the driver is ending: the stage runs again.
    let _ = reporter.report(body).await;
}

/// Names the conversation of the stage.
pub(crate) fn session_id(stage: &Stage) -> String {
    let branch = stage.branch.as_deref().map(|branch| format!("{branch}/")).unwrap_or_default();
    format!("{branch}{}@{}", stage.at.node, stage.at.visit)
}

/// Names the conversations of a node, or of a thread, for the prompt cache of a provider.
pub(crate) fn cache_key(stage: &Stage) -> String {
    let thread = stage.at.thread_id.as_ref().filter(|_| stage.at.fidelity == Fidelity::Full);
    format!("fabro-{}", thread.unwrap_or(&stage.at.node))
}

/// The end of a file, at most `most` bytes.
pub(crate) fn tail(path: &Path, most: u64) -> io::Result<String> {
    let mut log = File::open(path)?;
    let bytes = log.metadata()?.len();
    log.seek(SeekFrom::Start(bytes.saturating_sub(most)))?;
    let mut end = Vec::new();
    log.take(most).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}
