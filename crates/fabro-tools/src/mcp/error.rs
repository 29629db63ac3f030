use std::time::Duration;

use fabro_sandbox::{ExecError, Exit};

/// A server that is not used.
#[derive(Debug, thiserror::Error)]
#[error("MCP server `{server}`: {problem}{}", said(stderr))]
#[non_exhaustive]
pub struct ServerError {
    /// Its name.
    pub server: String,
    /// What went wrong.
    pub problem: Problem,
    /// The last lines it wrote to stderr, at most 20 of 4 KiB; empty for one over HTTP.
    pub stderr: String,
}

/// What is wrong with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The program could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// No answer in time.
    #[error("it did not answer within {} s: check its command, or raise its startup_timeout", .0.as_secs_f64())]
    Silent(Duration),
    /// No result of a call in time, and after that no answer to a ping.
    #[error("no result within {} s, nor an answer to a ping: check the server, or raise its tool_timeout", .0.as_secs_f64())]
    Hung(Duration),
    /// The program ended, or closed its stdout.
    #[error("it ended{}", exit(*.0))]
    Ended(Option<Exit>),
    /// A message was larger than what is read.
    #[error("it sent a message of more than {0} bytes")]
    TooLong(usize),
    /// Its URL cannot be used.
    #[error("its URL is not valid: give one that begins with http:// or https://")]
    Url,
    /// A header cannot be sent.
    #[error("its header `{0}` cannot be sent: check its name and value")]
    Header(String),
    /// It requires authorization.
    #[error("it asks for authorization: set its Authorization header")]
    Authorization,
    /// It answered with an error, or with something else than what was asked for.
    #[error("{0}")]
    Refused(String),
    /// The session has ended.
    #[error("it was ended with its session")]
    Closed,
}

impl Problem {
    pub(crate) fn at(self, server: &str, stderr: String) -> ServerError {
        ServerError { server: server.to_owned(), problem: self, stderr }
    }
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its stderr:\n{stderr}") }
}

fn exit(exit: Option<Exit>) -> String {
    match exit {
        Some(Exit::Code(code)) => format!(" with exit code {code}"),
        Some(Exit::Signal(signal)) => format!(" by signal {signal}"),
        _ => String::new(),
    }
}

/// At most 500 characters of a text, on one line.
pub(crate) fn brief(text: &str) -> String {
    const MOST: usize = 500;
    let mut words = text.split_whitespace();
    let mut brief = String::new();
    for word in words.by_ref() {
        if !brief.is_empty() {
            brief.push(' ');
        }
        brief.extend(word.chars().take(MOST));
        if brief.len() > MOST {
            break;
        }
    }
    match brief.char_indices().nth(MOST) {
        Some((end, _)) => {
            brief.truncate(end);
            brief.push('…');
        }
        None if words.next().is_some() => brief.push('…'),
        None => {}
    }
    brief
}
