//! Endpoints for monitoring: liveness (`/healthz`) and metrics (`/metrics`).

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use fabro_store::Runs as _;

use crate::app::App;
use crate::problem::Problem;

/// The path of the liveness probe. It needs no token and accepts any `Host`, as probes often use an IP address.
pub(crate) const HEALTH: &str = "/healthz";

/// The path of the metrics.
pub(crate) const METRICS: &str = "/metrics";

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route(HEALTH, get(health)).route(METRICS, get(metrics))
}

async fn health() -> &'static str {
    "ok\n"
}

async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let store = &app.actions.store;
    let runs = store.list().await?;
    let waiting = app.actions.waiting_gates().await?;
    let text = app.metrics.text(store, &runs, &waiting).await;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text).into_response())
}
