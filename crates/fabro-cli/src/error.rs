//! Errors of the commands themselves.

use std::io;

use crate::exit::Exit;

/// An error of a command: what is wrong, what to do next, and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    message: String,
    /// What to do next.
    pub next: String,
    /// The exit code.
    pub exit: Exit,
}

fn error(message: impl Into<String>, next: impl Into<String>, exit: Exit) -> anyhow::Error {
    CliError { message: message.into(), next: next.into(), exit }.into()
}

/// The arguments, or what they name, cannot be used. `next` says what to do.
pub fn usage(message: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
    error(message, next, Exit::USAGE)
}

/// The command failed, although the arguments are right. `next` says what to do.
pub fn failed(message: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
    error(message, next, Exit::FAILED)
}

/// Something cannot be recorded or written. `next` says what to do.
pub fn store(message: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
    error(message, next, Exit::STORE)
}

/// Something that is stored is damaged.
pub fn damaged(message: &str) -> anyhow::Error {
    let next = "restore the last backup of the store; `fabro verify` names all that is damaged";
    store(fabro_terminal::clean(message), next)
}

/// The end of a command that has written what could be read: an error where something could not.
pub fn if_damaged(damage: &[String]) -> anyhow::Result<Exit> {
    if damage.is_empty() { Ok(Exit::SUCCEEDED) } else { Err(damaged(&damage.join("; "))) }
}

/// What the command waits for has not happened in time. `next` says what to do.
pub fn timeout(message: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
    error(message, next, Exit::TIMEOUT)
}

/// A file that an argument names cannot be written: the argument is wrong, or the system refuses.
pub fn unwritable(what: &str, error: &io::Error, next: &str) -> anyhow::Error {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound};
    let message = format!("{what}: {error}");
    match error.kind() {
        AlreadyExists | IsADirectory | NotADirectory | NotFound => usage(message, next),
        _ => store(message, next),
    }
}
