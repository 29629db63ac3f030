//! The page of a stage.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_engine::read_all;
use fabro_inspect::{ArtifactRow, StageRow, Stages, inspect, list_artifacts};
use fabro_page::{Links, StageExtras, Texts};
use fabro_run::is_driven;
use fabro_store::{RunLog as _, Runs as _, SqliteStore};
use fabro_types::RunId;

use super::run::{changed, stream_of_run};
use super::{Stream, created, for_caller, render, workflow};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// The longest text of a stage's page, in characters.
const TEXT: usize = 200_000;

#[derive(Template)]
#[template(path = "stage.html")]
struct Page<'a> {
    title: String,
    role: &'static str,
    stream: Stream,
    id: String,
    workflow: &'a str,
    name: &'a str,
    previous: Option<(String, String)>,
    next: Option<(String, String)>,
    /// Why the changes cannot be read.
    unreadable: Option<String>,
    stage: String,
    children: Vec<(RunId, String)>,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    address: Result<Path<(String, String)>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        let Path((run, stage)) = address?;
        html(&app, role, &run, &stage).await
    })
    .await
}

async fn html(app: &App, role: Role, run: &str, stage: &str) -> Result<String, Problem> {
    let store = &*app.actions.store;
    let id = app.actions.find(run).await?;
    let events = read_all(store, id).await?;
    let driven = is_driven(store, id).await?;
    let run = inspect(&events, driven)?;
    let report = fabro_inspect::stage(&events, stage, driven, store)?;
    let name = report.row.name();
    let links = Links::Server(format!("/runs/{id}"));
    let at = run.stages.iter().position(|row| row.name() == name);
    let beside = |at: Option<usize>| {
        let name = run.stages.get(at?)?.name();
        Some((links.stage(&name), name))
    };
    let explain = Stages::new(&events, driven)?.explain(&report.row);
    let (patch, unreadable) = match changed(app, id, Some(&name)).await {
        Ok(patch) => (patch, None),
        Err(error) => (None, Some(error)),
    };
    let files = list_artifacts(store, &store.runs_dir(), id, Some(&name)).await?;
    let files: Vec<&ArtifactRow> = files.iter().filter(|file| file.above.is_none()).collect();
    let workflow = workflow(store, &events);
    let node = workflow.as_ref().and_then(|it| Some(it.node(it.find(&report.row.node)?)));
    let extras = StageExtras {
        kind: node.map(|node| node.kind),
        label: node.map(fabro_graph::Node::label).filter(|label| *label != &*report.row.node),
        explain: explain.as_ref(),
        patch: patch.as_deref(),
        artifacts: &files,
    };
    render(&Page {
        title: format!("{name} · {}", run.workflow),
        role: role.as_str(),
        stream: stream_of_run(&run, &events),
        id: id.to_string(),
        workflow: &run.workflow,
        name: &name,
        previous: beside(at.and_then(|at| at.checked_sub(1))),
        next: beside(at.map(|at| at + 1)),
        unreadable,
        stage: fabro_page::stage(&report, extras, &mut Texts::cut_at(TEXT), &links),
        children: children(store, id, &report.row).await?,
    })
}

/// The runs of the sub-workflows of a stage.
async fn children(
    store: &SqliteStore,
    run: RunId,
    row: &StageRow,
) -> Result<Vec<(RunId, String)>, Problem> {
    let mut found = Vec::new();
    for child in store.list().await?.into_iter().filter(|it| it.parent == Some(run)) {
        let first = store.read(child.id, 0, 1).await?;
        let parent = created(&first).and_then(|it| it.parent.as_ref());
        if parent.is_some_and(|it| it.is(row.branch.as_deref(), &row.node, row.visit)) {
            found.push((child.id, child.workflow));
        }
    }
    Ok(found)
}
