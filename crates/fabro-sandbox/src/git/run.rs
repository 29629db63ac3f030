//! Running git.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use crate::git::{GitError, TIME_LIMIT};

const OUTPUT_BYTES: u64 = 64 * 1024 * 1024;
const STDERR_BYTES: usize = 2_000;

/// Variables that would lead git elsewhere than to the directory, as they are set inside of hooks.
pub(crate) const MISLEADING: [&str; 13] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_SHALLOW_FILE",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_LITERAL_PATHSPECS",
];

/// What git answered.
pub(crate) enum Answer {
    Output(Vec<u8>),
    /// It failed, with this on stderr.
    Refused(String),
    /// There is no git.
    NoGit,
}

impl Answer {
    /// The output; anything else is an error.
    pub(crate) fn output(self, command: &str) -> Result<Vec<u8>, GitError> {
        match self {
            Self::Output(output) => Ok(output),
            Self::Refused(stderr) => Err(GitError::Failed { command: command.to_owned(), stderr }),
            Self::NoGit => Err(GitError::Run(ErrorKind::NotFound.into())),
        }
    }
}

/// Runs a command of git in a directory that is there, about one path below it.
pub(crate) async fn git(
    dir: &Path,
    command: &str,
    arguments: &[&str],
    path: Option<&OsStr>,
) -> Result<Answer, GitError> {
    let mut git = Command::new("git");
    git.current_dir(dir).kill_on_drop(true);
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    git.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    for variable in MISLEADING {
        git.env_remove(variable);
    }
    // A file system monitor is a program of the repository's choice, or a daemon that stays.
    git.args(["--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false"]);
    git.arg(command).args(arguments);
    if let Some(path) = path {
        git.args([OsString::from("--").as_os_str(), path]);
    }
    let mut child = match git.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Answer::NoGit),
        spawned => spawned?,
    };
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let (output, said) = tokio::try_join!(read(stdout), read(stderr))?;
    if output.len() as u64 > OUTPUT_BYTES {
        return Err(GitError::TooMuch { command: command.to_owned(), limit: OUTPUT_BYTES });
    }
    if child.wait().await?.success() {
        return Ok(Answer::Output(output));
    }
    let said = &said[..said.len().min(STDERR_BYTES)];
    Ok(Answer::Refused(String::from_utf8_lossy(said).trim().to_owned()))
}

/// What is done within the time there is.
pub(crate) async fn within_time<T>(
    work: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitError> {
    let timed = tokio::time::timeout(TIME_LIMIT, work).await;
    timed.unwrap_or(Err(GitError::TimedOut { limit: TIME_LIMIT }))
}

/// Reads to the end, or a byte more than the limit.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
