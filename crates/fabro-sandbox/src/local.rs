use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use tempfile::TempPath;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::captured_outputs::CapturedOutputs;
use crate::cgroup::{self, ENTER, ENTER_SHELL};
use crate::ends::Ends;
use crate::group::Group;
use crate::guard::ControlGuard;
use crate::launch::Launch;
use crate::log::{Log, OutputChannel, OutputSink};
use crate::programs;
use crate::sandbox::{Sandbox, variables};
use crate::script::{LAST_OUTPUT, PYTHON_FROM_FILE};
use crate::{Environment, Exec, ExecError, Exit, Finished, Keep, Language, Request};

/// One argument of a process holds less than 128 KiB on Linux; longer scripts are run from a file.
const ARGUMENT_BYTES: usize = 128 * 1024 - 1;

/// Runs scripts on this machine.
#[derive(Debug, Default)]
pub struct LocalExec {
    shell: OnceLock<Option<PathBuf>>,
    sandbox: Option<Arc<Sandbox>>,
}

impl LocalExec {
    /// Looks for the shell when the first shell script is run, and then never again.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs scripts in a sandbox of this machine.
    #[must_use]
    pub fn in_sandbox(self, sandbox: Arc<Sandbox>) -> Self {
        Self { sandbox: Some(sandbox), ..self }
    }

    fn program(&self, language: Language) -> Result<&Path, ExecError> {
        match language {
            Language::Python => Ok(Path::new("python3")),
            Language::Shell => {
                let shell = self.shell.get_or_init(find_shell).as_deref();
                shell.ok_or_else(|| ExecError::Missing("sh".to_owned()))
            }
        }
    }
}

#[async_trait]
impl Exec for LocalExec {
    async fn run(&self, request: Request<'_>) -> Result<Finished, ExecError> {
        if let Some(remote) = self.sandbox.as_deref().and_then(Sandbox::as_remote) {
            return remote.run(request).await;
        }
        let started = Instant::now();
        if let Some(offset) = request.script.find('\0') {
            return Err(ExecError::Nul(offset));
        }
        let program = self.program(request.language)?;
        let own;
        let mut request = request;
        let sandbox = self.sandbox.as_deref();
        if sandbox.is_some() {
            own = variables(request.env);
            request.env = Environment::Only(&own);
        }
        let start = Start { program, request: &request, sandbox };
        let (exit, outputs) = match &request.keep {
            Keep::Logs { stdout, stderr } => run_with_logs(&start, stdout, stderr).await?,
            Keep::Log(path) => {
                let (exit, log) = run_merged(&start, Log::create(path, start.request)?).await?;
                (exit, CapturedOutputs::of_log(log))
            }
            &Keep::Ends { head, tail } => {
                let (exit, ends) = run_merged(&start, Ends::new(head, tail)).await?;
                (exit, CapturedOutputs::of_ends(ends))
            }
        };
        let CapturedOutputs { stdout, stderr, unredacted } = outputs;
        Ok(Finished { exit, stdout, stderr, unredacted, duration: started.elapsed() })
    }
}

#[expect(clippy::expect_used, reason = "the pipes were asked for")]
async fn run_with_logs(
    start: &Start<'_>,
    stdout: &Path,
    stderr: &Path,
) -> Result<(Exit, CapturedOutputs), ExecError> {
    let &Start { program, request, .. } = start;
    let mut out = OutputChannel::new(Log::create(stdout, request)?, request.redactor, program);
    let mut err = OutputChannel::new(Log::create(stderr, request)?, request.redactor, program);
    let exit = if request.cancel.is_cancelled() {
        Exit::Canceled
    } else {
        let file = long_script(request.script)?;
        let (mut child, group, guard) =
            spawn(start, file.as_deref(), Stdio::piped(), Stdio::piped())?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let drains = async { tokio::try_join!(out.drain(stdout), err.drain(stderr)).map(drop) };
        let exit = watch(child, group, program, &request.cancel, drains).await?;
        ControlGuard::finish_to(guard, &mut err)?;
        exit
    };
    Ok((exit, CapturedOutputs::of_logs(out.finish()?, err.finish()?)))
}

/// Runs a script with both streams in one sink.
async fn run_merged<S: OutputSink>(start: &Start<'_>, sink: S) -> Result<(Exit, S), ExecError> {
    let &Start { program, request, .. } = start;
    let mut channel = OutputChannel::new(sink, request.redactor, program);
    let exit = if request.cancel.is_cancelled() {
        Exit::Canceled
    } else {
        let file = long_script(request.script)?;
        let failed = |source| start_error(program, request.cwd, source);
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let reader = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
        let second = writer.try_clone().map_err(failed)?;
        let (child, group, guard) = spawn(start, file.as_deref(), writer.into(), second.into())?;
        let exit = watch(child, group, program, &request.cancel, channel.drain(reader)).await?;
        ControlGuard::finish_to(guard, &mut channel)?;
        exit
    };
    Ok((exit, channel.finish()?))
}

/// Waits for the child, then for its group, copying its output all the while.
async fn watch(
    mut child: Child,
    mut group: Group,
    program: &Path,
    cancel: &CancellationToken,
    drains: impl Future<Output = Result<(), ExecError>>,
) -> Result<Exit, ExecError> {
    let result = {
        let mut drained = false;
        let mut drains = std::pin::pin!(drains);
        let mut exit = std::pin::pin!(wait(&mut child, program, &mut group, cancel));
        let result = tokio::select! {
            result = &mut drains => match result {
                Ok(()) => {
                    drained = true;
                    exit.await
                }
                Err(error) => Err(error),
            },
            exit = &mut exit => exit,
        };
        match result {
            // A pipe without a writer is read to its end; the timeout is for the others.
            Ok(exit) if !drained => match timeout(LAST_OUTPUT, drains).await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) | Err(_) => Ok(exit),
            },
            result => result,
        }
    };
    if result.is_err() {
        group.end(&mut child).await;
    }
    result
}

async fn wait(
    child: &mut Child,
    program: &Path,
    group: &mut Group,
    cancel: &CancellationToken,
) -> Result<Exit, ExecError> {
    let status = tokio::select! {
        biased;
        status = child.wait() => status.map_err(|source| ExecError::watch(program, source))?,
        () = cancel.cancelled() => {
            group.end(child).await;
            return Ok(Exit::Canceled);
        }
    };
    group.end_rest().await;
    Ok(exit(status))
}

#[expect(clippy::expect_used, reason = "an ended process has a code or a signal")]
pub(crate) fn exit(status: ExitStatus) -> Exit {
    match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.signal().expect("a process without a code got a signal")),
    }
}

/// What a script is started with.
struct Start<'a> {
    program: &'a Path,
    request: &'a Request<'a>,
    sandbox: Option<&'a Sandbox>,
}

fn spawn(
    start: &Start<'_>,
    file: Option<&Path>,
    stdout: Stdio,
    stderr: Stdio,
) -> Result<(Child, Group, Option<ControlGuard>), ExecError> {
    let &Start { program, request, sandbox } = start;
    let cgroup = match request.env {
        Environment::Only(variables) if sandbox.is_none() => cgroup::of(variables),
        _ => None,
    };
    let cgroup = cgroup.filter(|_| Path::new(ENTER_SHELL).is_file());
    let first = if cgroup.is_some() { Path::new(ENTER_SHELL) } else { program };
    let failed = |source| start_error(program, request.cwd, source);
    let guard = guard(sandbox, request.cwd)?;
    let reads = [request.reads, request.script_reads].concat();
    let mut command =
        command(first, request.cwd, sandbox, &reads, file, guard.as_ref()).map_err(failed)?;
    if let Some(dir) = &cgroup {
        command.args(["-c", ENTER]).arg(dir.join("cgroup.procs")).arg(program);
    }
    let script = sandbox.and(file).map(|_| Sandbox::script_path());
    let file = script.as_deref().map(Path::new).or(file);
    match (request.language, file) {
        (_, None) => command.args(["-c", request.script]),
        (Language::Shell, Some(file)) => command.arg(file),
        (Language::Python, Some(file)) => command.args(["-c", PYTHON_FROM_FILE]).arg(file),
    };
    // A sandbox has no other processes in it, and may need privileges to be made.
    let trusted = sandbox.is_some() || matches!(request.env, Environment::Inherit(_));
    let variables = match request.env {
        Environment::Inherit(variables) => variables,
        Environment::Only(variables) => {
            command.env_clear();
            variables
        }
    };
    let stdin = match request.stdin {
        Some(path) => Stdio::from(File::open(path).map_err(failed)?),
        None => Stdio::null(),
    };
    command
        .envs(variables.iter().map(|(key, value)| (key, value)))
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    let (child, group) = Group::start(&mut command, variables, trusted).map_err(failed)?;
    Ok((child, group, guard))
}

/// Guards the working directory of a program in a sandbox.
pub(crate) fn guard(
    sandbox: Option<&Sandbox>,
    cwd: &Path,
) -> Result<Option<ControlGuard>, ExecError> {
    sandbox.map_or(Ok(None), |sandbox| sandbox.guard(cwd))
}

/// The command for a program in a directory, with or without a sandbox; its arguments follow.
pub(crate) fn command(
    program: &Path,
    cwd: &Path,
    sandbox: Option<&Sandbox>,
    reads: &[PathBuf],
    file: Option<&Path>,
    guard: Option<&ControlGuard>,
) -> std::io::Result<Command> {
    let Some(sandbox) = sandbox else {
        let mut command = Command::new(program);
        command.current_dir(cwd);
        return Ok(command);
    };
    let control = guard.map(|guard| &guard.found);
    Ok(sandbox.command(&Launch { program, cwd, reads, control, file })?.into())
}

pub(crate) fn start_error(program: &Path, cwd: &Path, source: std::io::Error) -> ExecError {
    let name = program.file_name().unwrap_or(OsStr::new("sh")).to_string_lossy().into_owned();
    match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory if !cwd.is_dir() => {
            ExecError::WorkingDirectory(cwd.to_owned())
        }
        ErrorKind::NotFound => ExecError::Missing(name),
        ErrorKind::ArgumentListTooLong => ExecError::EnvironmentTooLarge(name),
        _ => ExecError::Start { program: name, source },
    }
}

fn find_shell() -> Option<PathBuf> {
    let mut directories = programs::directories();
    directories.extend(["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let find = |name: &str| programs::in_directories(name, directories.iter().cloned());
    find("bash").or_else(|| find("sh"))
}

/// Writes a script that is too long for an argument to a temporary file; dropping it removes the file.
fn long_script(script: &str) -> Result<Option<TempPath>, ExecError> {
    if script.len() < ARGUMENT_BYTES {
        return Ok(None);
    }
    let written = tempfile::NamedTempFile::new().and_then(|mut file| {
        file.write_all(script.as_bytes())?;
        Ok(Some(file.into_temp_path()))
    });
    written.map_err(|source| ExecError::Log { path: std::env::temp_dir(), source })
}
