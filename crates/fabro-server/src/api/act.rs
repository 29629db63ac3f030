//! Changes to runs.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::input::Body;
use super::json;
use crate::actions::{Answer, Cancel, ExpectedSeq, Fork, Resume, Rewind, Start, Steer};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::guard::authorized;
use crate::once;
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
    Extension(caller): Extension<Option<Caller>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Answer>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let at = seen(&headers)?;
    let caller = authorized(caller, Role::Answer)?;
    Ok(json(&app.actions.answer(run, &request, caller.answered_by(), at).await?))
}

pub(super) async fn steer(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Steer>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let at = seen(&headers)?;
    Ok(json(&app.actions.steer(run, &request, at).await?))
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Cancel>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let at = seen(&headers)?;
    Ok(json(&app.actions.cancel(run, &request, at).await?))
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    Ok(json(&app.actions.remove(run).await?))
}

pub(super) async fn resume(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Resume>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    once::key(&headers)?;
    let at = seen(&headers)?;
    let begin = async |_| Ok(to_value(&app.actions.resume(run, &request, at).await?));
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
    once::key(&headers)?;
    let at = seen(&headers)?;
    let copy = async |_| Ok(to_value(&app.actions.fork(run, &request, at).await?));
    let same = ("fork", run, &request);
    let (forked, is_kept) = app.once.execute(&headers, &same, || None, copy).await?;
    Ok(replayed(json(&forked), is_kept))
}

pub(super) async fn rewind(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(request): Body<Rewind>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let at = seen(&headers)?;
    Ok(json(&app.actions.rewind(run, &request, at).await?))
}

/// The state of the run that the client has seen, if it says so with `If-Match`.
fn seen(headers: &HeaderMap) -> Result<ExpectedSeq, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let tag = value.to_str().unwrap_or_default().trim();
    if tag == "*" {
        return Ok(None);
    }
    let number = tag.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(tag);
    number
        .parse()
        .map(Some)
        .map_err(|_| Problem::changed(format!("`{}` is no ETag of a run", tag.escape_debug())))
}

fn replayed(response: Response, is_kept: bool) -> Response {
    if is_kept { ([(REPLAYED, "true")], response).into_response() } else { response }
}

#[expect(clippy::expect_used, reason = "it cannot fail: every key is a string")]
fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("an answer has only string keys")
}
