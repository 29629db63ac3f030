//! Changes to runs.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::input::Body;
use super::{json, unchanged};
use crate::actions::{Answer, Cancel, Fork, Resume, Start, Steer};
use crate::app::App;
use crate::problem::Problem;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub(super) async fn start(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Body(request): Body<Start>,
) -> Result<Response, Problem> {
    let new_run = || Some(fabro_run::new_run_id());
    let begin = async |id| Ok(to_value(&Box::pin(app.actions.start(&request, id)).await?));
    let (started, is_kept) = app.once.execute(&headers, &request, new_run, begin).await?;
    let response = json(&started);
    Ok(if is_kept {
        (StatusCode::OK, [(REPLAYED, "true")], response).into_response()
    } else {
        (StatusCode::CREATED, response).into_response()
    })
}

pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Answer>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    unchanged(&app, run, &headers).await?;
    Ok(json(&app.actions.answer(run, &request, "http").await?))
}

pub(super) async fn steer(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Steer>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    unchanged(&app, run, &headers).await?;
    Ok(json(&app.actions.steer(run, &request).await?))
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Cancel>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    unchanged(&app, run, &headers).await?;
    Ok(json(&app.actions.cancel(run, &request).await?))
}

pub(super) async fn resume(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Resume>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    unchanged(&app, run, &headers).await?;
    let begin = async |_| Ok(to_value(&app.actions.resume(run, &request).await?));
    let same = ("resume", run, &request);
    let (started, is_kept) = app.once.execute(&headers, &same, || None, begin).await?;
    Ok(replayed(json(&started), is_kept))
}

pub(super) async fn fork(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Fork>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    unchanged(&app, run, &headers).await?;
    let copy = async |_| Ok(to_value(&app.actions.fork(run, &request).await?));
    let same = ("fork", run, &request);
    let (forked, is_kept) = app.once.execute(&headers, &same, || None, copy).await?;
    Ok(replayed(json(&forked), is_kept))
}

pub(super) async fn rewind(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Fork>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    unchanged(&app, run, &headers).await?;
    Ok(json(&app.actions.rewind(run, &request).await?))
}

fn replayed(response: Response, is_kept: bool) -> Response {
    if is_kept { ([(REPLAYED, "true")], response).into_response() } else { response }
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
