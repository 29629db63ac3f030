//! The events of a run, a page at a time.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_config::EVENT_NAMES;
use fabro_events::{Event, stage_name::StageName, timestamp};
use fabro_inspect::StageKey;
use fabro_page::Links;
use fabro_store::RunLog as _;
use fabro_types::one_line;
use serde::Deserialize;
use serde_json::Value;

use super::{Frame, RunHead, Section, Tab, for_caller, query as query_of, render, stream};
use crate::api::Params;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::View;
use crate::problem::Problem;

/// How many events are on a page.
const ROWS: usize = 50;

/// How many events are read at a time.
const PAGE: usize = 500;

/// How many events are looked through for those of a filter, before the page offers to continue.
const MAX_SCANNED: u64 = 20_000;

/// The longest line about an event, in characters.
const LINE: usize = 200;

/// The longest event, in characters.
const JSON: usize = 100_000;

/// What a filter may be: the beginnings that several names have, each before the names.
fn filters() -> Vec<&'static str> {
    let mut offered: Vec<&str> = Vec::new();
    for name in EVENT_NAMES {
        for (dot, _) in name.match_indices('.') {
            let start = &name[..=dot];
            let is_shared = EVENT_NAMES.iter().filter(|it| it.starts_with(start)).count() > 1;
            if is_shared && !offered.contains(&start) {
                offered.push(start);
            }
        }
        offered.push(name);
    }
    offered
}

/// Which events are shown.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    after: u64,
    /// The page that has this event.
    #[serde(default)]
    at: u64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    stage: String,
}

struct Row {
    seq: u64,
    ts: String,
    name: String,
    stage: String,
    link: Option<String>,
    line: String,
    json: String,
    is_open: bool,
    is_taken_back: bool,
}

#[derive(Template)]
#[template(path = "events.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    name: &'a str,
    stage: &'a str,
    names: Vec<&'static str>,
    events: Vec<Row>,
    first: Option<String>,
    earlier: Option<String>,
    later: Option<String>,
    last: Option<String>,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<Path<String>, PathRejection>,
    query: Result<Params<Query>, Problem>,
) -> Response {
    for_caller(caller, async |role| {
        let Path(run) = run?;
        html(&app, role, &run, &query?.0).await
    })
    .await
}

async fn html(app: &App, role: Role, run: &str, query: &Query) -> Result<String, Problem> {
    let id = app.actions.find(run).await?;
    let view = app.folds.view(id).await?;
    let rows = ROWS as u64;
    let after = match query.at {
        0 => query.after,
        at => at.saturating_sub(rows / 2),
    };
    let found = find(app, &view, query, after).await?;
    let is_filtered = !query.name.trim().is_empty() || !query.stage.trim().is_empty();
    let place = |after: u64| {
        let after = if after == 0 { String::new() } else { after.to_string() };
        let pairs = [("name", &*query.name), ("stage", &*query.stage), ("after", &after)];
        format!("/runs/{id}/events{}", query_of(&pairs))
    };
    let links = Links::Server(format!("/runs/{id}"));
    let row = |event: &Event| row(event, &view, &links, query.at);
    let frame = Frame::new(&format!("Events · {}", view.run.workflow), role, Section::Runs);
    render(&Page {
        frame: Frame { stream: stream(&view, false), ..frame },
        head: RunHead::new(&view, Tab::Events),
        name: &query.name,
        stage: &query.stage,
        names: filters(),
        first: (after > 0).then(|| place(0)),
        // Backwards only without a filter: what is before it is not known.
        earlier: (after > 0 && !is_filtered).then(|| place(after.saturating_sub(rows))),
        later: found.next.map(place),
        last: (found.next.is_some() && !is_filtered).then(|| place(view.seq.saturating_sub(rows))),
        events: found.events.iter().map(row).collect(),
    })
}

struct Found {
    events: Vec<Event>,
    /// Where the next page begins.
    next: Option<u64>,
}

async fn find(app: &App, view: &View, query: &Query, after: u64) -> Result<Found, Problem> {
    let name = query.name.trim();
    let stage = query.stage.trim();
    let stage = (!stage.is_empty()).then(|| StageName::parse(stage));
    let is_wanted = |event: &Event| {
        (name.is_empty() || name_in(&event.to_json_line()).starts_with(name))
            && stage.is_none_or(|stage| stage.is_of(&event.entry))
    };
    let is_filtered = !name.is_empty() || stage.is_some();
    let mut events = Vec::new();
    let places = stage.and_then(|stage| places(view, stage));
    let after = after.max(places.map_or(0, |(first, _)| first.saturating_sub(1)));
    let until = places.map_or(u64::MAX, |(_, last)| last);
    let mut last = after;
    loop {
        let count = if is_filtered { PAGE } else { ROWS + 1 };
        let page = app.actions.store.read(view.run.id, last, count).await?;
        let is_end = page.len() < count;
        for event in page {
            if events.len() == ROWS && is_wanted(&event) {
                return Ok(Found { events, next: Some(last) });
            }
            last = event.seq;
            if is_wanted(&event) {
                events.push(event);
            }
        }
        if is_end || last >= until {
            return Ok(Found { events, next: None });
        }
        if last - after >= MAX_SCANNED {
            return Ok(Found { events, next: Some(last) });
        }
    }
}

/// The first and the last event of the stages with this name; `None` where others may count too: those that a rewind
/// took back, and what was recorded of an exit that was not entered.
fn places(view: &View, name: StageName<'_>) -> Option<(u64, u64)> {
    if !view.rewinds.is_empty() {
        return None;
    }
    let mut places = None;
    for row in view.run.stages.iter().filter(|row| row.key().is_called(name)) {
        if view.may_be_exit(row) {
            return None;
        }
        let (first, last) = places.unwrap_or((row.first_seq, row.last_seq));
        places = Some((first.min(row.first_seq), last.max(row.last_seq)));
    }
    places
}

fn row(event: &Event, view: &View, links: &Links, at: u64) -> Row {
    let key = StageKey::of(event);
    let stage = key.map(|key| key.full_name());
    let line = event.to_json_line();
    let value: Value = serde_json::from_str(&line).unwrap_or_default();
    let json = format!("{value:#}");
    Row {
        seq: event.seq,
        ts: timestamp(event.ts_ms),
        name: name_in(&line).to_owned(),
        link: stage.as_deref().map(|name| links.stage(name)),
        stage: stage.unwrap_or_default(),
        line: summary(&value["properties"]),
        json: match json.char_indices().nth(JSON) {
            Some((end, _)) => format!("{}…", &json[..end]),
            None => json,
        },
        is_open: event.seq == at,
        is_taken_back: !view.counts(event),
    }
}

/// The properties of an event that are one value, in a line; the whole of it is below.
fn summary(properties: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in properties.as_object().into_iter().flatten() {
        match value {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => parts.push(format!("{key}: {}", one_line(text, LINE))),
            Value::Number(_) | Value::Bool(_) => parts.push(format!("{key}: {value}")),
            Value::Null | Value::Array(_) | Value::Object(_) => {}
        }
    }
    one_line(&parts.join(" · "), LINE)
}

/// The name of an event in its JSON: only an id and times are before it.
fn name_in(line: &str) -> &str {
    const KEY: &str = "\"event\":\"";
    let start = line.find(KEY).map_or(line.len(), |at| at + KEY.len());
    let rest = &line[start..];
    &rest[..rest.find('"').unwrap_or_default()]
}

#[test]
fn an_event_is_a_line_of_its_plain_values() {
    let check = |properties: Value, expect: &str| assert_eq!(summary(&properties), expect);
    check(
        serde_json::json!({"to": "fix", "label": null, "candidates": [{"to": "ask"}]}),
        "to: fix",
    );
    check(
        serde_json::json!({"rank": 4, "text": "one\ntwo", "more": ""}),
        "rank: 4 · text: one two",
    );
    check(Value::Null, "");
}

#[test]
fn filters_are_shared_beginnings_and_names() {
    let of =
        |start: &str| filters().into_iter().filter(|it| it.starts_with(start)).collect::<Vec<_>>();
    assert_eq!(of("gate"), ["gate.", "gate.asked", "gate.answered"]);
    assert_eq!(
        of("parallel"),
        [
            "parallel.",
            "parallel.started",
            "parallel.branch.",
            "parallel.branch.started",
            "parallel.branch.completed",
            "parallel.completed"
        ]
    );
    assert_eq!(of("edge"), ["edge.selected"]);
}
