//! A run as one HTML file, from `fabro report` in a process of its own: it reads all of the run.

use std::process::Stdio;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use fabro_types::one_line;
use tokio::process::Command;

use super::events::too_many;
use crate::app::App;
use crate::problem::Problem;

/// How much of what `fabro report` prints about a failure is shown, in characters.
const CAUSE: usize = 500;

pub(super) async fn report(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
) -> Result<Response, Problem> {
    let run = app.actions.find(&run).await?;
    let _place = app.live.place().ok_or_else(too_many)?;
    let mut command = Command::new(&app.actions.config.program);
    command.args(["report", "-o", "-", "--store"]).arg(app.actions.store.dir());
    command.arg("--").arg(run.to_string());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let failed = |detail: String| {
        Problem::internal("report_failed", detail, "see what `fabro report` reports")
    };
    let output = command.output().await.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let cause = one_line(&String::from_utf8_lossy(&output.stderr), CAUSE);
        return Err(failed(format!("`fabro report` failed ({}): {cause}", output.status)));
    }
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{run}.html\"")),
    ];
    Ok((headers, output.stdout).into_response())
}
