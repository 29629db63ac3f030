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
        kind: StatedKind,
        /// Its message, at most 2,000 characters.
        message: String,
    },
    /// It ended with an error whose kind is known by its exit code, or by what it printed.
    #[error("{error}")]
    Stated {
        /// The kind.
        kind: StatedKind,
        /// What happened.
        error: Box<Self>,
    },
    /// It succeeded, but without an answer.
    #[error("{program} ended without an answer: check that its version fits{}", stderr_lines(.stderr))]
    NoAnswer {
        /// Its name.
        program: String,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// It stopped because the task's budget is used up.
    #[error("{program} stopped: its budget is used up")]
    Budget {
        /// Its name.
        program: String,
    },
    /// The conversation cannot be continued.
    #[error("{program} cannot continue its session: {message}")]
    SessionLost {
        /// Its name.
        program: String,
        /// Why.
        message: String,
    },
    /// It ended, or reported an error, before it took the request.
    #[error("{error}")]
    NotReady {
        /// Its name.
        program: String,
        /// What happened.
        error: Box<Self>,
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

/// The message of a model that declined the request.
pub(crate) const REFUSED: &str = "it refused to continue: change the prompt";

/// How much of a message is kept as it arrives, and how much of it is recorded, in characters.
const RECEIVED_CHARS: usize = 16_000;
const MESSAGE_CHARS: usize = 2_000;

impl BackendError {
    /// How the failure is treated.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Canceled => FailureClass::Canceled,
            Self::Reported { kind, .. } | Self::Stated { kind, .. } => kind.class,
            Self::NotReady { error, .. } => error.class(),
            Self::Budget { .. } => FailureClass::BudgetExhausted,
            // It has no cause in the program's own logic: memory ran out, or a process killed it.
            Self::Failed { exit: Exit::Signal(_), .. } => FailureClass::TransientInfra,
            error if fabro_sandbox::is_exhausted(error) => FailureClass::TransientInfra,
            _ => FailureClass::Deterministic,
        }
    }

    /// Whether the error of a resumed session may mean that the session cannot be continued: it is lost,
    /// or too long for the model. False if the program reports another cause.
    pub fn may_be_of_session(&self) -> bool {
        match self {
            Self::Canceled
            | Self::Budget { .. }
            | Self::Log { .. }
            | Self::Exec(_)
            | Self::Config(_) => false,
            Self::Reported { kind, .. } | Self::Stated { kind, .. } if kind.is_assumed => true,
            error => error.remedy().is_none(),
        }
    }

    pub(crate) fn reported(program: &str, kind: impl Into<StatedKind>, message: &str) -> Self {
        let message = message.trim().chars().take(RECEIVED_CHARS).collect();
        Self::Reported { program: program.to_owned(), kind: kind.into(), message }
    }

    /// The same error of a program whose model had begun to work.
    #[cfg(feature = "acp")]
    pub(crate) fn after_work(self) -> Self {
        match self {
            Self::Reported { program, kind, message } => {
                Self::Reported { program, kind: kind.after_work(), message }
            }
            other => other,
        }
    }

    /// The same error of a program that had not taken the request yet.
    pub(crate) fn before_request(self, program: &str) -> Self {
        match self {
            Self::Failed { .. }
            | Self::NoAnswer { .. }
            | Self::Reported { .. }
            | Self::Stated { .. } => {
                Self::NotReady { program: program.to_owned(), error: Box::new(self) }
            }
            other => other,
        }
    }

    /// The same with a message of at most 2,000 characters. A secret that the limit cuts through can no longer be
    /// found, so messages are redacted first.
    pub(crate) fn shortened(self) -> Self {
        match self {
            Self::Reported { program, kind, message } => {
                let message = message.chars().take(MESSAGE_CHARS).collect();
                Self::Reported { program, kind, message }
            }
            other => other,
        }
    }

    /// The same with messages of a protocol redacted and shortened; output was redacted as it arrived.
    #[cfg(feature = "acp")]
    pub(crate) fn redacted(self, redactor: &fabro_redact::Redactor) -> Self {
        match self {
            Self::Reported { program, kind, message } => {
                let message = redactor.redact(&message).into_owned();
                Self::Reported { program, kind, message }.shortened()
            }
            Self::NotReady { program, error } => {
                Self::NotReady { program, error: Box::new(error.redacted(redactor)) }
            }
            Self::Config(message) => Self::Config(redactor.redact(&message).into_owned()),
            other => other,
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self { unavailable: error.remedy(), ..Self::new(error.class(), error.to_string()) }
    }
}

/// The type of an error that a program states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedKind {
    /// How the failure is treated.
    pub class: FailureClass,
    /// Its model could not be asked: a login, an account, an unknown model, an overloaded service.
    pub is_unavailable: bool,
    /// The program did not state the kind; it is the most likely one for an error without a type.
    pub is_assumed: bool,
}

impl StatedKind {
    /// A model that could not be asked.
    pub(crate) fn unavailable(class: FailureClass) -> Self {
        Self { class, is_unavailable: true, is_assumed: false }
    }

    /// The same for an error without a stated type.
    pub(crate) fn assumed_unavailable(class: FailureClass) -> Self {
        Self { is_assumed: true, ..Self::unavailable(class) }
    }

    /// The same error of a program that had begun to work: a result of the stage, since asking again
    /// would start from the beginning. What stopped it was no fault of the request.
    pub(crate) fn after_work(self) -> Self {
        match self {
            Self { class: FailureClass::Deterministic, is_unavailable: true, .. } => {
                FailureClass::TransientInfra.into()
            }
            Self { class, .. } => class.into(),
        }
    }
}

impl From<FailureClass> for StatedKind {
    fn from(class: FailureClass) -> Self {
        Self { class, is_unavailable: false, is_assumed: false }
    }
}

/// The kind of an error whose type a program states: a word such as `rate_limit`, or the status of
/// an HTTP response. `None` for an unknown type.
pub(crate) fn kind_of(stated: &Value) -> Option<StatedKind> {
    let unavailable = |class| Some(StatedKind::unavailable(class));
    let status = stated.as_u64().or_else(|| stated.as_str()?.parse().ok());
    if let Some(status) = status {
        return match status {
            408 | 429 | 500..=599 => unavailable(FailureClass::TransientInfra),
            402 => unavailable(FailureClass::BudgetExhausted),
            401 | 403 | 404 | 407 => unavailable(FailureClass::Deterministic),
            400..=499 => Some(FailureClass::Deterministic.into()),
            _ => None,
        };
    }
    let word = stated.as_str()?.to_ascii_lowercase();
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
        | "internal"
        | "unavailable"
        | "serviceunavailable"
        | "timeout"
        | "deadlineexceeded"
        | "httpconnectionfailed" => unavailable(FailureClass::TransientInfra),
        "responsestreamdisconnected" => Some(FailureClass::TransientInfra.into()),
        "billing" | "insufficientquota" | "quotaexceeded" | "usagelimitreached"
        | "usagelimitexceeded" | "usagenotincluded" => unavailable(FailureClass::BudgetExhausted),
        "maxoutputtokens"
        | "errormaxturns"
        | "errormaxbudgetusd"
        | "fatalturnlimited"
        | "contextwindowexceeded"
        | "contextlengthexceeded" => Some(FailureClass::BudgetExhausted.into()),
        "authentication"
        | "authenticationfailed"
        | "authrequired"
        | "oauthorgnotallowed"
        | "fatalauthentication"
        | "unauthorized"
        | "unauthenticated"
        | "permission"
        | "permissiondenied"
        | "notfound" => unavailable(FailureClass::Deterministic),
        "invalidrequest" | "invalidargument" | "badrequest" => {
            Some(FailureClass::Deterministic.into())
        }
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
