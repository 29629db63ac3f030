//! Where an AI agent or a workflow runs scripts and changes files on this machine, within limits.
//!
//! Two traits. [`Exec`] runs a script: one function that takes a [`Request`] and returns its result.
//! [`LocalExec`] starts real processes, [`FakeExec`] has canned results. [`Files`] are the files of a
//! working directory. [`LocalFiles`] refuses paths outside its root, and changes to files that control
//! git or fabro; [`WithValues`] adds read-only values; [`MemoryFiles`] has no disk. [`ReadFirst`]
//! refuses changes to files that were not read first.
//!
//! ```
//! use fabro_sandbox::{Captured, Environment, Exec, Exit, Keep, Language, LocalExec, Request};
//! use fabro_sandbox::{FileError, Files, LocalFiles};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let env = [("NAME".to_owned(), "world".to_owned())];
//! let request = Request {
//!     script: "echo hello $NAME; exit 3",
//!     language: Language::Shell,
//!     cwd: dir.path(),
//!     env: Environment::Inherit(&env),
//!     reads: &[],
//!     script_reads: &[],
//!     source: "",
//!     stdin: None,
//!     keep_unredacted: false,
//!     keep: Keep::Ends { head: 1_000, tail: 1_000 },
//!     redactor: None,
//!     cancel: tokio_util::sync::CancellationToken::new(),
//! };
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! let finished = runtime.block_on(LocalExec::new().run(request))?;
//! assert_eq!(finished.exit, Exit::Code(3));
//! assert_eq!(finished.stdout, Captured::Text("hello world".to_owned()));
//!
//! let files = LocalFiles::new(dir.path())?;
//! files.write("notes/today.md", b"- asked for hello")?;
//! assert_eq!(files.read("notes/today.md", 1_000)?, b"- asked for hello");
//! assert!(matches!(files.read("../../etc/passwd", 1_000), Err(FileError::Outside(_))));
//! # Ok(())
//! # }
//! ```
//!
//! A script ends when its shell exits. Processes left in its group get a moment to finish by
//! themselves, then SIGTERM, two seconds, and SIGKILL; a cancellation ends the whole group the same
//! way, and dropping the future kills it at once. The output goes to two log files as it arrives and
//! comes back as text when it is small, or only its two ends are kept ([`Keep`]); a redactor can redact
//! it. A [`Process`] is a program to communicate with through pipes, which ends in the same way.
//!
//! # Limits
//!
//! - Unix only. The tokio runtime needs its I/O and time drivers.
//! - A script has the rights of the user who runs it, unless its [`LocalExec`] has a [`Sandbox`].
//!   [`agent_env`] is the environment for scripts of an agent.
//! - A process that leaves the group on purpose (`setsid`, `set -m`) is not followed, unless it has a
//!   [`Mark`] ([`MarkedExec`] gives it to scripts), which on Linux also finds those that removed it, by
//!   a control group where this process can create one. If it still holds the output open, what it prints after the shell's end is lost.
//! - Log files are written by the task that runs the script, without a thread of their own, and are
//!   as large as the output: only the memory is bounded.
//! - [`end_leftovers`] and [`Mark`] read `/proc`, so they find nothing outside Linux.
//! - File operations block; call them where that is allowed. A written file is not synced to disk,
//!   and loses its other hard links. Names that are not UTF-8 are listed, but cannot be opened.
//! - [`LocalFiles`] guards against paths and links, not against a process that moves the root itself or
//!   mounts something into it.

mod baseline;
mod bwrap;
mod captured_outputs;
mod cgroup;
mod control;
mod descriptors;
mod ends;
mod environment;
mod fake;
mod files;
pub mod git;
mod group;
mod guard;
mod launch;
mod leftovers;
mod local;
mod log;
mod marked;
mod proc;
mod process;
mod programs;
mod record;
mod remote;
mod sandbox;
mod sandbox_error;
mod script;
mod stores;
mod tail;
mod walk;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
pub use bwrap::BwrapSettings;
pub use descriptors::{is_exhausted, raise_descriptor_limit, stages_within_limit};
pub use environment::agent_env;
pub use fabro_artifacts as artifacts;
use fabro_redact::{Redactor, Unredacted};
pub use fake::FakeExec;
pub use files::{
    Entry, FileError, FileHashes, FileInfo, FileKind, Files, InSandbox, KnownFiles, LocalFiles,
    MemoryFiles, ReadFirst, WithValues,
};
pub use guard::rename_left_control_files;
pub use leftovers::{Mark, end_leftovers, marks_ended};
pub use local::LocalExec;
pub use marked::MarkedExec;
pub use process::{Pipes, Process, Program};
pub use record::record_processes;
pub use remote::{DockerSettings, EngineSettings, RemoteSettings, SshSettings, remove_sandbox};
pub use sandbox::Sandbox;
pub use sandbox_error::SandboxError;
pub use tail::Tail;
use tokio_util::sync::CancellationToken;

/// The most output, in bytes, that comes back as [`Captured::Text`].
pub const CAPTURE_LIMIT: usize = 102_400;

/// Runs scripts.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Exec: Send + Sync {
    /// Runs a script to its end.
    ///
    /// A script that fails, is killed or is canceled is not an error: see [`Finished::exit`].
    ///
    /// # Errors
    ///
    /// The script could not be started, or its output not be recorded; it does not keep running then.
    async fn run(&self, request: Request<'_>) -> Result<Finished, ExecError>;
}

/// A script and its surroundings.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The text of the script, of any length, without NUL characters.
    pub script: &'a str,
    /// What it is written in.
    pub language: Language,
    /// The directory it starts in.
    pub cwd: &'a Path,
    /// The variables it sees.
    pub env: Environment<'a>,
    /// Directories outside of `cwd` that it may read in a [`Sandbox`], which hides them otherwise.
    pub reads: &'a [PathBuf],
    /// Like `reads`, but a remote sandbox copies a file from these only if both `source` and `script` name it: values
    /// in `script` may come from a model.
    pub script_reads: &'a [PathBuf],
    /// The script as its author wrote it, without the values in it; see `script_reads`.
    pub source: &'a str,
    /// The file for its standard input, in one of `reads`; the input is empty without one.
    pub stdin: Option<&'a Path>,
    /// Where its output goes.
    pub keep: Keep,
    /// Redacts the output before it is stored.
    pub redactor: Option<&'a Redactor>,
    /// Whether [`Finished::unredacted`] is wanted, of output that goes to files.
    pub keep_unredacted: bool,
    /// Ends the script when it is canceled.
    pub cancel: CancellationToken,
}

/// The variables that a script sees; of two with the same name the later one wins.
#[derive(Clone, Copy, Debug)]
pub enum Environment<'a> {
    /// Those of this process, and these; in a [`Sandbox`] only those of [`agent_env`].
    Inherit(&'a [(String, String)]),
    /// These and no others.
    Only(&'a [(String, String)]),
}

/// Where the output of a script goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Two files get all of it, byte for byte and while the script runs. A file is emptied if it
    /// exists, and made, with its directory, for the first byte.
    Logs {
        /// The file of standard output.
        stdout: PathBuf,
        /// The file of standard error; another one.
        stderr: PathBuf,
    },
    /// Like `Logs`, but one file gets both streams, in the order they are written. They are
    /// returned as [`Finished::stdout`].
    Log(PathBuf),
    /// Only the start and the end, in memory: both streams as one, in the order they are written,
    /// given back as [`Finished::stdout`]. Between the two ends stands how much is missing.
    Ends {
        /// How much of the start, in bytes.
        head: usize,
        /// How much of the end, in bytes.
        tail: usize,
    },
}

/// What a script is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// `bash`, or `sh` where there is no bash.
    #[default]
    Shell,
    /// `python3`.
    Python,
}

/// A script that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// Standard output and error before redaction, if it changed them and
    /// [`Request::keep_unredacted`] is set. Only for validation: they contain secrets.
    pub unredacted: [Option<Unredacted>; 2],
    /// From the start until the last process of the group ended.
    pub duration: Duration,
}

/// How a script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It exited by itself, with this code (0 to 255).
    Code(i32),
    /// A signal of this number killed its shell.
    Signal(i32),
    /// [`Request::cancel`] ended it, or kept it from starting.
    Canceled,
}

/// Output of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Captured {
    /// At most [`CAPTURE_LIMIT`] bytes, or the two ends asked for, without the line ends at its
    /// end; bytes that are not UTF-8 are replaced by U+FFFD.
    Text(String),
    /// More than that: it is in the log file only.
    Large {
        /// The log file.
        path: PathBuf,
        /// The size of the output, in bytes.
        bytes: u64,
    },
}

/// A script that could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The interpreter of this name was not found.
    #[error("{0} not found: install {0}, or put it on the PATH")]
    Missing(String),
    /// The working directory does not exist.
    #[error("working directory {} is not a directory: create it, or choose another", .0.display())]
    WorkingDirectory(PathBuf),
    /// The script contains a NUL character at this byte, which no process takes.
    #[error("script contains a NUL character at byte {0}: remove it")]
    Nul(usize),
    /// The environment is larger than the system takes for this program.
    #[error("environment too large to start {0}: pass large values in files")]
    EnvironmentTooLarge(String),
    /// The process could not be started for another reason.
    #[error("start {program}: {source}")]
    Start {
        /// The interpreter.
        program: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The output could not be recorded; the script was ended.
    #[error("write {}: {source}; free some space or choose another place", path.display())]
    Log {
        /// The log file, or the directory of the file that a long script is run from.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A container or another machine could not be reached, or not any more. What ran there is ended before the next
    /// script.
    #[error("{place} is lost: {message}")]
    Lost {
        /// Which one.
        place: String,
        /// What happened.
        message: String,
    },
    /// The working directory could not be copied.
    #[error("copy of the working directory: {0}")]
    Workspace(String),
    /// After a script in a [`Sandbox`], files that later runs obey may be left in the working directory.
    #[error("{problem}, so files that later runs obey may be left there: {fix}")]
    Unguarded {
        /// What could not be searched or renamed.
        problem: String,
        /// How to fix it.
        fix: &'static str,
        /// The error of the system.
        source: Option<std::io::Error>,
    },
    /// A variable that a shell cannot have, and so a script of this sandbox cannot get.
    #[error("`{0}` cannot be the name of a variable in this sandbox: use letters, digits and `_`")]
    Variable(String),
    /// The process, or a pipe to it, could not be watched; it was ended.
    #[error("watch {program}: {source}")]
    Watch {
        /// The interpreter.
        program: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ExecError {
    fn watch(program: &Path, source: std::io::Error) -> Self {
        Self::Watch { program: program.display().to_string(), source }
    }
}
