//! The page of all runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fabro_inspect::PsRow;
use fabro_page::{class, sign};
use fabro_run::now_ms;
use fabro_store::{RunSummary, Runs as _};
use fabro_types::{RunStatus, one_line, took};
use serde::Deserialize;

use super::gates::{all, as_links, unreadable};
use super::{Frame, Section, for_caller, query as query_of, render};
use crate::actions::RunQuery;
use crate::api::Params;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// The longest goal and the longest cause in the table, in characters.
const LINE: usize = 160;

/// How much of an id is shown: the time in milliseconds, which has 10 characters, and a random part. Commands take
/// the beginning of an id.
const SHORT_ID: usize = 13;

/// The most gates above the runs; the inbox has all of them.
const GATES: usize = 5;

/// The most workflows that are offered.
const WORKFLOWS: usize = 200;

const STATUSES: [RunStatus; 7] = [
    RunStatus::Running,
    RunStatus::Paused,
    RunStatus::Interrupted,
    RunStatus::Succeeded,
    RunStatus::PartiallySucceeded,
    RunStatus::Failed,
    RunStatus::Canceled,
];

/// Which runs are shown. A form sends empty fields too.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    status: String,
    #[serde(default)]
    workflow: String,
    #[serde(default)]
    search: String,
    #[serde(default)]
    cursor: String,
}

struct Row {
    class: &'static str,
    sign: char,
    status: String,
    link: String,
    id: String,
    short_id: String,
    workflow: String,
    dry_run: bool,
    is_fork: bool,
    goal: String,
    started_at: String,
    ended_at: Option<String>,
    took: String,
    why: String,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct Page<'a> {
    frame: Frame,
    can_start: bool,
    gates: String,
    /// The runs whose gates cannot be read.
    unreadable: String,
    count: usize,
    left_out: usize,
    statuses: Vec<(&'static str, bool)>,
    /// The names of workflows that have runs, and whether it is the chosen one.
    workflows: Vec<(String, bool)>,
    /// Not all runs are meant.
    is_filtered: bool,
    search: &'a str,
    warnings: Vec<String>,
    rows: Vec<Row>,
    next: Option<String>,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    query: Result<Params<Query>, Problem>,
) -> Response {
    for_caller(caller, async |role| html(&app, role, &query?.0).await).await
}

async fn html(app: &App, role: Role, query: &Query) -> Result<String, Problem> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let list = RunQuery {
        status: given(&query.status),
        workflow: given(&query.workflow),
        search: given(query.search.trim()),
        cursor: given(&query.cursor),
        ..RunQuery::default()
    };
    let runs = app.actions.store.list().await?;
    let workflows = workflows(&runs, &query.workflow);
    let page = app.actions.page_of(runs, &list).await?;
    let (waiting, not_read) = all(app).await?;
    let open: Vec<_> = waiting.into_iter().filter(|it| it.open.answered.is_none()).collect();
    let next = page.next.map(|cursor| {
        let pairs = [
            ("status", &*query.status),
            ("workflow", &query.workflow),
            ("search", &query.search),
            ("cursor", &cursor),
        ];
        format!("/{}", query_of(&pairs))
    });
    let now = now_ms();
    render(&Page {
        frame: Frame::new("Runs", role, Section::Runs).of_store(),
        can_start: role >= Role::Admin,
        gates: as_links(&open[..open.len().min(GATES)])?,
        unreadable: unreadable(&not_read)?,
        count: open.len(),
        left_out: open.len().saturating_sub(GATES),
        statuses: STATUSES.iter().map(|it| (it.as_str(), it.as_str() == query.status)).collect(),
        workflows,
        is_filtered: list.status.is_some() || list.workflow.is_some() || list.search.is_some(),
        search: &query.search,
        warnings: page.warnings,
        rows: page.runs.into_iter().map(|it| row(it, now)).collect(),
        next,
    })
}

/// The names of the workflows of all runs, and the chosen one also where it has none.
fn workflows(runs: &[RunSummary], chosen: &str) -> Vec<(String, bool)> {
    let roots = runs.iter().filter(|run| run.parent.is_none() && !run.workflow.is_empty());
    let all: BTreeSet<&str> = roots.map(|run| &*run.workflow).collect();
    let mut names: BTreeSet<&str> = all.into_iter().take(WORKFLOWS).collect();
    names.extend(Some(chosen).filter(|chosen| !chosen.is_empty()));
    names.into_iter().map(|name| (name.to_owned(), name == chosen)).collect()
}

fn row(run: PsRow, now: i64) -> Row {
    let took_ms = run.took_ms(now);
    // A copy that was never interrupted is not called so.
    let fork = run.forked.as_ref().filter(|_| run.status == RunStatus::Interrupted);
    let status = match fork {
        Some(fork) if fork.in_place => "rewound",
        Some(_) => "forked",
        None => run.status.as_str(),
    };
    let why = match (&run.pause, &run.cause, &run.failure) {
        _ if !run.answers.is_empty() => {
            format!("answered with {}, not resumed yet", run.answers.join(", "))
        }
        _ if fork.is_some() => {
            let stage = fork.and_then(|fork| fork.stage.as_deref());
            let after = stage.map(|stage| format!(" after {stage}")).unwrap_or_default();
            format!("{status}{after}, not resumed yet")
        }
        (Some(pause), ..) => pause.message.clone(),
        (None, Some(cause), _) => match &cause.node {
            Some(node) => format!("{node}: {}", cause.message),
            None => cause.message.clone(),
        },
        (None, None, Some(failure)) => failure.message.clone(),
        (None, None, None) => String::new(),
    };
    Row {
        class: class(run.status),
        sign: sign(run.status),
        status: status.replace('_', " "),
        link: format!("/runs/{}", run.id),
        short_id: run.id.to_string().chars().take(SHORT_ID).collect(),
        id: run.id.to_string(),
        workflow: run.workflow,
        dry_run: run.dry_run,
        is_fork: run.is_fork,
        goal: one_line(&run.goal, LINE),
        started_at: run.started_at,
        ended_at: run.ended_at,
        took: took_ms.map(took).unwrap_or_default(),
        why: one_line(&why, LINE),
    }
}
