//! What the stages of a run wrote: the last lines, which the script follows.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_inspect::find_stage;
use fabro_page::Links;
use fabro_types::{RunStatus, one_line};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Command;

use super::{Frame, RunHead, Section, Tab, for_caller, query as query_of, render};
use crate::api::{Params, ShownLogs, log_command, logs_failed, too_many};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// How many lines are shown.
const LINES: usize = 500;

/// The longest line, in characters.
const LINE: usize = 4_000;

/// How much of what `fabro logs` reports is shown, in characters.
const REPORT: usize = 500;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    stage: String,
}

/// A line as `fabro logs --json` prints it.
#[derive(Deserialize)]
struct Line {
    stage: String,
    stream: String,
    text: String,
    #[serde(skip)]
    link: String,
    /// The line above is of the same stage: its link is the one that the keyboard comes to.
    #[serde(skip)]
    continues: bool,
}

#[derive(Template)]
#[template(path = "logs.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    stage: &'a str,
    most: usize,
    follows: bool,
    /// Where the script finds the lines; `None` when none follow.
    stream: Option<String>,
    lines: Vec<Line>,
    /// All lines as JSON.
    download: String,
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
    let stage = query.stage.trim();
    let chosen = (!stage.is_empty()).then_some(stage);
    if let Some(stage) = chosen {
        find_stage(&view.run.stages, stage)?;
    }
    let follows = view.run.status == RunStatus::Running;
    let links = Links::Server(format!("/runs/{id}"));
    let place = app.live.place().ok_or_else(too_many)?;
    let after = chosen.and_then(|stage| view.before(stage));
    let shown = ShownLogs { stage: chosen, after, tail: Some(LINES), follows: false };
    let written = read(log_command(&app.actions, id, &shown)).await?;
    drop(place);
    let mut last = String::new();
    let written = written.into_iter().map(|line| {
        let continues = last == line.stage;
        last.clone_from(&line.stage);
        Line { link: links.stage(&line.stage), continues, ..line }
    });
    let tail = LINES.to_string();
    let pairs = [("follow", "true"), ("tail", &*tail), ("stage", stage)];
    render(&Page {
        frame: Frame::new(&format!("Logs · {}", view.run.workflow), role, Section::Runs),
        head: RunHead::new(&view, Tab::Logs),
        stage,
        most: LINES,
        follows,
        stream: follows.then(|| format!("/api/v1/runs/{id}/logs{}", query_of(&pairs))),
        lines: written.collect(),
        download: format!("/api/v1/runs/{id}/logs{}", query_of(&[("stage", stage)])),
    })
}

/// What a command prints, with long lines cut. It ends with the future.
async fn read(mut command: Command) -> Result<Vec<Line>, Problem> {
    let failed = |error: io::Error| logs_failed(error.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let Some(output) = child.stdout.take() else {
        return Err(logs_failed("the process has no output".to_owned()));
    };
    let (lines, ended) =
        tokio::try_join!(cut_lines(output), child.wait_with_output()).map_err(failed)?;
    if !ended.status.success() {
        let report = one_line(&String::from_utf8_lossy(&ended.stderr), REPORT);
        return Err(logs_failed(format!("`fabro logs` failed ({}): {report}", ended.status)));
    }
    Ok(lines)
}

/// The lines of a stream. One at a time is held as a whole.
async fn cut_lines(output: impl AsyncRead + Unpin) -> io::Result<Vec<Line>> {
    let mut output = BufReader::new(output).lines();
    let mut lines = Vec::new();
    while let Some(json) = output.next_line().await? {
        let mut line: Line = serde_json::from_str(&json)?;
        if let Some((end, _)) = line.text.char_indices().nth(LINE) {
            line.text.truncate(end);
            line.text.push('…');
            line.text.shrink_to_fit();
        }
        lines.push(line);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// How long the texts are that a script prints, or why there are none.
    async fn check(script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        match read(command).await {
            Ok(lines) => {
                format!("{:?}", lines.iter().map(|it| it.text.chars().count()).collect::<Vec<_>>())
            }
            Err(problem) => format!("{}: {}", problem.code, problem.detail),
        }
    }

    #[tokio::test]
    async fn a_failure_is_not_an_empty_log_and_long_lines_are_cut() {
        let line = r#"printf '{"stage":"a@1","stream":"stdout","text":"%0*d"}\n'"#;
        assert_snapshot!(check(&format!("{line} 4 0; {line} 4000 0; {line} 9000 0")).await, @"[4, 4000, 4001]");
        assert_snapshot!(check("true").await, @"[]");
        assert_snapshot!(check("echo 'no store is here' >&2; exit 3").await, @"logs_failed: `fabro logs` failed (exit status: 3): no store is here");
    }
}
