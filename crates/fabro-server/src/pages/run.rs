//! The page of a run.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_events::{PauseReason, stage_name::StageName};
use fabro_inspect::{Activity, StageRow, stage_of_row};
use fabro_page::{Links, Texts, graph, marks, overview, timeline};
use fabro_run::now_ms;
use fabro_store::Runs as _;
use fabro_types::{NodeKind, RunStatus, took};

use super::stages::{Filter, Query, Stages};
use super::{Frame, RunHead, Section, Tab, for_caller, gates, render, stream, titled};
use crate::api::Params;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::{Fragments, View};
use crate::problem::Problem;

/// What a running stage does.
pub(super) struct Now {
    pub(super) stage: String,
    link: String,
    pub(super) what: String,
    pub(super) since_ms: i64,
    pub(super) took: String,
    pub(super) deadline: Option<Deadline>,
}

/// What happens to a running stage at a time.
pub(super) struct Deadline {
    /// The begin of a sentence: `times out in`.
    pub(super) what: &'static str,
    /// When, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// How long until then.
    pub(super) left: String,
}

/// What a run was for, mostly: the last answer of a model on the main line.
struct Answer {
    stage: String,
    link: String,
    html: String,
}

/// The longest answer on the page of a run, in characters.
const ANSWER: usize = 20_000;

#[derive(Template)]
#[template(path = "run.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    parent: Option<(String, String)>,
    overview: &'a str,
    gates: String,
    now: Vec<Now>,
    answer: Option<Answer>,
    can_steer: bool,
    /// Whether a resume is asked for another spending limit; `None` where it cannot be resumed.
    resume: Option<bool>,
    can_cancel: bool,
    /// Where it is forked and rewound, for who may.
    fork: Option<String>,
    graph: Option<&'a str>,
    /// Why there is none.
    no_graph: Option<&'a str>,
    timeline: &'a str,
    filters: Vec<Filter>,
    filter: &'a str,
    search: &'a str,
    stages: Stages,
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
    let run = &view.run;
    let has_children = app.actions.store.family(id).await?.len() > 1;
    let links = Links::Server(format!("/runs/{id}"));
    let shared = fragments(&view, &links);
    let parent = view.created.parent.as_ref();
    let is_admin = role >= Role::Admin;
    let can_resume = matches!(run.status, RunStatus::Paused | RunStatus::Interrupted)
        && parent.is_none()
        && is_admin;
    let frame = Frame::new(&titled(&view, &run.workflow), role, Section::Runs);
    render(&Page {
        frame: Frame { stream: stream(&view, has_children), ..frame },
        head: RunHead::new(&view, Tab::Overview),
        parent: parent.map(|it| (format!("/runs/{}", it.run_id), it.name())),
        overview: &shared.overview,
        gates: gates::of_run(app, role, &view).await?,
        now: now(&view, &links),
        answer: answer(app, &view, &links).await?,
        can_steer: run.status == RunStatus::Running && role >= Role::Admin,
        resume: can_resume
            .then(|| run.pause.as_ref().is_some_and(|pause| pause.reason == PauseReason::Budget)),
        can_cancel: !run.status.is_final() && parent.is_none() && is_admin,
        fork: (parent.is_none() && is_admin).then(|| format!("/runs/{id}/fork")),
        graph: shared.graph.as_deref(),
        no_graph: view.no_workflow.as_deref(),
        timeline: &shared.timeline,
        filters: query.filters(id),
        filter: &query.filter,
        search: &query.search,
        stages: query.stages(run, &links)?,
    })
}

/// The last answer of a run that has succeeded; `None` for other runs, and when no model was asked.
async fn answer(app: &App, view: &View, links: &Links) -> Result<Option<Answer>, Problem> {
    let workflow = view.workflow.as_deref();
    let asks = |row: &&StageRow| {
        let node = workflow.and_then(|it| Some(it.node(it.find(&row.node)?)));
        row.branch.is_none()
            && node.is_some_and(|it| matches!(it.kind, NodeKind::Agent | NodeKind::Prompt))
    };
    let is_done = matches!(view.run.status, RunStatus::Succeeded | RunStatus::PartiallySucceeded);
    let last = view.run.stages.iter().rfind(asks).filter(|_| is_done);
    let Some(row) = last else { return Ok(None) };
    let events = app.folds.stage_events(view, row).await?;
    let events: Vec<_> = events.iter().collect();
    let (report, _) = stage_of_row(&events, row.clone(), [], &*app.actions.store)?;
    let stage = row.name();
    let value = report.response.as_ref().filter(|it| it.as_str() != Some(""));
    Ok(value.map(|value| Answer {
        link: links.stage(&stage),
        html: Texts::cut_at(ANSWER).answer(value),
        stage,
    }))
}

/// Parts of the page that all readers see alike.
pub(super) fn fragments<'v>(view: &'v View, links: &Links) -> &'v Fragments {
    view.fragments.get_or_init(|| make_fragments(view, links))
}

fn make_fragments(view: &View, links: &Links) -> Fragments {
    let stages = &view.run.stages;
    let workflow = view.workflow.as_deref();
    let marks = marks(stages, view.edges.iter().map(|(edge, count)| (edge, count)));
    Fragments {
        overview: overview(&view.run, links),
        graph: workflow.map(|it| graph(it, view.picture(), stages, &marks, links)),
        timeline: timeline(stages, workflow, links),
    }
}

/// What the running stages do, if a process drives them.
pub(super) fn now(view: &View, links: &Links) -> Vec<Now> {
    if view.run.status != RunStatus::Running {
        return Vec::new();
    }
    let now = now_ms();
    let shown = view.activities.iter().map(|(stage, activity)| {
        let activity = activity.at(now);
        Now {
            link: links.stage(stage),
            stage: stage.clone(),
            since_ms: activity.since_ms,
            took: took(u64::try_from(now - activity.since_ms).unwrap_or_default()),
            deadline: deadline(view, stage, &activity, now),
            what: activity.what,
        }
    });
    shown.collect()
}

/// When the stage is retried, or its attempt times out.
fn deadline(view: &View, stage: &str, activity: &Activity, now: i64) -> Option<Deadline> {
    let (what, at_ms) = if activity.next_attempt.is_some() {
        ("retries in", activity.attempt_ms)
    } else {
        let workflow = view.workflow.as_deref()?;
        let node = workflow.node(workflow.find(StageName::parse(stage).node)?);
        let timeout = node.attrs.duration("timeout").filter(|limit| !limit.is_zero())?;
        let timeout_ms = i64::try_from(timeout.as_millis()).ok()?;
        // The gate has a deadline of its own.
        let is_asked = node.kind == NodeKind::Human;
        ("times out in", activity.attempt_ms.checked_add(timeout_ms).filter(|_| !is_asked)?)
    };
    let left = took(u64::try_from(at_ms - now).unwrap_or_default() / 1_000 * 1_000);
    Some(Deadline { what, at_ms, left })
}
