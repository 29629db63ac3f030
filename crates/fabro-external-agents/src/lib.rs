//! Other programs as agents: `claude`, `codex`, `gemini` and `agy` by their non-interactive modes, and
//! agents that speak the Agent Client Protocol (ACP).
//!
//! [`Backend`] is the seam: one function that runs a [`Task`] and returns the agent's answer. [`Cli`] runs one of the programs, with the prompt on its stdin, and reads the JSON
//! it prints. `Acp`, behind the feature `acp` (on by default), starts a program and talks to it.
//!
//! ```
//! use fabro_external_agents::{Backend, Cli, CliAgent, Task};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let logs = tempfile::tempdir()?;
//! let path = std::env::var("PATH")?;
//! # // A claude of our own, found before any other.
//! # let program = logs.path().join("claude");
//! # let answer = r#"{"type":"result","subtype":"success","is_error":false,"result":"4"}"#;
//! # std::fs::write(&program, format!("#!/bin/sh\ncat >/dev/null; echo '{answer}'\n"))?;
//! # std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
//! # let path = format!("{}:{path}", logs.path().display());
//! // Claude Code has to be installed and logged in; `with_program` names one in another place.
//! let claude = Cli::new(CliAgent::Claude);
//! let env = [("PATH".to_owned(), path), ("HOME".to_owned(), std::env::var("HOME")?)];
//! let task = Task::new("What is 2 + 2?", logs.path(), logs.path()).with_env(&env);
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! let done = runtime.block_on(claude.run(task))?;
//! assert_eq!(done.text, "4");
//! # Ok(())
//! # }
//! ```
//!
//! # What an agent may do
//!
//! Each program has its own settings for the three permissions, so they hold as far as the program
//! keeps to them; nothing is confined from outside.
//!
//! | | `read-only` | `read-write` | `full` |
//! | --- | --- | --- | --- |
//! | claude | editing, shell and web tools are taken away | edits are accepted; no shell, no web | all of these |
//! | codex | its sandbox `read-only` | its sandbox `workspace-write` | the same, with the network |
//! | gemini | what needs an approval is refused | edits are approved | shell and web too |
//! | agy | its own settings | the same | the same |
//! | ACP | reading and searching are approved | edits in the working directory too, but for `.git` and what steers fabro | everything |
//!
//! The programs' own switches that turn every check off are passed only where
//! [`Cli::with_dangerous`] says so, and the task has `full` permissions.
//!
//! # Limits
//!
//! - Unix only. Needs a tokio runtime with its I/O and time drivers.
//! - There is no timeout: cancel the task. A canceled agent, or one whose future is
//!   dropped, ends with its process group. On Linux, what it started in other groups ends too.
//! - A line of JSON has at most 16 MiB: a longer one is skipped. So are lines that are not JSON, and
//!   events with an unknown `type`. An answer has at most 16 MiB.
//! - agy takes its prompt as an argument, of at most 128 KiB, continues no session and reports no usage.
//! - Which files an agent touched is not known here: compare the working directory before and after.

#[cfg(feature = "acp")]
mod acp;
mod backend;
mod cli;
mod error;
mod exchange;
mod lines;
mod remedy;

#[cfg(feature = "acp")]
pub use acp::Acp;
pub use backend::{Backend, ContextServer, Done, Progress, Session, Task};
#[cfg(fuzzing)]
pub use cli::fuzzing;
pub use cli::{Cli, CliAgent};
pub use error::{BackendError, StatedKind};
