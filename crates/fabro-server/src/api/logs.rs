//! What the stages of a run wrote, from `fabro logs --json` in a process of its own: it reads files that grow.

use std::process::Stdio;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use fabro_inspect::{ReportError, find_stage};
use fabro_types::RunId;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

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
        // One that has not started may still come.
        if let Err(error @ ReportError::SeveralStages { .. }) = find_stage(&view.run.stages, stage)
        {
            return Err(error.into());
        }
    }
    let stage = query.stage.as_deref();
    let shown = ShownLogs { stage, after, tail: query.tail, follows: query.follow };
    let mut command = log_command(&app.actions, run, &shown);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| logs_failed(error.to_string()))?;
    let Some(output) = child.stdout.take() else {
        return Err(logs_failed("the process has no output".to_owned()));
    };
    // The child is killed when the client has gone.
    let lines = stream::try_unfold((output, child, place), async |(mut output, child, place)| {
        let mut buffer = Vec::with_capacity(BUFFER);
        let read = output.read_buf(&mut buffer).await?;
        Ok::<_, std::io::Error>((read > 0).then_some((buffer, (output, child, place))))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
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
