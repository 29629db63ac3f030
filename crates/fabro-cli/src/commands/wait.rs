//! `fabro wait`.

use std::time::Duration;

use clap_complete::ArgValueCandidates;
use fabro_engine::read_all;
use fabro_inspect::{Inspect, inspect};
use fabro_run::is_driven;
use fabro_store::{Follow as _, SqliteStore};
use fabro_terminal::one_line;
use fabro_types::{RunId, RunStatus};
use serde_json::json;
use tokio::time::Instant;

use super::run_lines::failure_line;
use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, find};
use crate::output;
use crate::values::duration;

/// Wait until runs end or pause
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro wait latest\n  fabro wait 01K3 01K4 --timeout 10m\n  fabro wait 01K3 01K4 --any\n\nPrints a line for each run: its id and its status. The exit code is that of the run: 0 succeeded, 1 failed or canceled, 3 paused, 130 interrupted; 124 after the timeout. Of several runs it is the first of 130, 1 and 3 that applies to any of them, else 0."
)]
pub struct WaitArgs {
    /// The runs: ids, the beginnings of ids, or `latest`
    #[arg(required = true, value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    pub runs: Vec<String>,

    /// Stop waiting after this time, such as 90s, 10m or 2h; the runs continue
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Wait for the first of the runs instead of all of them
    #[arg(long)]
    pub any: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// The polling interval of the store. A poll takes microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The order in which the exit codes of several runs count.
const WORST_FIRST: [Exit; 3] = [Exit::INTERRUPTED, Exit::FAILED, Exit::PAUSED];

/// Waits for runs, whichever process drives them.
pub async fn wait(args: &WaitArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.store_to_read()?;
    let mut waiting = Vec::new();
    for text in &args.runs {
        let run = find(&store, text).await?;
        if !waiting.contains(&run) {
            waiting.push(run);
        }
    }
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut exits = Vec::new();
    loop {
        // Taken before reading: what is committed in between is read next time.
        let mark = store.mark().await?;
        for run in waiting.clone() {
            let Some(report) = stopped(&store, run).await? else { continue };
            waiting.retain(|other| *other != run);
            exits.push(exit_of(report.status));
            print(&report, args.json, global)?;
            if args.any {
                return Ok(exit_of(report.status));
            }
        }
        if waiting.is_empty() {
            let worst = WORST_FIRST.into_iter().find(|exit| exits.contains(exit));
            return Ok(worst.unwrap_or(Exit::SUCCEEDED));
        }
        if !changed(&store, mark, &waiting, deadline).await? {
            return Err(timed_out(&waiting, args, global));
        }
    }
}

/// Waits until something may have changed for these runs; false when the deadline has passed.
async fn changed(
    store: &SqliteStore,
    mark: fabro_store::ChangeMark,
    runs: &[RunId],
    deadline: Option<Instant>,
) -> anyhow::Result<bool> {
    loop {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        if store.mark().await? != mark {
            return Ok(true);
        }
        // A driver that is killed commits nothing.
        for run in runs {
            if !is_driven(store, *run).await? {
                return Ok(true);
            }
        }
    }
}

/// The run as it is, unless a process drives it.
pub(super) async fn stopped(store: &SqliteStore, run: RunId) -> anyhow::Result<Option<Inspect>> {
    // Asked before reading: a driver commits the end before it lets the run go.
    if is_driven(store, run).await? {
        return Ok(None);
    }
    let report = inspect(&read_all(store, run).await?, false)?;
    Ok(Some(report))
}

pub(super) fn exit_of(status: RunStatus) -> Exit {
    match status {
        RunStatus::Succeeded => Exit::SUCCEEDED,
        RunStatus::Paused => Exit::PAUSED,
        // Nothing is running that could be waited for.
        RunStatus::Interrupted | RunStatus::Running => Exit::INTERRUPTED,
        _ => Exit::FAILED,
    }
}

fn print(report: &Inspect, is_json: bool, global: &Global) -> anyhow::Result<()> {
    let run = report.id;
    if is_json {
        return output::json_text(format!("{}\n", json!({"id": run, "status": report.status})));
    }
    output::stdout(&format!("{run} {}\n", report.status))?;
    output::stderr(&note(report, global));
    Ok(())
}

/// Why a run ended or stopped, and what to do; empty after success.
pub(super) fn note(report: &Inspect, global: &Global) -> String {
    let run = report.id;
    let resume = global.command(&format!("resume {run}"));
    let note = match (report.status, &report.failure, &report.pause) {
        (_, Some(failure), _) => failure_line(failure),
        (RunStatus::PartiallySucceeded, ..) => {
            report.cause.as_ref().map(|cause| one_line(&cause.to_string(), 300)).unwrap_or_default()
        }
        (RunStatus::Paused, _, Some(pause)) => {
            format!("{}; see it with: {}", pause.message, global.command(&format!("inspect {run}")))
        }
        (RunStatus::Interrupted, ..) => {
            format!("no process is driving the run; continue with: {resume}")
        }
        _ => return String::new(),
    };
    format!("{note}\n")
}

fn timed_out(waiting: &[RunId], args: &WaitArgs, global: &Global) -> anyhow::Error {
    let names: Vec<String> = waiting.iter().map(ToString::to_string).collect();
    let many = if names.len() == 1 { "run" } else { "runs" };
    let mut again = format!("wait {}", names.join(" "));
    if args.any {
        again.push_str(" --any");
    }
    error::timeout(
        format!("the timeout has passed; still running: {many} {}", names.join(", ")),
        format!("wait again with `{}`", global.command(&again)),
    )
}
