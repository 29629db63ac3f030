//! The pages: what can be seen of runs in a browser, made of the fragments of `fabro-page`. Everything can be
//! read without JavaScript. Without a login every page is the one that asks for it.

mod gates;
mod run;
mod runs;
mod stage;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use fabro_events::{CreatedRun, Event, EventBody};
use fabro_graph::Workflow;
use fabro_run::Bundle;
use fabro_store::SqliteStore;

use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

const LOGIN: &str = include_str!("../../assets/login.html");
const LOGIN_SCRIPT: &str = include_str!("../../assets/login.js");
const SCRIPT: &str = include_str!("../../assets/page.js");
const STYLE: &str = include_str!("../../assets/server.css");

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(runs::page))
        .route("/runs/{run}", get(run::page))
        .route("/runs/{run}/stages/{*stage}", get(stage::page))
        .route("/assets/login.js", get(async || script(LOGIN_SCRIPT)))
        .route("/assets/page.js", get(async || script(SCRIPT)))
        .route("/assets/page.css", get(style))
        .fallback(missing)
}

fn script(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], text).into_response()
}

async fn style() -> Response {
    let text = fabro_page::style() + STYLE;
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], text).into_response()
}

async fn missing() -> Response {
    (StatusCode::NOT_FOUND, "There is no such page.\n").into_response()
}

/// The page that `make` gives to somebody with a role; to others the one that asks for a login.
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
        title: &problem.title,
        role: role.as_str(),
        stream: None,
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

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    title: &'a str,
    role: &'static str,
    stream: Stream,
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

/// How a run was created.
fn created(events: &[Event]) -> Option<&CreatedRun> {
    events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => Some(&**created),
        _ => None,
    })
}

/// The workflow of a run; `None` when it cannot be read: the stages of the run are in its log.
fn workflow(store: &SqliteStore, events: &[Event]) -> Option<Workflow> {
    let bundle = Bundle::load(store, &created(events)?.bundle).ok()?;
    Some(bundle.plan().ok()?.workflow().clone())
}
