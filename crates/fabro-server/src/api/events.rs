//! The events of a run, as a page or as they are committed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use fabro_events::Event;
use fabro_store::RunLog as _;
use schemars::JsonSchema;
use serde::Deserialize;

use super::input::Params;
use crate::app::App;
use crate::problem::Problem;

/// Which events are read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Only events after this sequence number.
    #[serde(default)]
    after: u64,
    /// How many of a page, 1 to 5,000 [default: 1,000].
    #[serde(default)]
    #[schemars(range(min = 1, max = 5_000))]
    limit: Option<usize>,
}

const USUAL_LIMIT: usize = 1_000;
const MAX_LIMIT: usize = 5_000;

pub(super) async fn events(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Params(query): Params<EventQuery>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    if is_stream(&headers) {
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
        let place = app.live.place().ok_or_else(too_many)?;
        let events = app.live.events(run, last.unwrap_or(query.after), place);
        return Ok(stream(Body::from_stream(events)));
    }
    let limit = query.limit.unwrap_or(USUAL_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let fix = format!("name a number from 1 to {MAX_LIMIT}");
        return Err(Problem::invalid(format!("`limit` is {limit}"), fix));
    }
    let events = app.actions.store.read(run, query.after, limit).await?;
    let lines: Vec<String> = events.iter().map(Event::to_json_line).collect();
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, format!("[{}]", lines.join(","))).into_response())
}

pub(super) async fn changes(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !is_stream(&headers) {
        return Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "stream_only",
            "changes are only sent as a stream",
            "send Accept: text/event-stream",
        ));
    }
    let place = app.live.place().ok_or_else(too_many)?;
    Ok(stream(Body::from_stream(app.live.changes(place))))
}

fn is_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|text| text.contains("text/event-stream"))
}

fn stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// All places for streams are taken.
pub(crate) fn too_many() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_readers",
        "too many streams are open",
        "close some, then retry",
    )
}
