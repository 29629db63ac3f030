//! The page of a run.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_engine::read_all;
use fabro_events::Event;
use fabro_inspect::{
    ArtifactRow, CostSum, Inspect, PatchError, inspect, list_artifacts, run_patch,
};
use fabro_page::{
    Links, StageFilter, artifacts, cost, graph, marks, overview, patch, stage_rows, timeline,
};
use fabro_run::{gate_names, is_driven, now_ms, open_gates_of_family};
use fabro_sandbox::git::PatchStyle;
use fabro_store::Runs as _;
use fabro_types::{RunId, RunStatus};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::gates::{OpenGate, gates};
use super::{Stream, created, for_caller, render, workflow};
use crate::actions::ServerConfig;
use crate::api::Params;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// The most stages on a page.
const ROWS: usize = 300;

/// Which stages are shown.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    search: String,
    #[serde(default)]
    from: usize,
}

struct Filter {
    name: &'static str,
    link: String,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "run.html")]
struct Page<'a> {
    title: &'a str,
    role: &'static str,
    stream: Stream,
    id: String,
    parent: Option<(String, String)>,
    overview: String,
    gates: String,
    can_steer: bool,
    can_resume: bool,
    can_cancel: bool,
    graph: Option<String>,
    timeline: String,
    filters: Vec<Filter>,
    filter: &'a str,
    search: &'a str,
    count: String,
    rows: String,
    earlier: Option<String>,
    later: Option<String>,
    changes: String,
    artifacts: String,
    cost: String,
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
    let store = &*app.actions.store;
    let id = app.actions.find(run).await?;
    let events = read_all(store, id).await?;
    let mut run = inspect(&events, is_driven(store, id).await?)?;
    if run.status == RunStatus::Running {
        run.until(now_ms());
    }
    let family = store.family(id).await?;
    let links = Links::Server(format!("/runs/{id}"));
    let workflow = workflow(store, &events);
    let marks = marks(&run.stages, &events);
    let files = list_artifacts(store, &store.runs_dir(), id, None).await?;
    let files: Vec<&ArtifactRow> = files.iter().collect();
    let stages = stages(&run, query, &links)?;
    let parent = created(&events).and_then(|created| created.parent.as_ref());
    render(&Page {
        title: &run.workflow,
        role: role.as_str(),
        stream: stream(&run, &events, family.len()),
        id: id.to_string(),
        parent: parent.map(|it| (format!("/runs/{}", it.run_id), it.name())),
        overview: overview(&run, &links),
        gates: open_gates(app, role, &run).await?,
        can_steer: run.status == RunStatus::Running && role >= Role::Answer,
        can_resume: matches!(run.status, RunStatus::Paused | RunStatus::Interrupted)
            && parent.is_none()
            && role >= Role::Admin,
        can_cancel: !run.status.is_final() && parent.is_none() && role >= Role::Admin,
        graph: workflow.as_ref().map(|it| graph(it, &run.stages, &marks, &links)),
        timeline: timeline(&run.stages, workflow.as_ref(), &links),
        filters: filters(id, query),
        filter: &query.filter,
        search: &query.search,
        count: stages.count,
        rows: stages.rows,
        earlier: stages.earlier,
        later: stages.later,
        changes: changes(app, id).await?,
        artifacts: if files.is_empty() { String::new() } else { artifacts(&files, true, &links) },
        cost: spent(app, &run, &family, &links).await?,
    })
}

/// Where a page hears of changes: of the run, or of the store when stages have runs of their own.
fn stream(run: &Inspect, events: &[Event], family: usize) -> Stream {
    if run.status.is_final() {
        return None;
    }
    if family > 1 {
        return Some(("/api/v1/changes".to_owned(), String::new()));
    }
    let last = events.last().map_or(0, |event| event.seq);
    Some((format!("/api/v1/runs/{}/events", run.id), last.to_string()))
}

/// The same for a page of a stage.
pub(super) fn stream_of_run(run: &Inspect, events: &[Event]) -> Stream {
    stream(run, events, 1)
}

async fn open_gates(app: &App, role: Role, run: &Inspect) -> Result<String, Problem> {
    if run.status.is_final() {
        return Ok(String::new());
    }
    let open = open_gates_of_family(&*app.actions.store, run.id).await?;
    let names = gate_names(&open);
    let action = format!("/api/v1/runs/{}/answer", run.id);
    let action = (role >= Role::Answer).then_some(&*action);
    let list: Vec<OpenGate<'_>> = names
        .iter()
        .zip(&open)
        .map(|(name, gate)| OpenGate { action, ..OpenGate::new(name, gate) })
        .collect();
    gates(&list)
}

struct Stages {
    count: String,
    rows: String,
    earlier: Option<String>,
    later: Option<String>,
}

fn stages(run: &Inspect, query: &Query, links: &Links) -> Result<Stages, Problem> {
    let filter = match &*query.filter {
        "" => StageFilter::All,
        name => StageFilter::parse(name).ok_or_else(|| {
            let fix = "use `all`, `failed`, `slow` or `costly`";
            Problem::invalid("`filter` is none of a run's page", fix)
        })?,
    };
    let chosen = filter.select(&run.stages, &query.search);
    let from = query.from.min(chosen.len());
    let end = chosen.len().min(from.saturating_add(ROWS));
    let rows = chosen[from..end].iter().map(|at| &run.stages[*at]);
    let count = if end - from == chosen.len() {
        format!("{} of {}", chosen.len(), run.stages.len())
    } else {
        format!("{} to {end} of {}", from + 1, chosen.len())
    };
    let place = |from| address(run.id, &query.filter, &query.search, from);
    Ok(Stages {
        count,
        rows: stage_rows(rows, links),
        earlier: (from > 0).then(|| place(from.saturating_sub(ROWS))),
        later: (end < chosen.len()).then(|| place(end)),
    })
}

fn address(run: RunId, filter: &str, search: &str, from: usize) -> String {
    let [filter, search] = [filter, search].map(|it| utf8_percent_encode(it, NON_ALPHANUMERIC));
    format!("/runs/{run}?filter={filter}&search={search}&from={from}#stages")
}

fn filters(run: RunId, query: &Query) -> Vec<Filter> {
    let named = StageFilter::ALL.into_iter().map(|(filter, word)| {
        let name = match filter {
            StageFilter::All => "All",
            StageFilter::Failed => "Failed",
            StageFilter::Slow => "Slowest",
            StageFilter::Costly => "Costliest",
        };
        let is_chosen =
            query.filter == word || query.filter.is_empty() && filter == StageFilter::All;
        Filter { name, link: address(run, word, &query.search, 0), is_chosen }
    });
    named.collect()
}

/// What a run changed in its git worktree, or a note that says why that cannot be read.
async fn changes(app: &App, run: RunId) -> Result<String, Problem> {
    match changed(app, run, None).await {
        Ok(bytes) => Ok(bytes.map(|bytes| patch(&bytes)).unwrap_or_default()),
        Err(text) => render(&Note { text: &text }),
    }
}

/// What a run or a stage changed in the git worktree of the run, or why it cannot be read.
pub(super) async fn changed(
    app: &App,
    run: RunId,
    stage: Option<&str>,
) -> Result<Option<Vec<u8>>, String> {
    match run_patch(&*app.actions.store, run, stage, PatchStyle::Patch).await {
        Ok(patch) => Ok(patch),
        Err(PatchError::NoWorktree { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Template)]
#[template(source = "<p class=\"box part\">{{ fabro_types::clean(text) }}</p>", ext = "html")]
struct Note<'a> {
    text: &'a str,
}

/// What the run and its sub-workflows spent on models; empty for nothing.
async fn spent(
    app: &App,
    run: &Inspect,
    family: &[RunId],
    links: &Links,
) -> Result<String, Problem> {
    let mut logs = Vec::new();
    for member in family {
        logs.push(read_all(&*app.actions.store, *member).await?);
    }
    let ServerConfig { project, user_file, home, .. } = &app.actions.config;
    let settings = fabro_config::settings(project, user_file.as_deref(), home.as_deref());
    let settings = match settings {
        Ok((settings, _)) => settings,
        Err(error) => return render(&Note { text: &format!("No prices: {error}") }),
    };
    let catalog = fabro_run::catalog(&settings.models);
    let is_free = |model: &str| {
        let known = catalog.same_model(model);
        known.is_some_and(|it| it.cost.input_cost == Some(0.0) && it.cost.output_cost == Some(0.0))
    };
    let mut sum = CostSum::default();
    sum.add(run.id, &logs, &is_free);
    let report = sum.finish();
    let is_any = report.total.turns > 0 || !report.models.is_empty();
    Ok(if is_any { cost(&report, &run.id.to_string(), links) } else { String::new() })
}
