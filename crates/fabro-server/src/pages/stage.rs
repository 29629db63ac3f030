//! The page of a stage.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_events::Event;
use fabro_graph::Node;
use fabro_inspect::{ArtifactRow, StageRow, find_stage, stage_of_row};
use fabro_page::{CONTEXT_READ, Links, StageExtras, Texts};
use fabro_types::{NodeKind, RunId, RunStatus};

use super::files::{changed, stage_artifacts};
use super::run::{Now, now};
use super::workflow::place;
use super::{Frame, RunHead, Section, Tab, for_caller, query, render, stream, titled};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::View;
use crate::problem::Problem;

/// How many lines of the output are shown while a stage writes.
const OUTPUT: usize = 200;

/// The longest text of a stage's page, in characters.
const TEXT: usize = 200_000;

#[derive(Template)]
#[template(path = "stage.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    name: &'a str,
    label: Option<&'a str>,
    previous: Option<(String, String)>,
    next: Option<(String, String)>,
    events: String,
    logs: String,
    context: Option<String>,
    /// What it changed in the context.
    change: Option<String>,
    fork: Option<String>,
    /// What it does at present.
    now: Option<Now>,
    /// Where the script finds what it writes, while it runs.
    output: Option<String>,
    /// The line of the workflow's source that defines its node: the address and the name of the place.
    source: Option<(String, String)>,
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
    let view = app.folds.view(id).await?;
    let rows = &view.run.stages;
    let row = find_stage(rows, stage)?;
    let events = app.folds.stage_events(&view, row).await?;
    let events: Vec<&Event> = events.iter().collect();
    let gates = view.run.gates.iter().cloned();
    let (mut report, explain) = stage_of_row(&events, row.clone(), gates, store)?;
    report.read_back_updates(CONTEXT_READ, store);
    // The list has less of it than its events say.
    let name = row.name();
    let links = Links::Server(format!("/runs/{id}"));
    let at = rows.iter().position(|it| it.first_seq == row.first_seq);
    let beside = |at: Option<usize>| {
        let name = rows.get(at?)?.name();
        Some((links.stage(&name), name))
    };
    let (patch, unreadable) = match changed(app, &view, Some(&name)).await {
        Ok(patch) => (patch, None),
        Err(error) => (None, Some(error)),
    };
    let files = stage_artifacts(app, &events);
    let files: Vec<&ArtifactRow> = files.iter().collect();
    let workflow = view.workflow.as_deref();
    let node = workflow.and_then(|it| Some(it.node(it.find(&row.node)?)));
    let extras = StageExtras {
        kind: node.map(|node| node.kind),
        // It is beside the name.
        label: None,
        explain: explain.as_ref(),
        patch: patch.as_deref(),
        artifacts: &files,
    };
    let has_ended = row.ended_at.is_some();
    let before = rows
        .iter()
        .filter(|it| it.branch == row.branch && it.last_seq < row.first_seq)
        .max_by_key(|it| it.last_seq);
    let of_run = |part: &str, pairs: &[(&str, &str)]| format!("/runs/{id}/{part}{}", query(pairs));
    let may_fork = has_ended && role >= Role::Admin && view.created.parent.is_none();
    let title = titled(&view, &format!("{name} · {}", view.run.workflow));
    render(&Page {
        frame: Frame {
            // A stage that has ended stays as it is, but for the one after it.
            stream: if has_ended { None } else { stream(&view, false) },
            ..Frame::new(&title, role, Section::Runs)
        },
        head: RunHead::new(&view, Tab::Other),
        name: &name,
        label: node.map(Node::label).filter(|label| *label != &*row.node),
        previous: beside(at.and_then(|at| at.checked_sub(1))),
        next: beside(at.map(|at| at + 1)),
        events: of_run("events", &[("stage", &name)]),
        logs: of_run("logs", &[("stage", &name)]),
        context: has_ended.then(|| of_run("context", &[("at", &name)])),
        change: before
            .filter(|_| has_ended)
            .map(|before| of_run("context", &[("from", &before.name()), ("to", &name)])),
        fork: may_fork.then(|| of_run("fork", &[("stage", &name)])),
        now: now(&view, &links).into_iter().find(|now| now.stage == name),
        output: is_writing(&view, row, node).then(|| {
            let tail = OUTPUT.to_string();
            let pairs = [("follow", "true"), ("tail", &*tail), ("stage", &name)];
            format!("/api/v1/runs/{id}/logs{}", query(&pairs))
        }),
        source: workflow.zip(node).map(|(workflow, node)| place(id, workflow, node)),
        unreadable,
        stage: fabro_page::stage(&report, extras, &mut Texts::cut_at(TEXT), &links),
        children: children(app, id, row, node.map(|node| node.kind)).await?,
    })
}

/// Whether the stage may write something now: it is a command, or asks a model, and has not ended.
fn is_writing(view: &View, row: &StageRow, node: Option<&Node>) -> bool {
    let writes =
        |node: &Node| matches!(node.kind, NodeKind::Command | NodeKind::Agent | NodeKind::Prompt);
    view.run.status == RunStatus::Running && row.ended_at.is_none() && node.is_some_and(writes)
}

/// The runs of the sub-workflows of a stage.
async fn children(
    app: &App,
    run: RunId,
    row: &StageRow,
    kind: Option<NodeKind>,
) -> Result<Vec<(RunId, String)>, Problem> {
    if kind.is_some_and(|kind| kind != NodeKind::ManagerLoop) {
        return Ok(Vec::new());
    }
    let children = fabro_inspect::sub_workflows(&*app.actions.store, run, row).await?;
    Ok(children.into_iter().map(|(child, created)| (child, created.workflow.clone())).collect())
}
