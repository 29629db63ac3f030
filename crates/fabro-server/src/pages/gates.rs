//! Gates that wait for an answer, with the form that answers them: of a run, and of all runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fabro_events::{GateOption, ShownText, timestamp};
use fabro_inspect::{ArtifactRow, StageReport, StageRow, stage_of_row};
use fabro_page::{Links, Texts, artifacts, patch};
use fabro_run::Gate;
use fabro_sandbox::git::incomplete_file_trees;
use fabro_store::RunSummary;
use fabro_types::{BranchPath, NodeKind, RunId, one_line};

use super::files::{Note, changed, stage_artifacts};
use super::{Frame, Section, for_caller, render};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::{OpenGate, View};
use crate::inbox::{UnreadableRun, open_gates};
use crate::problem::Problem;

/// The most gates in the inbox at a time: each is shown with what is before it.
const MAX_GATES: usize = 20;

/// The longest text of the stage before a gate, in characters.
const TEXT: usize = 4_000;

/// The longest goal and the longest cause of a failure, in characters.
const LINE: usize = 160;

/// The most stages before a gate whose results are listed.
const RESULTS: usize = 12;

/// A gate of a run.
pub(super) struct GateOf {
    pub(super) of: Arc<OfRun>,
    pub(super) open: OpenGate,
}

/// The run of a gate: what tells it from other runs of its workflow.
pub(super) struct OfRun {
    pub(super) id: RunId,
    workflow: String,
    goal: String,
    started_at: String,
}

impl OfRun {
    fn new(run: &RunSummary) -> Self {
        Self {
            id: run.id,
            workflow: run.workflow.clone(),
            goal: one_line(&run.goal, LINE),
            started_at: timestamp(run.started_at_ms),
        }
    }
}

/// How a stage before a gate ended.
struct StageResult {
    class: &'static str,
    sign: char,
    name: String,
    link: String,
    status: &'static str,
    failure: String,
}

/// A text that a gate shows.
struct Excerpt<'a> {
    name: &'a str,
    /// The page of the stage that made it.
    link: Option<String>,
    text: &'a str,
    omitted: usize,
}

impl<'a> Excerpt<'a> {
    fn new(shown: &'a ShownText, gate: &Gate) -> Self {
        let links = Links::Server(format!("/runs/{}", gate.run));
        let name = shown.stage.as_deref().or(shown.key.as_deref());
        Self {
            name: name.unwrap_or("Details"),
            link: shown.stage.as_ref().map(|stage| links.stage(stage)),
            text: &shown.text,
            omitted: shown.omitted,
        }
    }
}

struct Shown<'a> {
    /// The page of the run and the run, where the page is not that of the run.
    link: Option<(String, &'a OfRun)>,
    name: &'a str,
    /// Where an answer is sent; `None` for who may not answer.
    action: Option<String>,
    /// The branch and the element that it asks about.
    place: String,
    question: &'a str,
    show: Vec<Excerpt<'a>>,
    options: &'a [GateOption],
    /// The options as text, for who cannot send a form.
    listed: Vec<&'a GateOption>,
    run: RunId,
    freeform: bool,
    text_option: Option<&'a GateOption>,
    deadline: Option<String>,
    answered: Option<(&'a str, String)>,
    /// How stages before it ended.
    results: String,
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
#[template(path = "results.html")]
struct Results {
    results: Vec<StageResult>,
    /// How many are not listed.
    more: usize,
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
    /// The runs whose gates cannot be read.
    unreadable: String,
}

impl<'a> Shown<'a> {
    fn new(of: &'a GateOf, role: Role) -> Self {
        let OpenGate { name, gate, answered } = &of.open;
        let action = format!("/api/v1/runs/{}/answer", of.of.id);
        Self {
            link: None,
            name,
            action: (role >= Role::Answer).then_some(action),
            place: place(gate),
            question: &gate.question,
            show: gate.show.iter().map(|it| Excerpt::new(it, gate)).collect(),
            options: &gate.options,
            listed: gate.options.iter().chain(&gate.text_option).collect(),
            run: of.of.id,
            freeform: gate.freeform,
            text_option: gate.text_option.as_ref(),
            deadline: gate.deadline_ms.map(timestamp),
            answered: answered.as_ref().map(|it| {
                let by = it.by.as_ref().map_or_else(|| it.source.clone(), ToString::to_string);
                (&*it.choice, by)
            }),
            results: String::new(),
            before: None,
            unreadable: None,
        }
    }
}

/// The enclosing stages of a gate, its branch and its element.
fn place(gate: &Gate) -> String {
    let of_gate = gate.within.iter().map(String::as_str).chain(gate.branch.as_deref());
    of_gate.chain(gate.item.as_deref()).collect::<Vec<_>>().join(" · ")
}

/// The gates of a run, with their forms.
pub(super) async fn of_run(app: &App, role: Role, view: &View) -> Result<String, Problem> {
    if view.run.status.is_final() {
        return Ok(String::new());
    }
    let of = Arc::new(OfRun {
        id: view.run.id,
        workflow: view.run.workflow.clone(),
        goal: one_line(&view.run.goal, LINE),
        started_at: view.run.started_at.clone(),
    });
    let gates = of_one(app, of).await?;
    let mut shown = Vec::new();
    for gate in &gates {
        // A sub-workflow has a page of its own.
        let is_own = gate.open.gate.run == view.run.id;
        let results = if is_own { results(view, &gate.open.gate)? } else { String::new() };
        shown.push(Shown { results, ..Shown::new(gate, role) });
    }
    render(&Gates { gates: shown })
}

async fn of_one(app: &App, of: Arc<OfRun>) -> Result<Vec<GateOf>, Problem> {
    let gates = app.folds.gates(of.id).await?;
    Ok(gates.into_iter().map(|open| GateOf { of: Arc::clone(&of), open }).collect())
}

/// The gates of all runs, newest run first, and the runs that cannot be read.
pub(super) async fn all(app: &App) -> Result<(Vec<GateOf>, Vec<UnreadableRun>), Problem> {
    let all = open_gates(&app.actions.store, &app.folds).await?;
    let mut gates = Vec::new();
    for (run, open) in all.runs {
        let of = Arc::new(OfRun::new(&run));
        gates.extend(open.into_iter().map(|open| GateOf { of: Arc::clone(&of), open }));
    }
    Ok((gates, all.unreadable))
}

#[derive(Template)]
#[template(path = "unreadable.html")]
struct Unreadable<'a> {
    runs: &'a [UnreadableRun],
}

/// Which runs cannot be read, and why.
pub(super) fn unreadable(runs: &[UnreadableRun]) -> Result<String, Problem> {
    render(&Unreadable { runs })
}

/// The first of these gates as links to their runs.
pub(super) fn as_links(gates: &[GateOf]) -> Result<String, Problem> {
    let shown = gates.iter().map(|it| Shown {
        link: Some((format!("/runs/{}", it.of.id), &*it.of)),
        action: None,
        listed: Vec::new(),
        show: Vec::new(),
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
    let (all, runs) = all(app).await?;
    let (answered, open): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| it.open.answered.is_some());
    let mut shown = Vec::new();
    for gate in open.iter().chain(&answered).take(MAX_GATES) {
        // What cannot be read of one run, or is removed meanwhile, is no reason to hide the gates of others.
        let read = match gate.open.answered {
            None => before(app, gate).await,
            Some(_) => Ok((String::new(), None)),
        };
        let (results, before, unreadable) = match read {
            Ok((results, before)) => (results, before, None),
            Err(problem) => (String::new(), None, Some(problem.detail)),
        };
        shown.push(Shown {
            link: Some((format!("/runs/{}", gate.of.id), &*gate.of)),
            results,
            before,
            unreadable,
            ..Shown::new(gate, role)
        });
    }
    let title = if open.is_empty() { "Inbox".into() } else { format!("({}) Inbox", open.len()) };
    render(&Page {
        frame: Frame { pace: 1_000, ..Frame::new(&title, role, Section::Inbox).of_store() },
        count: open.len(),
        answered: answered.len(),
        left_out: (open.len() + answered.len()).saturating_sub(MAX_GATES),
        gates: render(&Gates { gates: shown })?,
        unreadable: unreadable(&runs)?,
    })
}

/// What is before a gate: the results that a decision depends on, and what the last stage said, changed and left.
async fn before(app: &App, of: &GateOf) -> Result<(String, Option<String>), Problem> {
    let gate = &of.open.gate;
    let view = app.folds.view(gate.run).await?;
    let results = results(&view, gate)?;
    let Some(own) = row_of(&view, gate) else { return Ok((results, None)) };
    let leads_here = |row: &&StageRow| {
        row.branch == own.branch
            && row.edge.as_ref() == Some(&own.node)
            && row.first_seq < own.first_seq
    };
    let led = view.run.stages.iter().filter(leads_here).max_by_key(|row| row.last_seq);
    let Some(row) = led else { return Ok((results, None)) };
    let events = app.folds.stage_events(&view, row).await?;
    let events: Vec<_> = events.iter().collect();
    let (report, _) = stage_of_row(&events, row.clone(), [], &*app.actions.store)?;
    let links = Links::Server(format!("/runs/{}", gate.run));
    let files = stage_artifacts(app, &events);
    let files: Vec<&ArtifactRow> = files.iter().collect();
    let mut patch = match changed(app, &view, Some(&row.name())).await {
        Ok(bytes) => bytes.map(|bytes| patch(&bytes)).unwrap_or_default(),
        // A person decides on what was changed.
        Err(error) => render(&Note { text: &error })?,
    };
    let run_dir = app.actions.store.runs_dir().join(gate.run.to_string());
    if let Some(reason) = incomplete_file_trees(&run_dir) {
        let text = format!("The changes of some stages were not recorded: {reason}");
        patch.insert_str(0, &render(&Note { text: &text })?);
    }
    // Logs of older versions lack the texts that the gate shows.
    let response = if gate.show.is_empty() { response(&report, TEXT) } else { String::new() };
    if response.is_empty() && patch.is_empty() && files.is_empty() {
        return Ok((results, None));
    }
    let html = render(&Before {
        link: links.stage(&row.name()),
        stage: row.name(),
        title: if report.is_command() { "Output" } else { "Response" },
        response,
        patch,
        artifacts: if files.is_empty() { String::new() } else { artifacts(&files, false, &links) },
    })?;
    Ok((results, Some(html)))
}

fn row_of<'v>(view: &'v View, gate: &Gate) -> Option<&'v StageRow> {
    view.run
        .stages
        .iter()
        .rfind(|row| (&row.node, row.visit, &row.branch) == (&gate.node, gate.visit, &gate.branch))
}

/// How the stages before a gate ended, as a list.
fn results(view: &View, gate: &Gate) -> Result<String, Problem> {
    let rows = row_of(view, gate).map(|own| rows_before(view, own)).unwrap_or_default();
    if rows.is_empty() {
        return Ok(String::new());
    }
    let links = Links::Server(format!("/runs/{}", gate.run));
    let result = |row: &&StageRow| StageResult {
        class: fabro_page::stage_class(row),
        sign: fabro_page::stage_sign(row),
        name: row.name(),
        link: links.stage(&row.name()),
        status: row.status,
        failure: row.failure.as_ref().map(|it| one_line(&it.message, LINE)).unwrap_or_default(),
    };
    render(&Results {
        results: rows.iter().take(RESULTS).map(result).collect(),
        more: rows.len().saturating_sub(RESULTS),
    })
}

/// The last stages of the branches that joined before a gate, and the stages that failed and did not succeed
/// later, since the gate before it; those that failed first.
fn rows_before<'v>(view: &'v View, own: &StageRow) -> Vec<&'v StageRow> {
    let kind = |row: &StageRow| {
        let workflow = view.workflow.as_deref()?;
        Some(workflow.node(workflow.find(&row.node)?).kind)
    };
    let earlier = |row: &&StageRow| row.last_seq < own.first_seq && row.ended_at.is_some();
    let on_line = |row: &&StageRow| earlier(row) && row.branch == own.branch;
    let last_gate =
        view.run.stages.iter().filter(on_line).rfind(|row| kind(row) == Some(NodeKind::Human));
    let since = last_gate.map_or(0, |row| row.last_seq);
    let mut of_branch: BTreeMap<&str, &StageRow> = BTreeMap::new();
    let mut of_node: BTreeMap<&str, &StageRow> = BTreeMap::new();
    for row in view.run.stages.iter().filter(earlier).filter(|row| row.first_seq > since) {
        let branch = row.branch.as_deref().unwrap_or_default();
        if row.branch == own.branch {
            of_node.insert(&row.node, row);
        } else if BranchPath::new(branch).parent().as_str()
            == own.branch.as_deref().unwrap_or_default()
        {
            of_branch.insert(branch, row);
        }
    }
    let failed = |row: &&StageRow| row.failure.is_some();
    let failures = of_node.into_values().filter(failed);
    let mut results: Vec<&StageRow> = failures.chain(of_branch.into_values()).collect();
    results.sort_by_key(|row| (row.failure.is_none(), row.first_seq));
    results
}

/// What a stage answered or printed, up to so many characters.
fn response(report: &StageReport, max: usize) -> String {
    let value = report.response.as_ref().filter(|it| it.as_str() != Some(""));
    value.map(|value| Texts::cut_at(max).html(value)).unwrap_or_default()
}
