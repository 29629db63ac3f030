//! Running git.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use crate::git::{GitError, TIMEOUT};

pub(crate) const OUTPUT_BYTES: u64 = 64 * 1024 * 1024;
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

/// The output of a git command that runs in an existing directory, for one path below it.
pub(crate) async fn git(
    dir: &Path,
    command: &'static str,
    arguments: &[&str],
    path: Option<&OsStr>,
) -> Result<Vec<u8>, GitError> {
    let mut git = Command::new("git");
    git.current_dir(dir).kill_on_drop(true);
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    git.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    for variable in MISLEADING {
        git.env_remove(variable);
    }
    // A file system monitor is a program of the repository's choice, or a daemon that stays.
    git.args(["--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false"]);
    git.args(["-c", "core.hooksPath=/dev/null"]);
    git.arg(command).args(arguments);
    if let Some(path) = path {
        git.args([OsString::from("--").as_os_str(), path]);
    }
    let mut child = git.spawn()?;
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let (output, stderr) = tokio::try_join!(read(stdout), read(stderr))?;
    if output.len() as u64 > OUTPUT_BYTES {
        return Err(GitError::TooMuch(command));
    }
    if child.wait().await?.success() {
        return Ok(output);
    }
    let stderr = &stderr[..stderr.len().min(STDERR_BYTES)];
    Err(GitError::Failed(command, String::from_utf8_lossy(stderr).trim().to_owned()))
}

/// The result, or an error after the timeout.
pub(crate) async fn with_timeout<T>(
    work: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitError> {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or(Err(GitError::TimedOut))
}

/// Reads to the end, or a byte more than the limit.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
