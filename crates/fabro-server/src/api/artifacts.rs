//! Artifacts, which are only ever downloads: a page of a run must not act with the rights of this server's
//! pages.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use super::input::Params;
use super::json;
use crate::app::App;
use crate::problem::Problem;

/// Which artifacts are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactQuery {
    /// Only those of this stage, `[BRANCH/]NODE[@VISIT]`.
    #[serde(default)]
    stage: Option<String>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    Params(query): Params<ArtifactQuery>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    Ok(json(&app.folds.artifacts(run, query.stage.as_deref()).await?))
}

pub(super) async fn download(
    State(app): State<Arc<App>>,
    Path((run, sha256)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let runs_dir = app.actions.store.runs_dir();
    let rows = app.folds.artifacts(run, None).await?;
    let Some(row) = rows.into_iter().rfind(|row| row.sha256 == sha256) else {
        return Err(Problem::not_found(
            "artifact_not_found",
            "the run has no artifact with this SHA-256".to_owned(),
            "GET /api/v1/runs/{run}/artifacts lists them",
        ));
    };
    let name = row.path.rsplit('/').next().unwrap_or_default().to_owned();
    let damaged = |detail: String| {
        let fix = "restore the directory of the run, or run the stage again";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "artifact_damaged", detail, fix)
    };
    // Reads the whole file to check its hash.
    let stored = tokio::task::spawn_blocking(move || row.stored(&runs_dir)).await;
    let path = stored.map_err(|error| damaged(error.to_string()))?;
    let path = path.map_err(|error| damaged(error.to_string()))?;
    let file = File::open(&path).await.map_err(|error| damaged(error.to_string()))?;
    let length = file.metadata().await.map(|it| it.len()).unwrap_or_default();
    let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename*=UTF-8''{name}")),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    Ok((headers, Body::from_stream(ReaderStream::new(file))).into_response())
}
