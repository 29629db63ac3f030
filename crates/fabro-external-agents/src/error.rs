use std::path::PathBuf;

use fabro_sandbox::{ExecError, Exit};
use fabro_types::{Failure, FailureClass};
use serde_json::Value;

/// Why an agent did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The program is not installed.
    #[error("{program} not found: {install}")]
    Missing {
        /// Its name.
        program: String,
        /// How to get it.
        install: String,
    },
    /// It could not be started, or not be watched.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Its settings cannot be used.
    #[error("{0}")]
    Config(String),
    /// The task was canceled.
    #[error("the agent was canceled")]
    Canceled,
    /// It ended with an error that it did not describe.
    #[error("{program} {}{}", ended(*.exit), stderr_lines(.stderr))]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// It reported an error.
    #[error("{program}: {message}")]
    Reported {
        /// Its name.
        program: String,
        /// From the type that it states, not from its message.
        class: FailureClass,
        /// Its message, at most 2,000 characters.
        message: String,
    },
    /// It succeeded, but without an answer.
    #[error("{program} ended without an answer: check that its version fits{}", stderr_lines(.stderr))]
    NoAnswer {
        /// Its name.
        program: String,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// Its output could not be recorded.
    #[error("write {}: {source}; free some space or choose another place", path.display())]
    Log {
        /// The log file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl BackendError {
    /// How the failure is treated.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Canceled => FailureClass::Canceled,
            Self::Reported { class, .. } => *class,
            // It has no cause in the program's own logic: memory ran out, or a process killed it.
            Self::Failed { exit: Exit::Signal(_), .. } => FailureClass::TransientInfra,
            _ => FailureClass::Deterministic,
        }
    }

    pub(crate) fn reported(program: &str, class: FailureClass, message: &str) -> Self {
        let message = message.trim().chars().take(2000).collect();
        Self::Reported { program: program.to_owned(), class, message }
    }

    /// The same with messages of a protocol redacted; output was redacted as it arrived.
    #[cfg(feature = "acp")]
    pub(crate) fn redacted(self, redactor: &fabro_redact::Redactor) -> Self {
        match self {
            Self::Reported { program, class, message } => {
                let message = redactor.redact(&message).into_owned();
                Self::Reported { program, class, message }
            }
            Self::Config(message) => Self::Config(redactor.redact(&message).into_owned()),
            other => other,
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::new(error.class(), error.to_string())
    }
}

/// The class of an error whose type a program states: a word such as `rate_limit`, or the status of
/// an HTTP response. `None` for an unknown type.
pub(crate) fn class_of(kind: &Value) -> Option<FailureClass> {
    let status = kind.as_u64().or_else(|| kind.as_str()?.parse().ok());
    if let Some(status) = status {
        return match status {
            408 | 429 | 500..=599 => Some(FailureClass::TransientInfra),
            402 => Some(FailureClass::BudgetExhausted),
            400..=499 => Some(FailureClass::Deterministic),
            _ => None,
        };
    }
    let word = kind.as_str()?.to_ascii_lowercase();
    let word: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
    match word.strip_suffix("error").unwrap_or(&word) {
        "ratelimit"
        | "ratelimited"
        | "ratelimitexceeded"
        | "resourceexhausted"
        | "overloaded"
        | "serveroverloaded"
        | "server"
        | "internalserver"
        | "unavailable"
        | "serviceunavailable"
        | "timeout"
        | "deadlineexceeded"
        | "responsestreamdisconnected"
        | "httpconnectionfailed" => Some(FailureClass::TransientInfra),
        "billing"
        | "insufficientquota"
        | "quotaexceeded"
        | "usagelimitreached"
        | "usagelimitexceeded"
        | "usagenotincluded"
        | "maxoutputtokens"
        | "errormaxturns"
        | "errormaxbudgetusd"
        | "fatalturnlimited"
        | "contextwindowexceeded"
        | "contextlengthexceeded" => Some(FailureClass::BudgetExhausted),
        "authentication"
        | "authenticationfailed"
        | "fatalauthentication"
        | "unauthorized"
        | "invalidrequest"
        | "badrequest"
        | "permission"
        | "notfound" => Some(FailureClass::Deterministic),
        _ => None,
    }
}

fn ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("failed with exit code {code}"),
        Exit::Signal(signal) => format!("was killed by signal {signal}"),
        Exit::Canceled => "was canceled".to_owned(),
    }
}

fn stderr_lines(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") }
}
