//! The sandbox of a run, by its settings.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fabro_config::{SandboxProvider, SandboxSettings, Workspace};
use fabro_events::EventBody;
use fabro_sandbox::{
    BwrapSettings, DockerSettings, EngineSettings, RemoteSettings, Sandbox, SandboxError,
    SshSettings, agent_env, remove_sandbox, rename_left_control_files,
};
use fabro_store::{RunStore, Store};
use fabro_types::RunId;
use fabro_types::control_files::STORE_FILE;

use crate::lease::with_lease;
use crate::secrets::{expand_env, text_variables, variable};
use crate::{Bundle, RunError, SetupError};

/// How many processes and threads a sandbox has where the settings do not say.
const MAX_PROCESSES: u32 = 4_096;

/// The most that is copied back after a script where the settings do not say, in bytes.
const COPY_LIMIT: u64 = 1 << 30;

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
    run: RunId,
    work_dir: &Path,
    run_dir: &Path,
) -> Result<Option<Arc<Sandbox>>, SetupError> {
    build(settings, &run.to_string(), work_dir, &state_dir(run_dir), hidden(run_dir, work_dir))
}

/// Checks that a program starts in the sandbox of a run in this directory, and gets the image of a container if it is
/// not there, which may take minutes. Nothing else is left.
pub(crate) async fn check(settings: &SandboxSettings, work_dir: &Path) -> Result<(), SetupError> {
    if !settings.is_confined() {
        return Ok(());
    }
    let (settings, work_dir) = (settings.clone(), work_dir.to_owned());
    // Leases are renewed, and other runs continue, in the meantime.
    let checked = tokio::task::spawn_blocking(move || check_now(&settings, &work_dir)).await;
    checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

fn check_now(settings: &SandboxSettings, work_dir: &Path) -> Result<(), SetupError> {
    let mut checked = settings.clone();
    if settings.provider == Some(SandboxProvider::Bwrap) {
        // The run has no directory yet in which `/tmp` could be.
        checked.tmp_size = settings.tmp_size.or(Some(1 << 20));
    }
    let run = format!("check{}", std::process::id());
    let sandbox = build(&checked, &run, work_dir, Path::new(""), Vec::new())?;
    sandbox.map_or(Ok(()), |sandbox| sandbox.check().map_err(|error| refused(settings, &error)))
}

/// Starts the container of a run, or the connection to the other machine. Returns what is to be said of files that
/// scripts of a killed driver have left.
pub(crate) async fn start(
    settings: &SandboxSettings,
    sandbox: &Sandbox,
    run_dir: &Path,
) -> Result<String, SetupError> {
    sandbox.start().await.map_err(|error| {
        let name = settings.provider.map_or("local", SandboxProvider::name);
        SetupError::new(format!("the sandbox `{name}` does not start: {error}"), error.fix())
    })?;
    rename_left(run_dir).await
}

/// Renames control files that scripts of a killed driver have left; the scripts have ended. Returns a line for each.
pub(crate) async fn rename_left(run_dir: &Path) -> Result<String, SetupError> {
    let dir = state_dir(run_dir);
    let renamed = tokio::task::spawn_blocking(move || rename_left_control_files(&dir)).await;
    let renamed = renamed.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    renamed.map_err(|error| {
        SetupError::new(
            format!("a script of a killed process may have left files: {error}"),
            "then resume the run",
        )
    })
}

/// Removes what the sandbox of a run has kept, unless it is to be preserved.
///
/// # Errors
///
/// A container or another machine cannot be reached.
pub(crate) async fn remove_state(
    settings: &SandboxSettings,
    run: RunId,
    run_dir: &Path,
) -> Result<(), SetupError> {
    if settings.preserve == Some(true) {
        return Ok(());
    }
    let dir = state_dir(run_dir);
    if dir.exists() {
        // What cannot be removed is removed with the run.
        let _ = std::fs::remove_dir_all(dir);
    }
    remove_remote(settings, run).await
}

/// Removes the container of a run, or its directory on another machine, and ends what runs there.
async fn remove_remote(settings: &SandboxSettings, run: RunId) -> Result<(), SetupError> {
    let Some(engine) = engine(settings)? else { return Ok(()) };
    let removed =
        tokio::task::spawn_blocking(move || remove_sandbox(&run.to_string(), engine)).await;
    let removed = removed.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    removed.map_err(|error| {
        SetupError::new(
            format!("the sandbox of run {run} could not be removed: {error}"),
            error.fix(),
        )
    })
}

/// Removes the sandbox of a recorded run, whether or not it was preserved; one that does not exist is no error. No
/// process can drive the run meanwhile.
///
/// # Errors
///
/// The run is being driven, a container or another machine cannot be reached, or the store cannot be read.
pub async fn remove_run_sandbox(store: &dyn RunStore, run: RunId) -> Result<(), RunError> {
    match recorded(store, run).await? {
        Some(settings) if engine(&settings)?.is_some() => {
            with_lease(store, run, async |_| Ok(remove_remote(&settings, run).await?)).await
        }
        _ => Ok(()),
    }
}

/// Removes the sandbox of a run that was canceled while no process drove it, unless it is to be preserved.
pub(crate) async fn remove_canceled_sandbox(store: &dyn Store, run: RunId) -> Result<(), RunError> {
    match recorded(store, run).await? {
        Some(settings) if settings.preserve != Some(true) => {
            Ok(remove_remote(&settings, run).await?)
        }
        _ => Ok(()),
    }
}

/// The settings of the sandbox that a recorded run may have used.
async fn recorded(store: &dyn Store, run: RunId) -> Result<Option<SandboxSettings>, RunError> {
    let first = store.read(run, 0, 1).await?.pop();
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Ok(None);
    };
    if created.dry_run || created.parent.is_some() {
        return Ok(None);
    }
    Ok(Some(Bundle::load(store, &created)?.settings.sandbox))
}

fn build(
    settings: &SandboxSettings,
    run: &str,
    work_dir: &Path,
    state_dir: &Path,
    hidden: Vec<PathBuf>,
) -> Result<Option<Arc<Sandbox>>, SetupError> {
    let sandbox = match engine(settings)? {
        Some(engine) => Sandbox::remote(RemoteSettings {
            run: run.to_owned(),
            work_dir: work_dir.to_owned(),
            state_dir: state_dir.to_owned(),
            hidden,
            write_git: settings.write_git == Some(true),
            exclude: settings.exclude.clone(),
            copy_limit: settings.copy_limit.unwrap_or(COPY_LIMIT),
            engine,
        }),
        None if settings.is_confined() => Sandbox::bwrap(&BwrapSettings {
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
        }),
        None => return Ok(None),
    };
    Ok(Some(Arc::new(sandbox.map_err(|error| refused(settings, &error))?)))
}

/// Whether the settings go together, on any machine.
pub(crate) fn check_settings(settings: &SandboxSettings) -> Result<(), SetupError> {
    engine(settings).map(|_| ())
}

/// Where scripts run, if not on this machine.
fn engine(settings: &SandboxSettings) -> Result<Option<EngineSettings>, SetupError> {
    let copy = settings.workspace == Some(Workspace::Copy);
    let is_ssh = settings.provider == Some(SandboxProvider::Ssh);
    let shares = settings.read.is_some() || settings.write.is_some();
    if settings.is_remote() && (copy || is_ssh) && shares {
        return Err(SetupError::new(
            "`run.sandbox.read` and `run.sandbox.write` share files of this machine, and the sandbox has only a copy of the working directory",
            "remove them, or use a container with `workspace = \"mount\"`",
        ));
    }
    match settings.provider {
        Some(SandboxProvider::Docker) => {
            let image = settings.image.clone().ok_or_else(|| {
                SetupError::new(
                    "the sandbox `docker` has no image",
                    "set `run.sandbox.image`, for example to \"debian:12\"",
                )
            })?;
            Ok(Some(EngineSettings::Docker(DockerSettings {
                image,
                memory: settings.memory,
                cpus: settings.cpus,
                max_processes: settings.max_processes.unwrap_or(MAX_PROCESSES),
                network: settings.network == Some(true),
                tmp_size: settings.tmp_size,
                copy,
                read: settings.read.clone().unwrap_or_default(),
                write: settings.write.clone().unwrap_or_default(),
            })))
        }
        Some(SandboxProvider::Ssh) => {
            let host = settings.host.clone().ok_or_else(|| {
                SetupError::new(
                    "the sandbox `ssh` has no host",
                    "set `run.sandbox.host` to \"user@host\", or to a name of ~/.ssh/config",
                )
            })?;
            let directory = settings.directory.clone();
            Ok(Some(EngineSettings::Ssh(SshSettings { host, directory, config: None })))
        }
        _ => Ok(None),
    }
}

fn refused(settings: &SandboxSettings, error: &SandboxError) -> SetupError {
    let name = settings.provider.map_or("local", SandboxProvider::name);
    let is_missing = matches!(error, SandboxError::Missing { .. } | SandboxError::Broken { .. })
        && !settings.is_remote();
    let which = if is_missing { "this machine does not have" } else { "cannot be used" };
    SetupError::new(
        format!("the run asks for the sandbox `{name}`, which {which}: {error}"),
        format!("{}; or run without a sandbox", error.fix()),
    )
}

/// The record of runs: their directories, the store that these are in, and the stores of the projects that contain the
/// working directory, which a run that is recorded elsewhere does not see either. The user's settings are beside
/// logins, and may be outside of the home directory.
fn hidden(run_dir: &Path, work_dir: &Path) -> Vec<PathBuf> {
    let own = run_dir.parent().map(|runs| store_of(runs).to_owned());
    let of_projects = work_dir.ancestors().map(|dir| dir.join(".fabro/state"));
    let of_variable = |name, below| Some(Path::new(&variable(name)?).join(below));
    let settings = [of_variable("XDG_CONFIG_HOME", "fabro"), of_variable("HOME", ".config/fabro")];
    let settings = settings.into_iter().flatten().filter(|dir| dir.is_absolute() && dir.is_dir());
    own.into_iter().chain(of_projects.filter(|state| state.is_dir())).chain(settings).collect()
}

/// The store that a directory of runs is in, or the directory itself if they are recorded elsewhere.
pub(crate) fn store_of(runs_dir: &Path) -> &Path {
    runs_dir.parent().filter(|store| store.join(STORE_FILE).is_file()).unwrap_or(runs_dir)
}

/// A command that runs `/bin/sh` with these arguments in the sandbox of a recorded run, for a person at a terminal or for
/// a program. The sandbox is to be kept until the command has ended.
///
/// # Errors
///
/// The run has no sandbox, or its sandbox cannot be used here.
pub async fn sandbox_command(
    store: &dyn Store,
    run: RunId,
    run_dir: &Path,
    args: &[String],
    terminal: bool,
) -> Result<(Command, Arc<Sandbox>), RunError> {
    let first = store.read(store.root(run).await?, 0, 1).await?.pop();
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Err(RunError::NotCreated { run });
    };
    let settings = Bundle::load(store, &created)?.settings;
    let work_dir = Path::new(&created.work_dir);
    let Some(sandbox) = run_sandbox(&settings.sandbox, store.root(run).await?, work_dir, run_dir)?
    else {
        let message = format!("run {run} has no sandbox: its files are in {}", created.work_dir);
        return Err(SetupError::new(message, "start runs with a sandbox to have one").into());
    };
    // Those of the user name directories of this machine.
    let user = text_variables().filter(|_| !settings.sandbox.is_remote());
    let env = agent_env(user, expand_env(&settings.env)?);
    let command = sandbox.interactive(work_dir, &env, args, terminal);
    let command = command.map_err(|error| SetupError::new(error.to_string(), error.fix()))?;
    Ok((command, sandbox))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_of_the_run_and_of_the_project_are_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["store/runs/1", "p/.fabro/state", "p/sub"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        let check = |expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(|name| path(name)).collect();
            assert_eq!(hidden(&path("store/runs/1"), &path("p/sub")), expected);
        };
        check(&["store/runs", "p/.fabro/state"]);
        std::fs::write(path("store/fabro.db"), "").unwrap();
        check(&["store", "p/.fabro/state"]);
    }
}
