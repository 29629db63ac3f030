//! What the stages of a run wrote: the last lines, which the script follows.

use std::process::Stdio;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_inspect::find_stage;
use fabro_page::Links;
use fabro_types::RunStatus;
use serde::Deserialize;

use super::{Frame, RunHead, Section, Tab, for_caller, query as query_of, render};
use crate::api::{Params, log_command};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// How many lines are shown.
const LINES: usize = 500;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    stage: String,
}

/// A line as `fabro logs --json` prints it.
#[derive(Deserialize)]
struct Line {
    stage: String,
    stream: String,
    text: String,
    #[serde(skip)]
    link: String,
}

#[derive(Template)]
#[template(path = "logs.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    stage: &'a str,
    most: usize,
    follows: bool,
    /// Where the script finds the lines; `None` when none follow.
    stream: Option<String>,
    lines: Vec<Line>,
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
    let stage = query.stage.trim();
    let chosen = (!stage.is_empty()).then_some(stage);
    if let Some(stage) = chosen {
        find_stage(&view.run.stages, stage)?;
    }
    let follows = view.run.status == RunStatus::Running;
    let links = Links::Server(format!("/runs/{id}"));
    let mut command = log_command(&app.actions, id, chosen, Some(LINES), false);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| {
        Problem::internal("logs_failed", error.to_string(), "see what `fabro logs` reports")
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let written = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let written = written.map(|line| Line { link: links.stage(&line.stage), ..line });
    let tail = LINES.to_string();
    let pairs = [("follow", "true"), ("tail", &*tail), ("stage", stage)];
    render(&Page {
        frame: Frame::new(&format!("Logs · {}", view.run.workflow), role, Section::Runs),
        head: RunHead::new(&view, Tab::Logs),
        stage,
        most: LINES,
        follows,
        stream: follows.then(|| format!("/api/v1/runs/{id}/logs{}", query_of(&pairs))),
        lines: written.collect(),
    })
}
