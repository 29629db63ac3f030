//! The context of a run after a stage, and what changed in it between two.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_inspect::{StageRow, find_stage, read_back_small};
use fabro_page::{CONTEXT_READ, Texts};
use fabro_store::SqliteStore;
use serde::Deserialize;
use serde_json::Value;

use super::{Frame, RunHead, Section, Tab, for_caller, render, stream};
use crate::api::Params;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// The longest value, in characters.
const VALUE: usize = 4_000;

/// The most stages that are offered.
const STAGES: usize = 200;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    at: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
}

#[derive(Template)]
#[template(path = "context_page.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    at: &'a str,
    from: &'a str,
    to: &'a str,
    /// The last stages that ended.
    stages: Vec<String>,
    title: String,
    /// Keys and values: those of stages, and under a title those that the engine keeps for itself.
    groups: Vec<(&'static str, Vec<(String, String)>)>,
    changes: Vec<(String, String, String)>,
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
    let store = &*app.actions.store;
    let rows = &view.run.stages;
    let [at, from, to] = [&query.at, &query.from, &query.to].map(|text| text.trim());
    let (mut values, mut changes) = (Vec::new(), Vec::new());
    let title = match (from, to) {
        ("", "") => {
            let row = if at.is_empty() { None } else { Some(find_stage(rows, at)?) };
            let line = match row {
                Some(row) => app.folds.line_after(&view, row).await?,
                None => app.folds.line(id, None).await?,
            };
            let pairs = line.context.iter();
            values = pairs.map(|(key, it)| (key.to_owned(), html_of(it, store))).collect();
            row.map_or("Now".to_owned(), |row| format!("After {}", row.name()))
        }
        (from, to) if !from.is_empty() && !to.is_empty() => {
            let (from, to) = (find_stage(rows, from)?, find_stage(rows, to)?);
            let before = app.folds.line_after(&view, from).await?;
            let after = app.folds.line_after(&view, to).await?;
            let cell = |value: Option<&Value>| {
                value.map(|value| html_of(value, store)).unwrap_or_default()
            };
            for change in before.context.diff(&after.context) {
                let [old, new] = [change.before.as_deref(), change.after.as_deref()].map(cell);
                changes.push((change.key.clone(), old, new));
            }
            format!("From {} to {}", from.name(), to.name())
        }
        _ => {
            let fix = "name two stages";
            return Err(Problem::invalid("`from` and `to` belong together", fix));
        }
    };
    let ended = rows.iter().rev().filter(|row| row.ended_at.is_some());
    let is_now = at.is_empty() && from.is_empty();
    let frame = Frame::new(&format!("Context · {}", view.run.workflow), role, Section::Runs);
    let is_internal = |(key, _): &(String, String)| key.starts_with("internal.");
    let (internal, values): (Vec<_>, Vec<_>) = values.into_iter().partition(is_internal);
    let groups = [("", values), ("Of the engine", internal)];
    let groups = groups.into_iter().filter(|(_, values)| !values.is_empty()).collect();
    render(&Page {
        frame: Frame {
            stream: if is_now { stream(&view, false) } else { None },
            pace: 2_000,
            ..frame
        },
        head: RunHead::new(&view, Tab::Context),
        at,
        from,
        to,
        stages: ended.take(STAGES).map(StageRow::name).collect(),
        title,
        groups,
        changes,
    })
}

/// A value as a fragment. Of one that is too large, the size.
fn html_of(value: &Value, store: &SqliteStore) -> String {
    Texts::cut_at(VALUE).html(&read_back_small(value, CONTEXT_READ, store))
}
