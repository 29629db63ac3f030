//! What the command line, the server and its tools do to a run of a store on this machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fabro_engine::{Phase, RunState, checkpoint, read_all};
use fabro_events::{EventBody, PauseReason};
use fabro_sandbox::artifacts::share;
use fabro_sandbox::git::share_file_trees;
use fabro_sandbox::record_processes;
use fabro_store::{Leases as _, Runs as _, SqliteStore, StoreError};
use fabro_types::RunId;

use crate::bundle::Bundle;
use crate::control::{Cancellation, ForkChanges, ForkPoint, cancel, check_at, fork};
use crate::resume_options::{RefreshedModels, ResumeOptions};
use crate::run::Run;
use crate::run_id::RUN_ID_VARIABLE;
use crate::sandbox::rename_left;
use crate::spec::RunSpec;
use crate::unread_inputs::unread_inputs;
use crate::{RunError, SetupError};

/// A run that a background driver continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRun {
    /// The run.
    pub id: RunId,
    /// What the caller should know, as of [`Run::warnings`].
    pub warnings: Vec<String>,
}

/// What a resume in the background changes. The rest is as when the run was created.
#[derive(Clone, Debug, Default)]
pub struct BackgroundOptions {
    /// A new spending limit in US dollars.
    pub max_cost: Option<f64>,
    /// Answer every gate with its default, else its first option.
    pub auto_approve: bool,
    /// Providers and models that replace those of the same names. The driver reads them again from
    /// the settings of its working directory.
    pub models: Option<RefreshedModels>,
    /// The last sequence number of the run that the caller has seen: the run is not resumed when its log
    /// ends elsewhere.
    pub at: Option<u64>,
}

/// The command that resumes a run in a process of its own: `PROGRAM resume RUN --store DIR`, with
/// `program` as the `fabro` program.
pub fn driver_command(program: &Path, store: &SqliteStore, run: RunId) -> Command {
    let mut driver = Command::new(program);
    driver.args(["resume", &run.to_string(), "--store"]).arg(store.dir());
    driver
}

/// Creates a run, and drives it in a process of its own, which needs the caller no more.
///
/// # Errors
///
/// As of [`Run::create`] and [`Run::detach`].
pub async fn start_in_background(
    store: Arc<SqliteStore>,
    spec: RunSpec,
    program: &Path,
) -> Result<StartedRun, RunError> {
    let mut warnings = spec.warnings.clone();
    let run = Run::create(store.clone(), &store.runs_dir(), spec).await?;
    warnings.extend_from_slice(run.warnings());
    let driver = driver_command(program, &store, run.id());
    let id = run.detach(driver).await?;
    Ok(StartedRun { id, warnings })
}

/// Resumes a run in a process of its own, which needs the caller no more.
///
/// # Errors
///
/// As of [`Run::open`], [`Run::with_resume_options`], [`Run::check_resumed`] and [`Run::detach`].
pub async fn resume_in_background(
    store: Arc<SqliteStore>,
    run: RunId,
    options: BackgroundOptions,
    program: &Path,
) -> Result<StartedRun, RunError> {
    if let Some(limit) = options.max_cost.filter(|limit| !limit.is_finite() || *limit <= 0.0) {
        let message = format!("{limit} is no spending limit");
        return Err(SetupError::new(message, "name an amount in US dollars above 0").into());
    }
    let mut driver_options: Vec<OsString> = Vec::new();
    if let Some(limit) = options.max_cost {
        driver_options.extend(["--max-cost".into(), limit.to_string().into()]);
    }
    if options.auto_approve {
        driver_options.push("--auto-approve".into());
    }
    if options.models.is_some() {
        driver_options.push("--refresh-providers".into());
    }
    let opened = Run::open(store.clone(), &store.runs_dir(), run).await?;
    if let Some(at) = options.at {
        opened.check_at(at)?;
        driver_options.extend(["--at-seq".into(), at.to_string().into()]);
    }
    let changes = ResumeOptions {
        max_cost: options.max_cost,
        auto_approve: options.auto_approve,
        models: options.models,
        ..ResumeOptions::default()
    };
    let mut opened = opened.with_resume_options(changes)?;
    opened.check_resumed().await?;
    let warnings = opened.warnings().to_vec();
    let mut driver = driver_command(program, &store, run);
    driver.args(driver_options);
    match opened.detach(driver).await {
        Ok(id) => Ok(StartedRun { id, warnings }),
        Err(error @ RunError::DriverEnded { .. }) => {
            // Another process may have come first, after this one had released the run.
            if let Some(owner) = store.driver(run).await? {
                return Err(StoreError::Driven { run, pid: Some(owner.pid) }.into());
            }
            check_at(&*store, run, options.at).await?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// The result of answering a gate of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumedByAnswer {
    /// The run was resumed in the background.
    Resumed(StartedRun),
    /// A process already drives the run and reads the answer.
    Driven,
    /// The run is not paused for people alone: it was interrupted, or waits for budget or a model.
    NotWaiting,
}

/// Resumes a run in the background if it was paused for unanswered gates.
///
/// # Errors
///
/// As of [`resume_in_background`].
pub async fn resume_answered(
    store: Arc<SqliteStore>,
    run: RunId,
    program: &Path,
) -> Result<ResumedByAnswer, RunError> {
    if store.driver(run).await?.is_some() {
        return Ok(ResumedByAnswer::Driven);
    }
    let state = RunState::replay(run, &read_all(&*store, run).await?);
    if state.phase != Phase::Paused(PauseReason::Human) {
        return Ok(ResumedByAnswer::NotWaiting);
    }
    match resume_in_background(store, run, BackgroundOptions::default(), program).await {
        Ok(started) => Ok(ResumedByAnswer::Resumed(started)),
        Err(RunError::Store(StoreError::Driven { .. })) => Ok(ResumedByAnswer::Driven),
        Err(error) => Err(error),
    }
}

/// Cancels a run and its sub-workflows: [`cancel`], which also ends processes that a dead driver of
/// this machine left behind, and renames files of its scripts that later runs would obey.
///
/// # Errors
///
/// As of [`cancel`].
pub async fn cancel_here(
    store: &SqliteStore,
    run: RunId,
    reason: &str,
    at: Option<u64>,
) -> Result<Cancellation, RunError> {
    record_processes(RUN_ID_VARIABLE, &store.runs_dir());
    let canceled = cancel(store, run, reason, at).await?;
    let Cancellation::Ended { warning } = canceled else { return Ok(canceled) };
    let run_dir = store.runs_dir().join(store.root(run).await?.to_string());
    // The run is canceled all the same.
    let renamed = rename_left(&run_dir).await.unwrap_or_else(|error| error.to_string());
    let lines = warning.into_iter().chain(renamed.lines().map(str::to_owned)).collect::<Vec<_>>();
    Ok(Cancellation::Ended { warning: (!lines.is_empty()).then(|| lines.join("\n")) })
}

/// Copies a run as [`fork`] does, with its artifacts: the copy keeps them when the original is removed.
/// Returns a warning for each artifact that cannot be kept, and for each input that the workflow does not read.
///
/// # Errors
///
/// As of [`fork`]; or there are several such stages.
pub async fn fork_here(
    store: &SqliteStore,
    from: RunId,
    stage: Option<&str>,
    changes: &ForkChanges,
    at: Option<u64>,
) -> Result<(ForkPoint, Vec<String>), RunError> {
    let point = fork(store, from, stage, changes, at).await?;
    let dir = |run: RunId| store.runs_dir().join(run.to_string());
    let mut warnings = Vec::new();
    for event in checkpoint::effective(&read_all(store, point.id).await?) {
        if let EventBody::RunCreated(created) = &event.entry.body {
            let bundle = Bundle::load(store, created)?;
            let texts = bundle.files.values().chain([&bundle.source]).map(String::as_str);
            let unread = unread_inputs(&changes.inputs, texts).into_iter();
            warnings.extend(unread.map(|it| format!("{}: {}", it.message(), it.fix)));
        }
        let EventBody::ArtifactCaptured(artifact) = &event.entry.body else { continue };
        let shared = share(&dir(from), &dir(point.id), &artifact.file, &artifact.sha256);
        warnings.extend(shared.err().map(|error| error.to_string()));
    }
    let shared = share_file_trees(&dir(from), &dir(point.id));
    warnings.extend(shared.err().map(|error| error.to_string()));
    Ok((point, warnings))
}
