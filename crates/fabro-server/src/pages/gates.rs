//! Gates that wait for an answer, with the form that answers them: of a run, and of all runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fabro_events::{GateOption, timestamp};
use fabro_inspect::{ArtifactRow, StageReport, StageRow, stage_of_row};
use fabro_page::{Links, Texts, artifacts, patch};
use fabro_store::Runs as _;
use fabro_types::{RunId, RunStatus};

use super::files::{changed, stage_artifacts};
use super::{Frame, Section, for_caller, render};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::{OpenGate, View};
use crate::problem::Problem;

/// The most gates in the inbox at a time: each is shown with what is before it.
const MAX_GATES: usize = 20;

/// The longest text of the stage before a gate, in characters.
const TEXT: usize = 4_000;

/// A gate of a run.
pub(super) struct GateOf {
    pub(super) run: RunId,
    pub(super) workflow: String,
    pub(super) open: OpenGate,
}

struct Shown<'a> {
    /// The page of the run and its workflow, where the page is not that of the run.
    link: Option<(String, &'a str)>,
    name: &'a str,
    /// Where an answer is sent; `None` for who may not answer.
    action: Option<String>,
    question: &'a str,
    failures: &'a [String],
    options: &'a [GateOption],
    freeform: bool,
    text_option: Option<&'a GateOption>,
    deadline: Option<String>,
    answered: Option<(&'a str, &'a str)>,
    /// The stage before it.
    before: Option<String>,
    /// Why the stage before it cannot be shown.
    unreadable: Option<String>,
}

#[derive(Template)]
#[template(path = "gates.html")]
struct Gates<'a> {
    gates: Vec<Shown<'a>>,
}

#[derive(Template)]
#[template(path = "before.html")]
struct Before {
    link: String,
    stage: String,
    title: &'static str,
    response: String,
    patch: String,
    artifacts: String,
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct Page {
    frame: Frame,
    count: usize,
    answered: usize,
    left_out: usize,
    gates: String,
}

impl<'a> Shown<'a> {
    fn new(of: &'a GateOf, role: Role) -> Self {
        let OpenGate { name, gate, answered } = &of.open;
        let action = format!("/api/v1/runs/{}/answer", of.run);
        Self {
            link: None,
            name,
            action: (role >= Role::Answer).then_some(action),
            question: &gate.question,
            failures: &gate.failures,
            options: &gate.options,
            freeform: gate.freeform,
            text_option: gate.text_option.as_ref(),
            deadline: gate.deadline_ms.map(timestamp),
            answered: answered.as_ref().map(|it| (&*it.choice, &*it.source)),
            before: None,
            unreadable: None,
        }
    }
}

/// The gates of a run, with their forms.
pub(super) async fn of_run(app: &App, role: Role, view: &View) -> Result<String, Problem> {
    if view.run.status.is_final() {
        return Ok(String::new());
    }
    let gates = of_one(app, view.run.id, &view.run.workflow).await?;
    let gates = gates.iter().map(|it| Shown::new(it, role)).collect();
    render(&Gates { gates })
}

async fn of_one(app: &App, run: RunId, workflow: &str) -> Result<Vec<GateOf>, Problem> {
    let gates = app.folds.gates(run).await?;
    let of = |open| GateOf { run, workflow: workflow.to_owned(), open };
    Ok(gates.into_iter().map(of).collect())
}

/// The gates of all runs, newest run first.
pub(super) async fn all(app: &App) -> Result<Vec<GateOf>, Problem> {
    let mut gates = Vec::new();
    let mut runs = BTreeSet::new();
    for run in app.actions.store.list().await? {
        let is_open =
            matches!(run.status, RunStatus::Running | RunStatus::Paused | RunStatus::Interrupted);
        // A run that waits may have sub-workflows that have ended.
        if is_open || run.parent.is_some() {
            runs.insert(run.id);
        }
        if is_open && run.parent.is_none() {
            // A run whose events cannot be read has no gate that could be answered.
            gates.extend(of_one(app, run.id, &run.workflow).await.unwrap_or_default());
        }
    }
    app.folds.keep_gates_of(|run| runs.contains(&run));
    Ok(gates)
}

/// The first of these gates as links to their runs.
pub(super) fn as_links(gates: &[GateOf]) -> Result<String, Problem> {
    let shown = gates.iter().map(|it| Shown {
        link: Some((format!("/runs/{}", it.run), &it.workflow)),
        action: None,
        ..Shown::new(it, Role::Read)
    });
    render(&Gates { gates: shown.collect() })
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
) -> Response {
    for_caller(caller, async |role| html(&app, role).await).await
}

async fn html(app: &App, role: Role) -> Result<String, Problem> {
    let all = all(app).await?;
    let (answered, open): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| it.open.answered.is_some());
    let mut shown = Vec::new();
    for gate in open.iter().chain(&answered).take(MAX_GATES) {
        // What cannot be read of one run, or is removed meanwhile, is no reason to hide the gates of others.
        let (before, unreadable) = match gate.open.answered {
            None => match before(app, gate).await {
                Ok(before) => (before, None),
                Err(problem) => (None, Some(problem.detail)),
            },
            Some(_) => (None, None),
        };
        shown.push(Shown {
            link: Some((format!("/runs/{}", gate.run), &gate.workflow)),
            before,
            unreadable,
            ..Shown::new(gate, role)
        });
    }
    render(&Page {
        frame: Frame { pace: 1_000, ..Frame::new("Inbox", role, Section::Inbox).of_store() },
        count: open.len(),
        answered: answered.len(),
        left_out: (open.len() + answered.len()).saturating_sub(MAX_GATES),
        gates: render(&Gates { gates: shown })?,
    })
}

/// The stage that led to a gate: what it said, changed and left.
async fn before(app: &App, of: &GateOf) -> Result<Option<String>, Problem> {
    let gate = &of.open.gate;
    let view = app.folds.view(gate.run).await?;
    let own =
        view.run.stages.iter().rfind(|row| {
            (&row.node, row.visit, &row.branch) == (&gate.node, gate.visit, &gate.branch)
        });
    let Some(own) = own else { return Ok(None) };
    let leads_here = |row: &&StageRow| {
        row.branch == own.branch
            && row.edge.as_ref() == Some(&own.node)
            && row.first_seq < own.first_seq
    };
    let Some(row) = view.run.stages.iter().filter(leads_here).max_by_key(|row| row.last_seq) else {
        return Ok(None);
    };
    let events = app.folds.stage_events(&view, row).await?;
    let events: Vec<_> = events.iter().collect();
    let (report, _) = stage_of_row(&events, row.clone(), [], &*app.actions.store)?;
    let links = Links::Server(format!("/runs/{}", gate.run));
    let files = stage_artifacts(app, &view, &events);
    let files: Vec<&ArtifactRow> = files.iter().collect();
    let patch = match changed(&view, Some(&row.name())).await {
        Ok(bytes) => bytes.map(|bytes| patch(&bytes)).unwrap_or_default(),
        Err(_) => String::new(),
    };
    let html = render(&Before {
        link: links.stage(&row.name()),
        stage: row.name(),
        title: if report.is_command() { "Output" } else { "Response" },
        response: response(&report),
        patch,
        artifacts: if files.is_empty() { String::new() } else { artifacts(&files, false, &links) },
    })?;
    Ok(Some(html))
}

fn response(report: &StageReport) -> String {
    let value = report.response.as_ref().filter(|it| it.as_str() != Some(""));
    value.map(|value| Texts::cut_at(TEXT).html(value)).unwrap_or_default()
}
