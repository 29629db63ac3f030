//! Parts of a run that are read when they are looked at: what stages changed, the files that
//! they left, what it cost.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{self, State};
use axum::response::Response;
use fabro_events::Event;
use fabro_inspect::{ArtifactFold, ArtifactRow, PatchError};
use fabro_page::{Links, artifacts, cost, patch as patch_html};
use fabro_sandbox::git::{CHANGES, PatchStyle, incomplete_file_trees};
use fabro_store::Runs as _;
use fabro_types::RunId;

use super::{Frame, RunHead, Section, Tab, for_caller, render, stream};
use crate::actions::ServerConfig;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::View;
use crate::problem::Problem;

/// The most stages that are listed above the changes.
const STAGES: usize = 100;

/// How often these parts are read again while the run continues, in milliseconds.
const PACE: u32 = 3_000;

#[derive(Template)]
#[template(path = "part.html")]
struct Page {
    frame: Frame,
    head: RunHead,
    name: &'static str,
    nothing: &'static str,
    html: String,
}

async fn of_run(
    app: &App,
    role: Role,
    run: &str,
    tab: Tab,
    name: &'static str,
    make: impl AsyncFnOnce(&View) -> Result<(String, &'static str), Problem>,
) -> Result<String, Problem> {
    let id = app.actions.find(run).await?;
    let view = app.folds.view(id).await?;
    let has_children = app.actions.store.family(id).await?.len() > 1;
    let (html, nothing) = make(&view).await?;
    let frame = Frame::new(&format!("{name} · {}", view.run.workflow), role, Section::Runs);
    render(&Page {
        frame: Frame { stream: stream(&view, has_children), pace: PACE, ..frame },
        head: RunHead::new(&view, tab),
        name,
        nothing,
        html,
    })
}

#[derive(Template)]
#[template(
    source = "{% if !stages.is_empty() %}<p class=\"links\">{% for (link, name) in stages %}<a href=\"{{ link }}\">{{ fabro_types::clean(name) }}</a> {% endfor %}{% if left_out > 0 %}<span class=\"dim\">and {{ left_out }} earlier stages</span>{% endif %}</p>{% endif %}{{ patch|safe }}",
    ext = "html"
)]
struct Changes {
    /// The stages that changed files.
    stages: Vec<(String, String)>,
    left_out: usize,
    patch: String,
}

pub(super) async fn changes(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<extract::Path<String>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        let extract::Path(run) = run?;
        of_run(&app, role, &run, Tab::Changes, "Changes", async |view| {
            let run_dir = app.actions.store.runs_dir().join(view.run.id.to_string());
            if view.created.worktree.is_none() && !run_dir.join(CHANGES).exists() {
                return Ok((
                    String::new(),
                    "What the run changed was not recorded: it has no git worktree, and did not run in a git work tree.",
                ));
            }
            let mut patch = match changed(&app, view, None).await {
                Ok(bytes) => bytes.map(|bytes| patch_html(&bytes)).unwrap_or_default(),
                Err(text) => render(&Note { text: &text })?,
            };
            if let Some(reason) = incomplete_file_trees(&run_dir) {
                let text = format!("The changes of some stages were not recorded: {reason}");
                patch.insert_str(0, &render(&Note { text: &text })?);
            }
            let links = Links::Server(format!("/runs/{}", view.run.id));
            let stage = |name: &String| (links.stage(name), name.clone());
            let stages =
                view.changes.iter().rev().take(STAGES).map(|it| stage(&it.stage)).collect();
            let left_out = view.changes.len().saturating_sub(STAGES);
            if patch.is_empty() {
                return Ok((String::new(), "No file is changed."));
            }
            Ok((render(&Changes { stages, left_out, patch })?, ""))
        })
        .await
    })
    .await
}

pub(super) async fn artifact_list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<extract::Path<String>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        let extract::Path(run) = run?;
        of_run(&app, role, &run, Tab::Artifacts, "Artifacts", async |view| {
            let id = view.run.id;
            let files = app.folds.artifacts(id, None).await?;
            let files: Vec<&ArtifactRow> = files.iter().collect();
            let links = Links::Server(format!("/runs/{id}"));
            let html =
                if files.is_empty() { String::new() } else { artifacts(&files, true, &links) };
            Ok((html, "No stage has left a file that was kept."))
        })
        .await
    })
    .await
}

pub(super) async fn costs(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<extract::Path<String>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        let extract::Path(run) = run?;
        of_run(&app, role, &run, Tab::Cost, "Cost", async |view| {
            Ok((spent(&app, view.run.id).await?, "No stage has used a model."))
        })
        .await
    })
    .await
}

#[derive(Template)]
#[template(source = "<p class=\"box part\">{{ fabro_types::clean(text) }}</p>", ext = "html")]
pub(super) struct Note<'a> {
    pub(super) text: &'a str,
}

/// What the run and its sub-workflows spent on models; empty for nothing.
async fn spent(app: &App, run: RunId) -> Result<String, Problem> {
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
    let report = app.folds.cost(run, is_free).await?;
    let links = Links::Server(format!("/runs/{run}"));
    let is_any = report.total.turns > 0 || !report.models.is_empty();
    Ok(if is_any { cost(&report, &run.to_string(), &links) } else { String::new() })
}

/// What a run or a stage changed, or why it cannot be read.
pub(super) async fn changed(
    app: &App,
    view: &View,
    stage: Option<&str>,
) -> Result<Option<Vec<u8>>, String> {
    match view.patch(&app.actions.store.runs_dir(), stage, PatchStyle::Patch).await {
        Err(PatchError::NotRecorded { .. }) => Ok(None),
        Ok(made) => Ok(made.map(|made| made.patch).filter(|patch| !patch.is_empty())),
        Err(error) => Err(error.to_string()),
    }
}

/// The artifacts that a stage left, from its events.
pub(super) fn stage_artifacts(app: &App, events: &[&Event]) -> Vec<ArtifactRow> {
    let mut fold = ArtifactFold::default();
    for event in events {
        fold.apply(event);
    }
    ArtifactFold::rows(&[fold], &app.actions.store.runs_dir(), None)
}
