//! Driving a run from the command line: lock, leftovers, signals, and the exit code.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabro_engine::{DriveError, Input, Machine, Phase, Plan, RunEnd, RunState, World};
use fabro_events::{Event, EventSink, PauseReason};
use fabro_graph::NodeKind;
use fabro_handlers::{RunSettings, StatusFiles};
use fabro_sandbox::{Exec, Exit as ScriptExit, Language, LocalExec, Request};
use fabro_store::{DriverLock, SqliteStore};
use fabro_types::{Failure, FailureClass, RunId, RunStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::cancel::{end_family, end_stages_left_behind};
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output::progress::{Mode, Progress};
use crate::wiring::{self, Sinks};

/// A run and how it is to be driven.
pub struct Driven {
    /// Where it is recorded.
    pub store: SqliteStore,
    /// The right to drive it. What is below was read under it.
    pub lock: DriverLock,
    /// Its workflow.
    pub plan: Arc<Plan>,
    /// How it was started.
    pub settings: RunSettings,
    /// Nothing is executed.
    pub dry_run: bool,
    /// Where it stands.
    pub state: RunState,
    /// Its log so far.
    pub events: Vec<Event>,
    /// A new spending limit.
    pub max_cost: Option<f64>,
    /// How it is shown.
    pub mode: Mode,
}

/// Drives a run until it ends, waits, or is interrupted.
pub async fn drive(driven: Driven, global: &Global) -> anyhow::Result<Exit> {
    let Driven { store, lock, plan, settings, dry_run, state, events, max_cost, mode } = driven;
    let store = Arc::new(store);
    let run_id = lock.run();
    let has_children = plan.workflow().nodes().any(|node| node.kind == NodeKind::ManagerLoop);
    let run_dir = store.run_dir(run_id);
    let progress = Progress::new(mode, global.paint_stderr());
    progress.recall(&events);
    let all_runs = run_dir.parent().map(Path::to_owned).unwrap_or_default();
    let files = Arc::new(StatusFiles::new(all_runs));
    let shown: Arc<dyn EventSink> = Arc::clone(&progress) as _;
    let handler = wiring::handlers(&settings, dry_run, &events, &progress, files.clone())?;
    let is_new = state.phase == Phase::Created;
    if !is_new || prepare_dir(&run_dir).exists() {
        let store = Arc::clone(&store);
        tokio::task::spawn_blocking(move || end_stages_left_behind(&store, run_id)).await??;
        files.catch_up(&events);
    }
    drop(events);
    let stop = CancellationToken::new();
    let work_dir = state.created.as_ref().map(|c| c.work_dir.clone()).unwrap_or_default();
    let mut first = if is_new { Input::Start } else { Input::Resume { max_cost } };
    let work = async {
        if is_new && !dry_run {
            let prepared = prepare(&settings, run_id, &run_dir, &work_dir, &stop).await;
            if stop.is_cancelled() {
                return Ok(RunEnd::Stopped);
            }
            if let Err(failure) = prepared {
                first = Input::Abort { failure };
            }
        }
        let machine = Machine::new(plan, state, Arc::clone(&store) as _);
        let world = World {
            store: Arc::clone(&store) as _,
            handler,
            sink: Arc::new(Sinks(vec![files, shown])),
            clock: wiring::clock(),
            run_dir: run_dir.clone(),
            stop: stop.clone(),
        };
        fabro_engine::drive(machine, first, world).await
    };
    let end = tokio::select! {
        end = work => end,
        () = interrupted(&stop, run_id, global) => Ok(RunEnd::Stopped),
    };
    progress.finish();
    if has_children && matches!(end, Ok(RunEnd::Over(..))) {
        // Stages that were canceled leave their sub-workflows as they are after an interruption.
        end_family(&store, run_id, "the run it is part of is over")?;
    }
    drop(lock);
    conclude(end, run_id, mode, global)
}

/// Waits for signals: the first stops the run cleanly, the second ends the wait.
async fn interrupted(stop: &CancellationToken, run_id: RunId, global: &Global) {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [Ok(mut int), Ok(mut term), Ok(mut hup)] = kinds.map(signal) else {
        // Without signals there is nothing to wait for.
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
        }
        if stop.is_cancelled() {
            return;
        }
        stop.cancel();
        let hint = global.command(&format!("resume {run_id}"));
        crate::output::stderr(&format!(
            "\nstopping; once more to stop at once. Go on with: {hint}\n"
        ));
    }
}

/// Where the steps before the first stage leave their logs.
fn prepare_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("prepare")
}

/// Runs the steps that come before the first stage.
async fn prepare(
    settings: &RunSettings,
    run_id: RunId,
    run_dir: &Path,
    work_dir: &str,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let exec = LocalExec::new();
    let mut env: Vec<(String, String)> =
        settings.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    env.push(("FABRO_RUN_ID".to_owned(), run_id.to_string()));
    env.push(("FABRO_RUN_DIR".to_owned(), run_dir.to_string_lossy().into_owned()));
    for (index, script) in settings.prepare.iter().enumerate() {
        let dir = prepare_dir(run_dir).join((index + 1).to_string());
        let request = Request {
            script,
            language: Language::Shell,
            cwd: Path::new(work_dir),
            env: &env,
            stdout: dir.join("stdout.log"),
            stderr: dir.join("stderr.log"),
            cancel: stop.clone(),
        };
        let failed = |why: String| {
            let message = format!("prepare step {} failed: {why}", index + 1);
            Failure::new(FailureClass::Deterministic, message)
        };
        let ended = exec.run(request).await.map_err(|error| failed(error.to_string()))?;
        match ended.exit {
            ScriptExit::Code(0) => {}
            ScriptExit::Code(code) => {
                return Err(failed(format!("exit code {code}; see {}", dir.display())));
            }
            ScriptExit::Signal(signal) => return Err(failed(format!("killed by signal {signal}"))),
            ScriptExit::Canceled => return Err(failed("canceled".to_owned())),
        }
    }
    Ok(())
}

fn conclude(
    end: Result<RunEnd, DriveError>,
    run_id: RunId,
    mode: Mode,
    global: &Global,
) -> anyhow::Result<Exit> {
    let say = |text: String| {
        if mode != Mode::Json {
            crate::output::stderr(&text);
        }
    };
    match end {
        Ok(RunEnd::Over(RunStatus::Succeeded, _)) => Ok(exit::SUCCEEDED),
        Ok(RunEnd::Over(RunStatus::Failed, failure)) => {
            let reason = failure.map(|failure| failure.to_string()).unwrap_or_default();
            let look = global.command(&format!("inspect {run_id}"));
            say(format!("run {run_id} failed: {reason}\nSee what happened: {look}\n"));
            Ok(exit::FAILED)
        }
        Ok(RunEnd::Over(..)) => {
            say(format!("run {run_id} was canceled\n"));
            Ok(exit::FAILED)
        }
        Ok(RunEnd::Paused(reason)) => {
            let next = match reason {
                PauseReason::Budget => global.command(&format!("resume {run_id} --max-cost USD")),
                _ => format!(
                    "{} and then {}",
                    global.command(&format!("answer {run_id} CHOICE")),
                    global.command(&format!("resume {run_id}"))
                ),
            };
            say(format!("run {run_id} is paused. Go on with: {next}\n"));
            Ok(exit::PAUSED)
        }
        Ok(RunEnd::Stopped) => {
            let hint = global.command(&format!("resume {run_id}"));
            say(format!("run {run_id} was interrupted. Go on with: {hint}\n"));
            Ok(exit::INTERRUPTED)
        }
        Err(DriveError::Store(error)) => Err(error.into()),
        Err(error) => {
            let hint = global.command(&format!("resume {run_id}"));
            Err(error::store(
                error.to_string(),
                format!("nothing that was committed is lost; then go on with `{hint}`"),
            ))
        }
    }
}
