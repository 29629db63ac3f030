//! Reports about runs, in the shapes that the command line prints as JSON.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use fabro_inspect::read_back;
use fabro_sandbox::git::PatchStyle;
use schemars::JsonSchema;
use serde::Deserialize;

use super::input::Params;
use super::{json, json_at, json_bytes, tagged};
use crate::actions::{ContextQuery, RunQuery};
use crate::app::App;
use crate::problem::Problem;

/// The description of the API, made from its types.
const OPENAPI: &str = include_str!("../../openapi.json");

pub(super) async fn runs(
    State(app): State<Arc<App>>,
    Params(query): Params<RunQuery>,
) -> Result<Response, Problem> {
    Ok(json(&app.actions.list(&query).await?))
}

pub(super) async fn run(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let (report, seq) = app.folds.json(run).await?;
    Ok(tagged(json_bytes(report), seq))
}

pub(super) async fn stage(
    State(app): State<Arc<App>>,
    Path((run, stage)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let (report, seq) = app.folds.stage(run, &stage).await?;
    Ok(json_at(&report, seq))
}

pub(super) async fn explain(
    State(app): State<Arc<App>>,
    Path((run, stage)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    Ok(json(&app.folds.explain(run, &stage).await?))
}

pub(super) async fn context(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    Params(query): Params<ContextQuery>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    match (&query.from, &query.to) {
        (None, None) => {
            Ok(json(&app.actions.context(run, query.at.as_deref(), query.resolve).await?))
        }
        (Some(from), Some(to)) if query.at.is_none() => {
            let before = app.folds.line(run, Some(from)).await?;
            let after = app.folds.line(run, Some(to)).await?;
            let mut changes = before.context.diff(&after.context);
            if query.resolve {
                for change in &mut changes {
                    for value in [&mut change.before, &mut change.after].into_iter().flatten() {
                        read_back(&change.key, value, &*app.actions.store)?;
                    }
                }
            }
            Ok(json(&changes))
        }
        _ => Err(Problem::invalid(
            "`from` and `to` belong together, without `at`",
            "name both for changes, or only `at`",
        )),
    }
}

/// Which changes of files are shown.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffQuery {
    /// Those of this stage instead of all.
    #[serde(default)]
    stage: Option<String>,
    /// Only the files, and how many lines of each differ.
    #[serde(default)]
    stat: bool,
}

pub(super) async fn diff(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    Params(query): Params<DiffQuery>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let style = if query.stat { PatchStyle::Stat } else { PatchStyle::Patch };
    let runs_dir = app.actions.store.runs_dir();
    let view = app.folds.view(run).await?;
    let made = view.patch(&runs_dir, query.stage.as_deref(), style).await?;
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, made.unwrap_or_default().patch).into_response())
}

pub(super) async fn gates(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    Ok(json(&app.actions.waiting_gates().await?))
}

pub(super) async fn workflows(State(app): State<Arc<App>>) -> Response {
    json(&app.actions.workflows())
}

pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
