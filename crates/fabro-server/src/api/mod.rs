//! The HTTP API, below `/api/v1`.

mod act;
mod artifacts;
mod events;
mod input;
mod logs;
mod read;
mod report;
mod session;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Serialize;

pub(crate) use events::too_many;
pub(crate) use input::{Params, is_json, not_json};
pub(crate) use logs::{ShownLogs, log_command, logs_failed};

use crate::app::App;
use crate::problem::Problem;

/// The routes of the API.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/session", get(session::show).post(session::open).delete(session::close))
        .route("/openapi.json", get(read::openapi))
        .route("/changes", get(events::changes))
        .route("/workflows", get(read::workflows))
        .route("/gates", get(read::gates))
        .route("/runs", get(read::runs).post(act::start))
        .route("/runs/{run}", get(read::run).delete(act::remove))
        .route("/runs/{run}/stages/{*stage}", get(read::stage))
        .route("/runs/{run}/explain/{*stage}", get(read::explain))
        .route("/runs/{run}/context", get(read::context))
        .route("/runs/{run}/diff", get(read::diff))
        .route("/runs/{run}/report", get(report::report))
        .route("/runs/{run}/events", get(events::events))
        .route("/runs/{run}/logs", get(logs::logs))
        .route("/runs/{run}/artifacts", get(artifacts::list))
        .route("/runs/{run}/artifacts/{sha256}", get(artifacts::download))
        .route("/runs/{run}/answer", post(act::answer))
        .route("/runs/{run}/steer", post(act::steer))
        .route("/runs/{run}/cancel", post(act::cancel))
        .route("/runs/{run}/resume", post(act::resume))
        .route("/runs/{run}/fork", post(act::fork))
        .route("/runs/{run}/rewind", post(act::rewind))
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
}

async fn missing() -> Problem {
    Problem::not_found(
        "not_found",
        "the API has no such address".to_owned(),
        "GET /api/v1/openapi.json describes it",
    )
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "the address does not take this method",
        "GET /api/v1/openapi.json describes it",
    )
}

/// A JSON response.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => json_bytes(body.into()),
        Err(error) => Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "store_error",
            error.to_string(),
            "report this as a bug",
        )
        .into_response(),
    }
}

/// A response that is JSON already.
fn json_bytes(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// A JSON response with the sequence number of the run as its `ETag`.
fn json_at(value: &impl Serialize, seq: u64) -> Response {
    tagged(json(value), seq)
}

/// The same of a response.
fn tagged(mut response: Response, seq: u64) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{seq}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// The inputs and outputs that have a schema.
#[cfg(test)]
pub(crate) mod types {
    pub(crate) use super::artifacts::ArtifactQuery;
    pub(crate) use super::events::EventQuery;
    pub(crate) use super::logs::LogQuery;
    pub(crate) use super::read::DiffQuery;
    pub(crate) use super::session::{Login, Session};
    pub(crate) use crate::actions::*;
}
