//! Forking and rewinding a run: what would run again, the context to change, and the form that does it.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_inspect::{StageRow, find_stage};
use fabro_page::{Links, stage_rows};
use fabro_run::{is_driven, new_run_id};
use fabro_types::one_line;
use serde::Deserialize;
use serde_json::Value;

use super::{Frame, RunHead, Section, Tab, for_caller, render};
use crate::api::Params;
use crate::app::App;
use crate::auth::{Caller, Role, permitted};
use crate::problem::Problem;

/// The most stages that are listed.
const ROWS: usize = 30;

/// The most stages that are offered.
const STAGES: usize = 200;

/// The longest value of the context, in characters.
const VALUE: usize = 300;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    stage: String,
}

#[derive(Template)]
#[template(path = "fork.html")]
struct Page {
    frame: Frame,
    head: RunHead,
    /// The stage after which the run would continue.
    stage: String,
    link: String,
    edge: Option<String>,
    stages: Vec<String>,
    kept: usize,
    /// How many stages would run again.
    count: usize,
    spent: String,
    rows: String,
    left_out: usize,
    files: &'static str,
    key: String,
    seq: u64,
    is_driven: bool,
    values: Vec<(String, String)>,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<Path<String>, PathRejection>,
    query: Result<Params<Query>, Problem>,
) -> Response {
    for_caller(caller, async |role| {
        permitted(role, Role::Admin)?;
        let Path(run) = run?;
        html(&app, role, &run, &query?.0).await
    })
    .await
}

async fn html(app: &App, role: Role, run: &str, query: &Query) -> Result<String, Problem> {
    let id = app.actions.find(run).await?;
    let view = app.folds.view(id).await?;
    let rows = &view.run.stages;
    // Nothing follows an exit.
    let is_end = |row: &&StageRow| row.ended_at.is_some() && row.edge.is_some();
    let row = match query.stage.trim() {
        "" => {
            let last = rows.iter().filter(is_end).rfind(|row| row.branch.is_none());
            last.ok_or_else(|| {
                Problem::not_found(
                    "stage_not_found",
                    "no stage of the main line has ended".to_owned(),
                    "look again when one has",
                )
            })?
        }
        name => find_stage(rows, name)?,
    };
    let line = app.folds.line_after(&view, row).await?;
    let (kept, again): (Vec<&StageRow>, Vec<&StageRow>) =
        rows.iter().partition(|it| it.ended_at.is_some() && it.last_seq <= row.last_seq);
    let cost: f64 = again.iter().filter_map(|it| it.usage.as_ref()).map(|it| it.cost_usd).sum();
    let links = Links::Server(format!("/runs/{id}"));
    let name = row.name();
    let value = |value: &Value| match value {
        Value::String(text) => one_line(text, VALUE),
        other => one_line(&other.to_string(), VALUE),
    };
    let ended = rows.iter().rev().filter(is_end).take(STAGES);
    render(&Page {
        frame: Frame::new(&format!("Fork or rewind · {}", view.run.workflow), role, Section::Runs),
        head: RunHead::new(&view, Tab::Other),
        link: links.stage(&name),
        edge: row.edge.as_deref().map(str::to_owned),
        stages: ended.map(StageRow::name).collect(),
        kept: kept.len(),
        count: again.len(),
        spent: if cost > 0.0 { format!("${cost:.4}") } else { String::new() },
        left_out: again.len().saturating_sub(ROWS),
        rows: stage_rows(again.into_iter().take(ROWS), &links),
        files: if view.created.worktree.is_some() {
            "The files of the run's git worktree are those of that stage again."
        } else {
            "Files that stages have changed stay as they are: the run has no git worktree of its own."
        },
        key: new_run_id().to_string(),
        seq: view.seq,
        is_driven: is_driven(&*app.actions.store, id).await?,
        values: line.context.iter().map(|(key, it)| (key.to_owned(), value(it))).collect(),
        stage: name,
    })
}
