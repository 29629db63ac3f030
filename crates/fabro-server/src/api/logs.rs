//! What the stages of a run wrote, from `fabro logs --json` in a process of its own: it reads files that grow.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use fabro_inspect::{ReportError, find_stage};
use fabro_types::{RunId, RunStatus, one_line};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::events::too_many;
use super::input::Params;
use crate::actions::Actions;
use crate::app::App;
use crate::problem::Problem;

/// Which logs are read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogQuery {
    /// Only those of this stage, `[BRANCH/]NODE[@VISIT]`.
    #[serde(default)]
    stage: Option<String>,
    /// Begin with the last lines of what there is: at most so many.
    #[serde(default)]
    tail: Option<usize>,
    /// Follow the run until it ends or pauses.
    #[serde(default)]
    follow: bool,
}

/// How much is read at a time.
const BUFFER: usize = 32 << 10;

/// How long the head of a response waits for a failure.
const AT_ONCE: Duration = Duration::from_millis(500);

/// How much of an error message is read, in bytes.
const REPORT: u64 = 8 << 10;

pub(super) async fn logs(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    Params(query): Params<LogQuery>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let place = app.live.place().ok_or_else(too_many)?;
    let mut after = None;
    if let Some(stage) = &query.stage {
        let view = app.folds.view(run).await?;
        after = view.before(stage);
        match find_stage(&view.run.stages, stage) {
            Err(error @ ReportError::SeveralStages { .. }) => return Err(error.into()),
            // One that has not started may still come, unless the run has stopped.
            Err(error) if !query.follow || has_stopped(view.run.status) => {
                return Err(error.into());
            }
            _ => {}
        }
    }
    let stage = query.stage.as_deref();
    let shown = ShownLogs { stage, after, tail: query.tail, follows: query.follow };
    let command = log_command(&app.actions, run, &shown);
    let mut output = Output::of(command).map_err(|error| logs_failed(error.to_string()))?;
    // What fails at once gets a status of its own; later, all that can be done is to break the body off.
    let first = match timeout(AT_ONCE, output.next()).await {
        Ok(first) => first.map_err(|error| logs_failed(error.to_string()))?,
        // A stage that is followed may print nothing for long.
        Err(_) => None,
    };
    let rest = stream::try_unfold((output, place), async |(mut output, place)| {
        let chunk = output.next().await?;
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, (output, place))))
    });
    let lines = stream::iter(first.map(Ok)).chain(rest);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Whether a run goes no further by itself: a stage that has not started does not come.
fn has_stopped(status: RunStatus) -> bool {
    status.is_final() || status == RunStatus::Paused
}

/// What a process prints. The process is killed when this is dropped: the client has gone.
struct Output {
    child: Child,
    stdout: ChildStdout,
    /// The beginning of what it says on stderr.
    report: JoinHandle<Vec<u8>>,
}

impl Output {
    fn of(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("the process has no output"));
        };
        let report = tokio::spawn(async move {
            let mut report = Vec::new();
            // Without its beginning an error is still one, by the exit code.
            let _ = (&mut stderr).take(REPORT).read_to_end(&mut report).await;
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            report
        });
        Ok(Self { child, stdout, report })
    }

    /// The next bytes; `None` at the end. An error when the process failed.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = Vec::with_capacity(BUFFER);
        if self.stdout.read_buf(&mut buffer).await? > 0 {
            return Ok(Some(buffer));
        }
        let status = self.child.wait().await?;
        if status.success() {
            return Ok(None);
        }
        let report = (&mut self.report).await.unwrap_or_default();
        let report = one_line(&String::from_utf8_lossy(&report), 500);
        Err(io::Error::other(format!("`fabro logs` failed ({status}): {report}")))
    }
}

/// The lines cannot be read.
pub(crate) fn logs_failed(detail: String) -> Problem {
    Problem::internal("logs_failed", detail, "see what `fabro logs` reports")
}

/// Which logs a process prints.
pub(crate) struct ShownLogs<'a> {
    pub(crate) stage: Option<&'a str>,
    /// The event after which the stages begin, where that is known.
    pub(crate) after: Option<u64>,
    pub(crate) tail: Option<usize>,
    pub(crate) follows: bool,
}

/// The command that prints what the stages of a run wrote, an object a line.
pub(crate) fn log_command(actions: &Actions, run: RunId, shown: &ShownLogs<'_>) -> Command {
    let mut command = Command::new(&actions.config.program);
    command.args(["logs", "--json", "--store"]).arg(actions.store.dir());
    if shown.follows {
        command.arg("--follow");
    }
    if let Some(tail) = shown.tail {
        command.args(["--tail", &tail.to_string()]);
    }
    if let Some(after) = shown.after {
        command.args(["--after", &after.to_string()]);
    }
    command.arg("--").arg(run.to_string()).args(shown.stage);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a script prints, and why that is not all.
    async fn check(script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut output = Output::of(command).unwrap();
        let mut text = String::new();
        loop {
            match output.next().await {
                Ok(Some(chunk)) => text.push_str(&String::from_utf8(chunk).unwrap()),
                Ok(None) => return text,
                Err(error) => return format!("{text}! {error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_failure_is_not_the_end_of_a_log() {
        assert_eq!(check("printf a").await, "a");
        assert_eq!(check("true").await, "");
        let failed = "! `fabro logs` failed (exit status: 4): it is damaged";
        assert_eq!(check("echo 'it is damaged' >&2; exit 4").await, failed);
        assert_eq!(check("printf a; echo 'it is damaged' >&2; exit 4").await, format!("a{failed}"));
        let long = check("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1").await;
        assert!(long.len() < 1_000, "{long}");
    }
}
