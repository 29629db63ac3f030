//! Starting a run of a workflow of the project.

use std::fs;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_run::{Bundle, RunError, StartForm, new_run_id, render_goal, start_form};
use fabro_types::{Diagnostic, LineIndex, RunId, Severity, one_line};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{Frame, Section, for_caller, render};
use crate::actions::ServerConfig;
use crate::app::App;
use crate::auth::{Caller, Role, permitted};
use crate::problem::Problem;

/// The longest goal in the list, in characters.
const GOAL: usize = 160;

/// The most findings of a workflow.
const FINDINGS: usize = 50;

/// How the mark in the place of a secret begins.
const REDACTED: &str = "[redacted";

/// The longest line of a workflow that is shown, in characters.
const LINE: usize = 200;

struct Workflow {
    name: String,
    link: String,
    goal: String,
    inputs: String,
    errors: usize,
    warnings: usize,
    unreadable: Option<String>,
}

#[derive(Template)]
#[template(path = "start_list.html")]
struct List {
    frame: Frame,
    project: String,
    workflows: Vec<Workflow>,
}

struct Input {
    name: String,
    value: String,
    is_json: bool,
    is_long: bool,
    /// An empty text is a value of its own: the default would be used without one.
    may_be_empty: bool,
    options: Option<[&'static str; 2]>,
}

struct Finding {
    class: &'static str,
    rule: &'static str,
    message: String,
    line: usize,
    column: usize,
    source: String,
    underline: String,
    fix: Option<String>,
}

#[derive(Template)]
#[template(path = "start.html")]
struct Page<'a> {
    frame: Frame,
    name: &'a str,
    file: String,
    findings: Vec<Finding>,
    left_out: usize,
    is_valid: bool,
    /// A repeated request with the same key starts no second run.
    key: String,
    goal: String,
    inputs: Vec<Input>,
    /// The run that the form begins with, if there is one.
    given: Option<Given>,
}

/// What the form has of an earlier run.
struct Given {
    run: RunId,
    /// Empty where it is the goal of the workflow.
    goal: String,
    model: String,
    max_cost: String,
    worktree: bool,
    auto_approve: bool,
    dry_run: bool,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
) -> Response {
    for_caller(caller, async |role| {
        permitted(role, Role::Admin)?;
        let names = app.actions.workflows();
        let workflow = |name: String| {
            let form = form_of(&app, &name);
            let count = |severity| {
                let all = form.iter().flat_map(|form| &form.findings);
                all.filter(|it| it.severity == severity).count()
            };
            let names = form.iter().flat_map(|form| form.inputs.keys());
            Workflow {
                link: format!("/start/{}", utf8_percent_encode(&name, NON_ALPHANUMERIC)),
                goal: form
                    .as_ref()
                    .ok()
                    .and_then(|it| it.goal.as_deref())
                    .map_or_else(String::new, |it| one_line(it, GOAL)),
                inputs: one_line(&names.cloned().collect::<Vec<_>>().join(", "), GOAL),
                errors: count(Severity::Error),
                warnings: count(Severity::Warning),
                unreadable: form.as_ref().err().map(|problem| problem.detail.clone()),
                name,
            }
        };
        render(&List {
            frame: Frame::new("Start a run", role, Section::Start),
            project: app.actions.config.project.display().to_string(),
            workflows: names.into_iter().map(workflow).collect(),
        })
    })
    .await
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        permitted(role, Role::Admin)?;
        let Path(name) = name?;
        html(role, &name, form_of(&app, &name)?, None)
    })
    .await
}

/// The form with the goal, the inputs and the options of a run. The workflow is the one that the project has now.
pub(super) async fn again(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<Path<String>, PathRejection>,
) -> Response {
    for_caller(caller, async |role| {
        permitted(role, Role::Admin)?;
        let Path(run) = run?;
        let run = app.actions.find(&run).await?;
        let created = Arc::clone(&app.folds.view(run).await?.created);
        let bundle = Bundle::load(&*app.actions.store, &created).map_err(RunError::from)?;
        let name = name_in_project(&app, &bundle.file).ok_or_else(|| {
            let file = one_line(&bundle.file, LINE);
            Problem::not_found(
                "workflow_not_found",
                format!("`{file}`, the workflow of the run, is none of the project"),
                "start it with `fabro run`, or fork the run",
            )
        })?;
        let mut form = form_of(&app, &name)?;
        let usual = form.goal.as_deref().unwrap_or_default();
        let is_usual = render_goal(usual, &created.inputs).is_ok_and(|goal| goal == created.goal);
        let given = Given {
            run,
            goal: if is_usual { String::new() } else { created.goal.clone() },
            model: bundle.settings.model.unwrap_or_default(),
            max_cost: created.max_cost.map(|limit| limit.to_string()).unwrap_or_default(),
            worktree: created.worktree.is_some(),
            auto_approve: bundle.settings.auto_approve,
            dry_run: created.dry_run,
        };
        for (key, value) in &created.inputs {
            // The log has no secrets: one has to be given again.
            if !value.to_string().contains(REDACTED) {
                form.inputs.insert(key.clone(), Some(value.clone()));
            }
        }
        html(role, &name, form, Some(given))
    })
    .await
}

/// The workflow of the project that is this file.
fn name_in_project(app: &App, file: &str) -> Option<String> {
    let file = fs::canonicalize(app.actions.config.project.join(file)).ok()?;
    app.actions.workflows().into_iter().find(|name| {
        let target = app.actions.workflow(name);
        target.is_ok_and(|it| fs::canonicalize(it.workflow_file).is_ok_and(|it| it == file))
    })
}

fn html(role: Role, name: &str, form: StartForm, given: Option<Given>) -> Result<String, Problem> {
    let lines = LineIndex::new(&form.source);
    let is_valid = form.findings.iter().all(|it| it.severity != Severity::Error);
    // Errors first: a workflow that has them cannot be started.
    let (errors, warnings): (Vec<_>, Vec<_>) =
        form.findings.iter().partition(|it| it.severity == Severity::Error);
    let shown = errors.into_iter().chain(warnings);
    render(&Page {
        frame: Frame::new(&format!("Start {name}"), role, Section::Start),
        name,
        file: form.file.display().to_string(),
        findings: shown.take(FINDINGS).map(|it| finding(it, &lines)).collect(),
        left_out: form.findings.len().saturating_sub(FINDINGS),
        is_valid,
        key: new_run_id().to_string(),
        goal: form.goal.unwrap_or_default(),
        inputs: form.inputs.into_iter().map(|(name, value)| input(name, value)).collect(),
        given,
    })
}

fn form_of(app: &App, name: &str) -> Result<StartForm, Problem> {
    let ServerConfig { project, user_file, home, .. } = &app.actions.config;
    let home = home.as_deref();
    let target = app.actions.workflow(name)?;
    let (settings, _) = fabro_config::settings(project, user_file.as_deref(), home)?;
    Ok(start_form(&target, &settings, project, home)?)
}

fn input(name: String, value: Option<Value>) -> Input {
    let options = matches!(value, Some(Value::Bool(_))).then_some(["true", "false"]);
    // A value without a default is read as on the command line: JSON where it reads as that.
    let is_json = !matches!(value, Some(Value::String(_)));
    let value = match value {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(value @ (Value::Array(_) | Value::Object(_))) => format!("{value:#}"),
        Some(value) => value.to_string(),
    };
    let may_be_empty = !is_json && !value.is_empty();
    let is_long = value.contains('\n') || value.len() > 100;
    Input { name, value, is_json, is_long, may_be_empty, options }
}

fn finding(of: &Diagnostic, lines: &LineIndex<'_>) -> Finding {
    let start = lines.position(of.span.start);
    let end = lines.position(of.span.end);
    let source: String = lines.line(start.line).chars().take(LINE).collect();
    let width = if end.line == start.line { end.column.saturating_sub(start.column) } else { 1 };
    let width = width.clamp(1, LINE.saturating_sub(start.column).max(1));
    Finding {
        class: if of.severity == Severity::Error { "bad" } else { "part" },
        rule: of.rule,
        message: of.message.clone(),
        line: start.line,
        column: start.column,
        // Tabs would move what is below.
        source: source.replace('\t', " "),
        underline: format!("{}{}", " ".repeat(start.column.min(LINE) - 1), "^".repeat(width)),
        fix: of.fix.clone(),
    }
}
