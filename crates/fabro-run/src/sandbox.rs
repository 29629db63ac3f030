//! The sandbox of a run, by its settings.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fabro_config::{SandboxProvider, SandboxSettings};
use fabro_events::EventBody;
use fabro_sandbox::{BwrapSettings, Sandbox, SandboxError, agent_env};
use fabro_store::Store;
use fabro_types::RunId;

use crate::secrets::{expand_env, variable};
use crate::services::text_variables;
use crate::{Bundle, RunError, SetupError};

/// How many processes and threads a sandbox has where the settings do not say.
const MAX_PROCESSES: u32 = 4_096;

/// The directory of what a sandbox keeps between two scripts.
fn state_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("sandbox")
}

/// The sandbox of a run, whose own directory is `run_dir`; `None` for a run on this machine itself.
///
/// # Errors
///
/// This machine does not have it, or the settings name what does not exist.
pub(crate) fn run_sandbox(
    settings: &SandboxSettings,
    work_dir: &Path,
    run_dir: &Path,
) -> Result<Option<Arc<Sandbox>>, SetupError> {
    build(settings, work_dir, &state_dir(run_dir), hidden(run_dir))
}

/// Checks that a program starts in the sandbox of a run in this directory. Nothing is left.
pub(crate) fn check(settings: &SandboxSettings, work_dir: &Path) -> Result<(), SetupError> {
    if !settings.is_confined() {
        return Ok(());
    }
    // The run has no directory yet in which `/tmp` could be.
    let tmp_size = settings.tmp_size.or(Some(1 << 20));
    let checked = SandboxSettings { tmp_size, ..settings.clone() };
    let sandbox = build(&checked, work_dir, Path::new(""), Vec::new())?;
    sandbox.map_or(Ok(()), |sandbox| sandbox.check().map_err(|error| refused(settings, &error)))
}

/// Removes what the sandbox of a run has kept.
pub(crate) fn remove_state(settings: &SandboxSettings, run_dir: &Path) {
    let dir = state_dir(run_dir);
    if settings.preserve != Some(true) && dir.exists() {
        // What cannot be removed is removed with the run.
        let _ = std::fs::remove_dir_all(dir);
    }
}

fn build(
    settings: &SandboxSettings,
    work_dir: &Path,
    state_dir: &Path,
    hidden: Vec<PathBuf>,
) -> Result<Option<Arc<Sandbox>>, SetupError> {
    match settings.provider {
        None | Some(SandboxProvider::Local) => Ok(None),
        Some(_) => {
            let sandbox = Sandbox::bwrap(&BwrapSettings {
                work_dir: work_dir.to_owned(),
                state_dir: state_dir.to_owned(),
                hidden,
                home: variable("HOME").map(PathBuf::from),
                network: settings.network == Some(true),
                read: settings.read.clone().unwrap_or_default(),
                write: settings.write.clone().unwrap_or_default(),
                write_git: settings.write_git == Some(true),
                tmp_size: settings.tmp_size,
                max_processes: settings.max_processes.unwrap_or(MAX_PROCESSES),
            });
            Ok(Some(Arc::new(sandbox.map_err(|error| refused(settings, &error))?)))
        }
    }
}

fn refused(settings: &SandboxSettings, error: &SandboxError) -> SetupError {
    let name = settings.provider.map_or("local", SandboxProvider::name);
    SetupError::new(
        format!("the run asks for the sandbox `{name}`, which this machine does not have: {error}"),
        format!("{}; or run without a sandbox", error.fix()),
    )
}

/// The record of runs: their directories, and the store that these are in.
fn hidden(run_dir: &Path) -> Vec<PathBuf> {
    let Some(runs) = run_dir.parent() else { return Vec::new() };
    let store = runs.parent().filter(|store| store.join("fabro.db").is_file());
    vec![store.unwrap_or(runs).to_owned()]
}

/// A command that runs a program of this machine in the sandbox of a recorded run, as a person at a terminal needs it;
/// its arguments follow. The sandbox is to be kept until the program has ended.
///
/// # Errors
///
/// The run has no sandbox, or its sandbox cannot be used here.
pub async fn sandbox_command(
    store: &dyn Store,
    run: RunId,
    run_dir: &Path,
    program: &Path,
) -> Result<(Command, Arc<Sandbox>), RunError> {
    let first = store.read(store.root(run).await?, 0, 1).await?.pop();
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Err(RunError::NotCreated { run });
    };
    let settings = Bundle::load(store, &created.bundle)?.settings;
    let work_dir = Path::new(&created.work_dir);
    let Some(sandbox) = run_sandbox(&settings.sandbox, work_dir, run_dir)? else {
        let message = format!("run {run} has no sandbox: its files are in {}", created.work_dir);
        return Err(SetupError::new(message, "start runs with a sandbox to have one").into());
    };
    let env = agent_env(text_variables(), expand_env(&settings.env)?);
    let command = sandbox.interactive(program, work_dir, &env);
    let command =
        command.map_err(|error| SetupError::new(error.to_string(), "check the directories"))?;
    Ok((command, sandbox))
}
