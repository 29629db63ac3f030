//! The source of a run's workflow beside its graph, with what the run did at each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_graph::{Node, Workflow};
use fabro_inspect::StageRow;
use fabro_page::{Links, stage_class, stage_sign};
use fabro_types::{LineIndex, RunId};

use super::run::fragments;
use super::{Frame, RunHead, Section, Tab, for_caller, render, stream};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// The most lines of the source.
const LINES: usize = 5_000;

/// The longest line, in characters.
const LINE: usize = 2_000;

/// The last stage of a node.
struct Mark {
    class: &'static str,
    sign: char,
    name: String,
    link: String,
}

struct Line {
    number: usize,
    id: String,
    text: String,
    marks: Vec<Mark>,
}

struct File<'a> {
    /// Empty for the workflow itself.
    path: &'a str,
    lines: Vec<Line>,
}

#[derive(Template)]
#[template(path = "workflow.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    files: Vec<File<'a>>,
    /// How many lines are not shown.
    left_out: usize,
    graph: Option<&'a str>,
    /// Why there is no source.
    unreadable: Option<&'a str>,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<Path<String>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        let Path(run) = run?;
        html(&app, role, &run).await
    })
    .await
}

async fn html(app: &App, role: Role, run: &str) -> Result<String, Problem> {
    let id = app.actions.find(run).await?;
    let view = app.folds.view(id).await?;
    let links = Links::Server(format!("/runs/{id}"));
    let workflow = view.workflow.as_deref();
    let (files, left_out) =
        workflow.map(|it| source(it, &view.run.stages, &links)).unwrap_or_default();
    let frame = Frame::new(&format!("Workflow · {}", view.run.workflow), role, Section::Runs);
    render(&Page {
        frame: Frame { stream: stream(&view, false), pace: 1_000, ..frame },
        head: RunHead::new(&view, Tab::Workflow),
        files,
        left_out,
        graph: fragments(&view, &links).graph.as_deref(),
        unreadable: view.no_workflow.as_deref(),
    })
}

/// The texts of a workflow with the last stages of their nodes, and how many lines are left out.
fn source<'w>(workflow: &'w Workflow, rows: &[StageRow], links: &Links) -> (Vec<File<'w>>, usize) {
    let mut last: BTreeMap<&str, &StageRow> = BTreeMap::new();
    last.extend(rows.iter().map(|row| (&*row.node, row)));
    let texts = workflow.texts();
    let indexes: Vec<LineIndex<'_>> = texts.iter().map(|(_, text)| LineIndex::new(text)).collect();
    let mut marks: BTreeMap<(usize, usize), Vec<Mark>> = BTreeMap::new();
    for node in workflow.nodes() {
        let Some(row) = last.get(&*node.id) else { continue };
        let (file, offset) = workflow.place_of(node);
        let mark = Mark {
            class: stage_class(row),
            sign: stage_sign(row),
            name: row.name(),
            link: links.stage(&row.name()),
        };
        marks.entry((file, indexes[file].position(offset).line)).or_default().push(mark);
    }
    let mut left = LINES;
    let mut left_out = 0;
    let mut files = Vec::new();
    for (file, (path, text)) in texts.into_iter().enumerate() {
        let mut shown = Vec::new();
        for (at, text) in text.lines().enumerate() {
            if left == 0 {
                left_out += 1;
                continue;
            }
            left -= 1;
            shown.push(Line {
                number: at + 1,
                id: line_id(file, at + 1),
                text: text.chars().take(LINE).collect(),
                marks: marks.remove(&(file, at + 1)).unwrap_or_default(),
            });
        }
        files.push(File { path, lines: shown });
    }
    (files, left_out)
}

/// What a line is called in addresses: `L12`, or `F1L12` in the first imported file.
fn line_id(file: usize, line: usize) -> String {
    if file == 0 { format!("L{line}") } else { format!("F{file}L{line}") }
}

/// Where a node is defined: the address, and what it is called.
pub(super) fn place(run: RunId, workflow: &Workflow, node: &Node) -> (String, String) {
    let (file, offset) = workflow.place_of(node);
    let (path, text) = workflow.texts()[file];
    let line = LineIndex::new(text).position(offset).line;
    let name = match path {
        "" => format!("Line {line} of the workflow"),
        path => format!("Line {line} of {path}"),
    };
    (format!("/runs/{run}/workflow#{}", line_id(file, line)), name)
}
