//! Running git.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::future::Future;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, Command};

use crate::git::filters::Filters;
use crate::git::{GitError, TIMEOUT, TRIES};
use crate::programs;
use crate::walk::walk_readable;

pub(crate) const OUTPUT_BYTES: u64 = 64 * 1024 * 1024;
const STDERR_BYTES: usize = 2_000;

/// The variables that git gets from the environment of this process: where programs, the user's
/// settings and temporary files are, and where the search for a repository ends.
pub(crate) const PASSED: [&str; 13] = [
    "GIT_CEILING_DIRECTORIES",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "HOME",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "SUDO_UID",
    "TMPDIR",
    "USER",
    "XDG_CONFIG_HOME",
];

/// No locks, no questions, no transport: a partial clone must not fetch what is missing, by a program
/// of the repository's choice.
const VARIABLES: [(&str, &str); 6] = [
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
];

/// Lets `git status` record in the index which files it has compared, so that the next one does not compare
/// them again. For work trees of our own only.
pub(crate) const OPTIONAL_LOCKS: (&str, &str) = ("GIT_OPTIONAL_LOCKS", "1");

/// Settings that override those of the repository. A file system monitor is a program, or a daemon that
/// stays; a bare repository may be a few plain files that any user may have put into a folder.
/// An index is one file: the shared part of a split one would be written into the user's repository.
const SETTINGS: [&str; 4] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.splitIndex=false",
    "safe.bareRepository=explicit",
];

/// A git command.
pub(crate) struct GitCommand<'a> {
    /// An existing directory, where it runs.
    pub(crate) dir: &'a Path,
    /// The filters of the repository, for commands that compare contents of files.
    pub(crate) filters: &'a Filters,
    /// Variables that it gets besides those of every command.
    pub(crate) variables: &'a [(&'a str, &'a OsStr)],
    /// Paths may be patterns.
    pub(crate) patterns: bool,
}

/// The output of a git command that runs in an existing directory, for one path below it. `filters` are
/// those of the repository, for commands that compare contents of files.
pub(crate) async fn git(
    dir: &Path,
    filters: &Filters,
    command: &'static str,
    arguments: &[&str],
    path: Option<&OsStr>,
) -> Result<Vec<u8>, GitError> {
    let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    if let Some(path) = path {
        all.extend([OsStr::new("--"), path]);
    }
    GitCommand { dir, filters, variables: &[], patterns: false }.output(command, &all).await
}

impl GitCommand<'_> {
    /// Its output.
    pub(crate) async fn output(
        &self,
        command: &'static str,
        arguments: &[&OsStr],
    ) -> Result<Vec<u8>, GitError> {
        match self.result(command, arguments).await? {
            (Some(0), output, _) => Ok(output),
            (_, _, message) => Err(GitError::Failed(command, message)),
        }
    }

    /// Its exit code, its output, and the beginning of what it wrote to stderr. Every git process of the
    /// program is started here; it runs no program that a repository names.
    pub(crate) async fn result(
        &self,
        command: &'static str,
        arguments: &[&OsStr],
    ) -> Result<(Option<i32>, Vec<u8>, String), GitError> {
        self.result_of(command, arguments, None).await
    }

    /// The same of a command that reads this.
    pub(crate) async fn result_of(
        &self,
        command: &'static str,
        arguments: &[&OsStr],
        input: Option<&[u8]>,
    ) -> Result<(Option<i32>, Vec<u8>, String), GitError> {
        let mut tries = 1;
        loop {
            let mut output = Vec::new();
            let limit = OUTPUT_BYTES + 1;
            let mut keep = |bytes: &[u8]| output.extend_from_slice(bytes);
            // In a box: its buffers would be in the future of every stage.
            let reading = Box::pin(self.stream(command, arguments, input, limit, &mut keep));
            let (status, message) = reading.await?;
            if output.len() as u64 > OUTPUT_BYTES {
                return Err(GitError::TooMuch(command));
            }
            let Some(signal) = status.signal() else { return Ok((status.code(), output, message)) };
            let is_shortened = signal == Signal::BUS.as_raw();
            if is_shortened {
                self.remove_lock(command)?;
            }
            if !is_shortened || tries == TRIES {
                let message = format!("{message} (ended by signal {signal})");
                return Ok((None, output, message.trim_start().to_owned()));
            }
            tries += 1;
        }
    }

    /// Removes the lock of the index that the command had. Git leaves it when a file is shortened that it has mapped
    /// into its memory, which ends it by SIGBUS.
    fn remove_lock(&self, command: &str) -> Result<(), std::io::Error> {
        let place = |wanted: &str| {
            let mut variables = self.variables.iter();
            variables.find(|(name, _)| *name == wanted).map(|(_, place)| PathBuf::from(place))
        };
        let of_dir = || Some(place("GIT_DIR")?.join("index"));
        let index = place("GIT_INDEX_FILE").or_else(of_dir);
        // Those that lock the index. Another one may belong to the user.
        let locks = ["add", "read-tree", "reset", "status", "update-index", "write-tree"];
        let Some(index) = index.filter(|_| locks.contains(&command)) else { return Ok(()) };
        match std::fs::remove_file(index.with_extension("lock")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// How it ended, and the beginning of what it wrote to stderr. Its output, at most `limit` bytes of it, is handed
    /// over in pieces.
    pub(crate) async fn stream(
        &self,
        command: &'static str,
        arguments: &[&OsStr],
        input: Option<&[u8]>,
        limit: u64,
        sink: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(ExitStatus, String), GitError> {
        let call = PendingCall::begin(self.dir)?;
        let mut git = Command::new(program());
        git.current_dir(self.dir).kill_on_drop(true);
        git.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        git.stdout(Stdio::piped()).stderr(Stdio::piped());
        git.env_clear();
        git.envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        git.envs(VARIABLES).envs(self.filters.overrides()).envs(self.variables.iter().copied());
        git.arg("--no-pager");
        if !self.patterns {
            git.arg("--literal-pathspecs");
        }
        git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        git.arg(command).args(arguments);
        // Without its directory, a program "is not found" either.
        let mut child = git.spawn().map_err(|error| {
            if self.dir.is_dir() {
                return error;
            }
            std::io::Error::new(
                ErrorKind::NotFound,
                format!("the directory {} is missing", self.dir.display()),
            )
        })?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let written = write(stdin, input.unwrap_or_default());
        let mut stderr_bytes = Vec::new();
        let mut keep = |bytes: &[u8]| stderr_bytes.extend_from_slice(bytes);
        tokio::try_join!(
            written,
            read(stdout, limit, sink),
            read(stderr, OUTPUT_BYTES, &mut keep)
        )?;
        let status = child.wait().await?;
        call.end();
        stderr_bytes.truncate(STDERR_BYTES);
        Ok((status, String::from_utf8_lossy(&stderr_bytes).trim().to_owned()))
    }
}

/// The first `git` of the directories in `PATH`. With its whole path, it is started without a copy of the memory map of
/// this process (by `vfork`), which takes as long as a small git command.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::in_path("git").unwrap_or_else(|| PathBuf::from("git")))
}

/// Directories in which a git call timed out.
static SLOW: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A running git call. Git blocks on a FIFO that has the name of a file it reads: after one timeout in a directory,
/// further calls are refused while there is such a FIFO.
struct PendingCall<'a> {
    dir: &'a Path,
    begin: Instant,
    has_ended: bool,
}

impl<'a> PendingCall<'a> {
    fn begin(dir: &'a Path) -> Result<Self, GitError> {
        let is_slow = lock_slow().contains(dir);
        if is_slow {
            if let Some(path) = fifo_for_git(dir) {
                return Err(GitError::Fifo(path));
            }
            lock_slow().remove(dir);
        }
        Ok(Self { dir, begin: Instant::now(), has_ended: false })
    }

    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        // A timeout may cover several calls and have begun before this one.
        if !self.has_ended && self.begin.elapsed() > TIMEOUT / 2 {
            lock_slow().insert(self.dir.to_owned());
        }
    }
}

fn lock_slow() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    SLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A FIFO below a directory with the name of a file that git reads in every directory.
fn fifo_for_git(root: &Path) -> Option<PathBuf> {
    let mut found = None;
    // Git has the same rights: it cannot read a FIFO in a directory that this does not visit.
    let _ = walk_readable(root, |_, entries| {
        let is_read = |name: &OsStr| name == ".gitignore" || name == ".gitattributes";
        let mut fifos = entries.iter().filter(|it| is_read(&it.file_name()));
        let fifo = fifos.find(|it| it.file_type().is_ok_and(|kind| kind.is_fifo()));
        found = found.take().or(fifo.map(DirEntry::path));
        let is_dir = |entry: &&DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let below = entries.iter().filter(|_| found.is_none()).filter(is_dir);
        below.map(DirEntry::path).collect()
    });
    found
}

/// The result, or an error after the timeout.
pub(crate) async fn with_timeout<T>(
    work: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitError> {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or(Err(GitError::TimedOut))
}

/// Writes all of it. A command that has failed does not read to the end, and says why.
async fn write(pipe: Option<ChildStdin>, bytes: &[u8]) -> Result<(), std::io::Error> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    match pipe.write_all(bytes).await {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Reads to the end, or as far as the limit.
async fn read(
    pipe: Option<impl AsyncRead + Unpin>,
    limit: u64,
    sink: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<(), std::io::Error> {
    let Some(pipe) = pipe else { return Ok(()) };
    let mut pipe = pipe.take(limit);
    let mut piece = vec![0; 32 * 1024];
    loop {
        match pipe.read(&mut piece).await? {
            0 => return Ok(()),
            count => sink(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_call_waits_for_a_fifo() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let fifo = dir.path().join("a/b/.gitignore");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        PendingCall::begin(dir.path()).unwrap().end();
        // A call that timed out.
        let mut slow = PendingCall::begin(dir.path()).unwrap();
        slow.begin -= TIMEOUT;
        drop(slow);
        let refused = PendingCall::begin(dir.path());
        assert!(matches!(refused, Err(GitError::Fifo(path)) if path == fifo));
        std::fs::remove_file(&fifo).unwrap();
        PendingCall::begin(dir.path()).unwrap().end();
    }
}
