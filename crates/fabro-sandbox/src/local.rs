use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempPath;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::ends::Ends;
use crate::group::Group;
use crate::log::{Channel, DrainError, Log, trimmed};
use crate::{Captured, Environment, Exec, ExecError, Exit, Finished, Keep, Language, Request};

/// One argument of a process holds less than 128 KiB on Linux; longer scripts are run from a file.
const ARGUMENT_BYTES: usize = 128 * 1024 - 1;

/// How long output is read on when the group is gone but something outside it holds the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// Runs a script from a file just as `python3 -c` would: same arguments, same module path.
const PYTHON_FROM_FILE: &str = "import sys\n\
    exec(compile(open(sys.argv.pop(), encoding='utf-8').read(), '<string>', 'exec'))";

/// Runs scripts on this machine.
#[derive(Debug, Default)]
pub struct LocalExec {
    shell: OnceLock<Option<PathBuf>>,
}

impl LocalExec {
    /// Looks for the shell when the first shell script is run, and then never again.
    pub fn new() -> Self {
        Self::default()
    }

    fn program(&self, language: Language) -> Result<&Path, ExecError> {
        match language {
            Language::Python => Ok(Path::new("python3")),
            Language::Shell => self
                .shell
                .get_or_init(find_shell)
                .as_deref()
                .ok_or_else(|| ExecError::Missing { program: "sh".to_owned() }),
        }
    }
}

#[async_trait]
impl Exec for LocalExec {
    async fn run(&self, request: Request<'_>) -> Result<Finished, ExecError> {
        let started = Instant::now();
        if let Some(offset) = request.script.find('\0') {
            return Err(ExecError::Nul { offset });
        }
        let program = self.program(request.language)?;
        let (exit, stdout, stderr) = match &request.keep {
            Keep::Logs { stdout, stderr } => {
                run_with_logs(program, &request, stdout, stderr).await?
            }
            &Keep::Ends { head, tail } => {
                let (exit, text) = run_with_ends(program, &request, Ends::new(head, tail)).await?;
                (exit, Captured::Text(text), Captured::Text(String::new()))
            }
        };
        Ok(Finished { exit, stdout, stderr, duration: started.elapsed() })
    }
}

async fn run_with_logs(
    program: &Path,
    request: &Request<'_>,
    stdout: &Path,
    stderr: &Path,
) -> Result<(Exit, Captured, Captured), ExecError> {
    let mut out = Channel::new(Log::create(stdout)?, request.redactor);
    let mut err = Channel::new(Log::create(stderr)?, request.redactor);
    let exit = if request.cancel.is_cancelled() {
        Exit::Canceled
    } else {
        let file = LongScript::write_beside(stdout, request.script)?;
        let mut child = spawn(program, request, file.path(), Stdio::piped(), Stdio::piped())?;
        let pipes = child.stdout.take().zip(child.stderr.take());
        let drains = async {
            let Some((stdout, stderr)) = pipes else {
                return Err(DrainError::Read(ErrorKind::NotFound.into()));
            };
            tokio::try_join!(out.drain(stdout), err.drain(stderr)).map(drop)
        };
        let ended = watch(child, &request.cancel, drains).await;
        ended.map_err(|stop| stop.error(program))?
    };
    Ok((exit, out.finish()?.captured(), err.finish()?.captured()))
}

async fn run_with_ends(
    program: &Path,
    request: &Request<'_>,
    ends: Ends,
) -> Result<(Exit, String), ExecError> {
    let mut channel = Channel::new(ends, request.redactor);
    let exit = if request.cancel.is_cancelled() {
        Exit::Canceled
    } else {
        let file = LongScript::write_somewhere(request.script)?;
        let failed = |source| start_error(program, request.cwd, source);
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let reader = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
        let second = writer.try_clone().map_err(failed)?;
        let child = spawn(program, request, file.path(), writer.into(), second.into())?;
        let ended = watch(child, &request.cancel, channel.drain(reader)).await;
        ended.map_err(|stop| stop.error(program))?
    };
    Ok((exit, trimmed(channel.finish()?.text())))
}

/// Waits for the child, then for its group, copying its output all the while.
async fn watch(
    mut child: Child,
    cancel: &CancellationToken,
    drains: impl Future<Output = Result<(), DrainError>>,
) -> Result<Exit, Stop> {
    let Some(mut group) = Group::of(&child) else {
        return Err(Stop::Watch(ErrorKind::NotFound.into()));
    };
    let ended = {
        let mut drained = false;
        let mut drains = std::pin::pin!(drains);
        let mut ending = std::pin::pin!(ended(&mut child, &mut group, cancel));
        let ended = tokio::select! {
            result = &mut drains => match result {
                Ok(()) => {
                    drained = true;
                    ending.await
                }
                Err(error) => Err(error.into()),
            },
            exit = &mut ending => exit,
        };
        match ended {
            // A pipe without a writer is read to its end; the timeout is for the others.
            Ok(exit) if !drained => match timeout(LAST_OUTPUT, drains).await {
                Ok(Err(error)) => Err(error.into()),
                Ok(Ok(())) | Err(_) => Ok(exit),
            },
            ended => ended,
        }
    };
    if ended.is_err() {
        group.end(&mut child).await;
    }
    ended
}

async fn ended(
    child: &mut Child,
    group: &mut Group,
    cancel: &CancellationToken,
) -> Result<Exit, Stop> {
    let status = tokio::select! {
        biased;
        status = child.wait() => status.map_err(Stop::Watch)?,
        () = cancel.cancelled() => {
            group.end(child).await;
            return Ok(Exit::Canceled);
        }
    };
    group.end_rest().await;
    Ok(exit(status))
}

pub(crate) fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

fn spawn(
    program: &Path,
    request: &Request<'_>,
    file: Option<&Path>,
    stdout: Stdio,
    stderr: Stdio,
) -> Result<Child, ExecError> {
    let mut command = Command::new(program);
    match (request.language, file) {
        (_, None) => command.args(["-c", request.script]),
        (Language::Shell, Some(file)) => command.arg(file),
        (Language::Python, Some(file)) => command.args(["-c", PYTHON_FROM_FILE]).arg(file),
    };
    let variables = match request.env {
        Environment::Inherit(variables) => variables,
        Environment::Only(variables) => {
            command.env_clear();
            variables
        }
    };
    command
        .current_dir(request.cwd)
        .envs(variables.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    command.spawn().map_err(|source| start_error(program, request.cwd, source))
}

pub(crate) fn start_error(program: &Path, cwd: &Path, source: std::io::Error) -> ExecError {
    let name = program.file_name().unwrap_or(OsStr::new("sh")).to_string_lossy().into_owned();
    match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory if !cwd.is_dir() => {
            ExecError::WorkingDirectory { path: cwd.to_owned() }
        }
        ErrorKind::NotFound => ExecError::Missing { program: name },
        ErrorKind::ArgumentListTooLong => ExecError::EnvironmentTooLarge { program: name },
        _ => ExecError::Start { program: name, source },
    }
}

fn find_shell() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<_> = std::env::split_paths(&path).collect();
    directories.extend(["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let find = |name: &str| {
        let mut places = directories.iter().map(|directory| directory.join(name));
        places.find(|place| place.is_absolute() && place.is_file())
    };
    find("bash").or_else(|| find("sh"))
}

/// The file that a script too long for an argument is run from; dropping it removes the file.
enum LongScript {
    NotNeeded,
    Beside(PathBuf),
    Somewhere(TempPath),
}

impl LongScript {
    /// Beside the log of standard output, for that is the one place known to be the run's own.
    fn write_beside(log: &Path, script: &str) -> Result<Self, ExecError> {
        if script.len() < ARGUMENT_BYTES {
            return Ok(Self::NotNeeded);
        }
        let mut name = log.as_os_str().to_owned();
        name.push(".script");
        // The script starts in another directory, where a relative path would lead elsewhere.
        let written = std::path::absolute(&name).and_then(|path| {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            std::fs::write(&path, script).map(|()| path)
        });
        match written {
            Ok(path) => Ok(Self::Beside(path)),
            Err(source) => Err(ExecError::Log { path: name.into(), source }),
        }
    }

    /// Among the temporary files.
    fn write_somewhere(script: &str) -> Result<Self, ExecError> {
        if script.len() < ARGUMENT_BYTES {
            return Ok(Self::NotNeeded);
        }
        let written = tempfile::NamedTempFile::new().and_then(|mut file| {
            file.write_all(script.as_bytes())?;
            Ok(file.into_temp_path())
        });
        let path = std::env::temp_dir();
        written.map(Self::Somewhere).map_err(|source| ExecError::Log { path, source })
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::NotNeeded => None,
            Self::Beside(path) => Some(path),
            Self::Somewhere(path) => Some(path),
        }
    }
}

impl Drop for LongScript {
    fn drop(&mut self) {
        if let Self::Beside(path) = self {
            // A file left behind is harmless: the next script of this log overwrites it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Why a running script was given up.
enum Stop {
    Drain(DrainError),
    Watch(std::io::Error),
}

impl From<DrainError> for Stop {
    fn from(error: DrainError) -> Self {
        Self::Drain(error)
    }
}

impl Stop {
    fn error(self, program: &Path) -> ExecError {
        match self {
            Self::Drain(DrainError::Write(path, source)) => ExecError::Log { path, source },
            Self::Drain(DrainError::Read(source)) | Self::Watch(source) => {
                ExecError::Watch { program: program.display().to_string(), source }
            }
        }
    }
}
