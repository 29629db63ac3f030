//! Driving a run from the command line: lock, leftovers, signals, and the exit code.

use std::path::Path;
use std::sync::Arc;

use fabro_engine::{DriveError, Input, Machine, Phase, Plan, RunEnd, RunState, World, checkpoint};
use fabro_events::{Event, EventSink, PauseReason};
use fabro_graph::NodeKind;
use fabro_handlers::{RunSettings, StatusFiles};
use fabro_inspect::{Gate, gate_names};
use fabro_run::{NotPrepared, at_work, end_family, end_stages_left_behind, prepare, prepare_dir};
use fabro_sandbox::LocalExec;
use fabro_store::{DriverLock, SqliteStore};
use fabro_types::{RunId, RunStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::answer::gates;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::wiring;
use fabro_terminal::{Mode, Progress};

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
    let Driven { store, lock, plan, mut settings, dry_run, state, events, max_cost, mode } = driven;
    if !dry_run {
        settings.env = fabro_run::expanded(&settings.env)?;
    }
    let store = Arc::new(store);
    let run_id = lock.run();
    let has_children = plan.workflow().nodes().any(|node| node.kind == NodeKind::ManagerLoop);
    let run_dir = store.run_dir(run_id);
    let progress = Progress::new(mode, global.paint_stderr(), wiring::now_ms);
    progress.recall(&checkpoint::effective(&events));
    let all_runs = run_dir.parent().map(Path::to_owned).unwrap_or_default();
    let warned = Arc::clone(&progress);
    let files = Arc::new(StatusFiles::new(all_runs, move |text| warned.warn(text)));
    let shown: Arc<dyn EventSink> = Arc::clone(&progress) as _;
    let handler = wiring::handlers(&settings, run_id, dry_run, &events, &progress, files.clone())?;
    let is_new = state.phase == Phase::Created;
    if !is_new || prepare_dir(&run_dir).exists() {
        end_stages_left_behind(&*store, run_id).await?;
        files.catch_up(&events);
    }
    if has_children && !is_new {
        for member in at_work(&*store, run_id).await?.iter().skip(1) {
            progress.recall_child(&member.events);
        }
    }
    drop(events);
    let stop = CancellationToken::new();
    let work_dir = state.created.as_ref().map(|c| c.work_dir.clone()).unwrap_or_default();
    let mut first = if is_new { Input::Start } else { Input::Resume { max_cost } };
    let work = async {
        if is_new && !dry_run {
            let (exec, work_dir) = (LocalExec::new(), Path::new(&work_dir));
            let redactor = fabro_run::redactor(&settings);
            match prepare(&exec, &settings, run_id, &run_dir, work_dir, &redactor, &stop).await {
                Ok(()) => {}
                Err(NotPrepared::Failed(failure)) => first = Input::Abort { failure },
                Err(NotPrepared::CannotRecord { message }) => {
                    return Err(DriveError::Record { stage: "prepare".into(), message });
                }
                Err(_) => return Ok(RunEnd::Stopped),
            }
        }
        let machine = Machine::new(plan, state, Arc::clone(&store) as _);
        let world = World {
            store: Arc::clone(&store) as _,
            handler,
            sink: Arc::new(vec![files, shown]),
            clock: Arc::new(wiring::now_ms),
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
        end_family(&*store, run_id, wiring::now_ms(), "the run it is part of is over").await?;
    }
    let waiting = match end {
        Ok(RunEnd::Paused(PauseReason::Human)) => gates(&store, run_id).await?.1,
        _ => Vec::new(),
    };
    drop(lock);
    conclude(end, &waiting, run_id, mode, global)
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

fn conclude(
    end: Result<RunEnd, DriveError>,
    waiting: &[Gate],
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
            let places = gate_names(waiting).join(", ");
            let at = if places.is_empty() { places } else { format!(" at {places}") };
            let next = if reason == PauseReason::Budget {
                global.command(&format!("resume {run_id} --max-cost USD"))
            } else {
                let gate = if waiting.len() > 1 { "GATE " } else { "" };
                let answer = global.command(&format!("answer {run_id} {gate}CHOICE"));
                format!("{answer} and then {}", global.command(&format!("resume {run_id}")))
            };
            say(format!("run {run_id} is paused{at}. Go on with: {next}\n"));
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
