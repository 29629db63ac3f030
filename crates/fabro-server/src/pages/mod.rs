//! The pages: what can be seen of runs in a browser, made of the fragments of `fabro-page`. Everything can be
//! read without JavaScript. Without a login every page is the one that asks for it.

mod assets;
mod context;
mod events;
mod files;
mod fork;
mod gates;
mod logs;
mod run;
mod runs;
mod stage;
mod stages;
mod start;
mod workflow;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use fabro_page::{Links, class, sign};
use fabro_types::RunId;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::app::App;
use crate::auth::{Caller, Role};
use crate::folds::View;
use crate::problem::Problem;

const LOGIN: &str = include_str!("../../assets/login.html");

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(runs::page))
        .route("/gates", get(gates::page))
        .route("/start", get(start::list))
        .route("/start/{workflow}", get(start::page))
        .route("/runs/{run}", get(run::page))
        .route("/runs/{run}/fork", get(fork::page))
        .route("/runs/{run}/again", get(start::again))
        .route("/runs/{run}/rows", get(stages::page))
        .route("/runs/{run}/events", get(events::page))
        .route("/runs/{run}/logs", get(logs::page))
        .route("/runs/{run}/changes", get(files::changes))
        .route("/runs/{run}/artifacts", get(files::artifact_list))
        .route("/runs/{run}/context", get(context::page))
        .route("/runs/{run}/cost", get(files::costs))
        .route("/runs/{run}/workflow", get(workflow::page))
        .route("/runs/{run}/stages/{*stage}", get(stage::page))
        .route("/assets/{name}", get(assets::current))
        .route("/assets/{version}/{name}", get(assets::versioned))
        .fallback(missing)
}

/// The parts of the newest run's page, before it is asked for: it is what people who start a server look at first.
pub(crate) async fn read_latest(app: Arc<App>) {
    let read = async {
        let run = app.actions.find("latest").await?;
        app.folds.view(run).await
    };
    // Without a run there is nothing to read, and what cannot be read is reported to who asks for it.
    if let Ok(view) = read.await {
        run::fragments(&view, &Links::Server(format!("/runs/{}", view.run.id)));
    }
}

async fn missing() -> Response {
    (StatusCode::NOT_FOUND, "There is no such page.\n").into_response()
}

/// The page that `make` gives to a caller with a role; to others the one that asks for a login.
async fn for_caller(
    caller: Option<Caller>,
    make: impl AsyncFnOnce(Role) -> Result<String, Problem>,
) -> Response {
    let Some(Caller { role, .. }) = caller else { return Html(LOGIN).into_response() };
    let problem = match make(role).await {
        Ok(html) => return Html(html).into_response(),
        Err(problem) => problem,
    };
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let page = ProblemPage {
        frame: Frame::new(&problem.title, role, Section::None),
        detail: &problem.detail,
        fix: &problem.fix,
    };
    match render(&page) {
        Ok(html) => (status, Html(html)).into_response(),
        Err(problem) => problem.into_response(),
    }
}

/// Where the script of a page hears of changes: an address, and the last event that the page shows.
type Stream = Option<(String, String)>;

/// What every page has.
struct Frame {
    title: String,
    role: Role,
    stream: Stream,
    /// How often the script may ask for the page, in milliseconds.
    pace: u32,
    section: Section,
}

/// The part of the site that a page is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Runs,
    Inbox,
    Start,
    None,
}

impl Frame {
    fn new(title: &str, role: Role, section: Section) -> Self {
        Self { title: title.to_owned(), role, stream: None, pace: 0, section }
    }

    /// The same for a page that changes with every run.
    fn of_store(self) -> Self {
        Self { stream: Some(("/api/v1/changes".to_owned(), String::new())), ..self }
    }

    /// For templates: address, name, and whether the page is there.
    fn sections(&self) -> Vec<(&'static str, &'static str, bool)> {
        let mut all = vec![("/", "Runs", Section::Runs), ("/gates", "Inbox", Section::Inbox)];
        if self.role >= Role::Admin {
            all.push(("/start", "Start", Section::Start));
        }
        all.into_iter().map(|(link, name, it)| (link, name, it == self.section)).collect()
    }
}

/// What every page of a run has above its parts.
struct RunHead {
    id: RunId,
    workflow: String,
    class: &'static str,
    sign: char,
    status: String,
    tab: Tab,
}

/// A part of a run with a page of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tab {
    Overview,
    Events,
    Logs,
    Changes,
    Artifacts,
    Context,
    Cost,
    Workflow,
    /// A page below the parts.
    Other,
}

impl Tab {
    const ALL: [(Self, &'static str, &'static str); 8] = [
        (Self::Overview, "", "Overview"),
        (Self::Events, "/events", "Events"),
        (Self::Logs, "/logs", "Logs"),
        (Self::Changes, "/changes", "Changes"),
        (Self::Artifacts, "/artifacts", "Artifacts"),
        (Self::Context, "/context", "Context"),
        (Self::Cost, "/cost", "Cost"),
        (Self::Workflow, "/workflow", "Workflow"),
    ];
}

impl RunHead {
    fn new(view: &View, tab: Tab) -> Self {
        let run = &view.run;
        Self {
            id: run.id,
            workflow: run.workflow.clone(),
            class: class(run.status),
            sign: sign(run.status),
            status: run.status.as_str().replace('_', " "),
            tab,
        }
    }

    /// For templates: address, name, and whether it is this one.
    fn tabs(&self) -> Vec<(String, &'static str, bool)> {
        let tab = |(tab, path, name): (Tab, &str, &'static str)| {
            (format!("/runs/{}{path}", self.id), name, tab == self.tab)
        };
        Tab::ALL.into_iter().map(tab).collect()
    }
}

/// Where a page of a run hears of changes: of the run, or of the store when stages have runs of their own.
fn stream(view: &View, has_children: bool) -> Stream {
    if view.run.status.is_final() {
        return None;
    }
    if has_children {
        return Some(("/api/v1/changes".to_owned(), String::new()));
    }
    Some((format!("/api/v1/runs/{}/events", view.run.id), view.seq.to_string()))
}

/// The title of a page of a run: a tab of the browser shows how the run stands.
fn titled(view: &View, name: &str) -> String {
    format!("{} {name}", sign(view.run.status))
}

/// A query of these parameters; empty values are left out.
fn query(pairs: &[(&str, &str)]) -> String {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> = given
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
        .collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: Frame,
    detail: &'a str,
    fix: &'a str,
}

fn render(template: &impl Template) -> Result<String, Problem> {
    template.render().map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "page_failed", error.to_string(), "report this as a bug")
    })
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), "address_invalid", rejection.body_text(), "go to all runs")
    }
}
