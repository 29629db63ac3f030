//! The trace of a run, and the collector of the settings.

use std::collections::BTreeMap;

use fabro_config::TelemetrySettings;
use fabro_engine::{read_all, read_blob};
use fabro_events::EventBody;
use fabro_store::{Store, StoreError};
use fabro_telemetry::{Contents, Export, Exporter};
use fabro_types::{BlobRef, RunId};

use crate::bundle::Bundle;
use crate::error::{RunError, SetupError};
use crate::secrets::expand_all;

/// The trace of a run and of its sub-workflows; with prompts, answers, and arguments and results of tools when
/// `with_contents`. A value that is too large or damaged stays a reference.
///
/// # Errors
///
/// The log cannot be read.
pub async fn run_trace(
    store: &dyn Store,
    run: RunId,
    with_contents: bool,
) -> Result<Export, StoreError> {
    let mut logs = Vec::new();
    for member in store.family(run).await? {
        logs.push(read_all(store, member).await?);
    }
    let read = |value: &serde_json::Value| {
        let blob = BlobRef::from_value(value);
        let whole = blob.and_then(|blob| read_blob(store, &blob).ok());
        whole.unwrap_or_else(|| value.clone())
    };
    let contents = if with_contents { Contents::With(&read) } else { Contents::Omitted };
    let logs: Vec<_> = logs.iter().map(Vec::as_slice).collect();
    // The root of the family: the trace of a sub-workflow is a part of it.
    Ok(fabro_telemetry::trace(store.root(run).await?, &logs, &contents))
}

/// The collector configured when the run was created; `None` without one.
///
/// # Errors
///
/// The run cannot be read.
pub async fn run_telemetry(
    store: &dyn Store,
    run: RunId,
) -> Result<Option<TelemetrySettings>, RunError> {
    let first = store.read(store.root(run).await?, 0, 1).await?.pop();
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Err(RunError::NotCreated { run });
    };
    Ok(Bundle::load(store, &created)?.settings.telemetry)
}

/// The collector of the settings; `None` without one.
///
/// # Errors
///
/// Its address or a header is not valid, or a variable of a header is not set.
pub fn exporter(settings: &TelemetrySettings) -> Result<Option<Exporter>, SetupError> {
    let Some(url) = &settings.otlp else { return Ok(None) };
    let headers: BTreeMap<String, String> = expand_all("[telemetry.headers]", &settings.headers)?;
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let exporter = Exporter::new(url, headers);
    exporter.map(Some).map_err(|error| SetupError::new(error.to_string(), "fix [telemetry]"))
}
