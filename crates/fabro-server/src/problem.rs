//! Errors as `application/problem+json` (RFC 9457) with a stable code and a fix.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fabro_config::ConfigError;
use fabro_inspect::{PatchError, ReportError};
use fabro_run::{GoalError, NamedGate, RunError};
use fabro_store::StoreError;
use fabro_types::bounded;
use schemars::JsonSchema;
use serde::Serialize;

/// Why a request was refused or has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// What kind of problem it is: stable, for programs.
    pub code: &'static str,
    /// A name of the kind for people: the code in words.
    pub title: String,
    /// What is wrong.
    pub detail: String,
    /// What to do about it.
    pub fix: String,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            status: status.as_u16(),
            code,
            title: code.replace('_', " "),
            detail: bounded(&detail.into()).into_owned(),
            fix: bounded(&fix.into()).into_owned(),
        }
    }

    pub(crate) fn invalid(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "input_invalid", detail, fix)
    }

    pub(crate) fn not_found(code: &'static str, detail: String, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail, fix)
    }

    /// The change was meant for an earlier state of the run.
    pub(crate) fn changed(detail: String) -> Self {
        let fix = "read the run again, then decide again";
        Self::new(StatusCode::PRECONDITION_FAILED, "run_changed", detail, fix)
    }

    pub(crate) fn internal(code: &'static str, detail: String, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, detail, fix)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.code, self.detail, self.fix)
    }
}

impl IntoResponse for Problem {
    #[expect(clippy::expect_used, reason = "it cannot fail: every key is a string")]
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).expect("a problem has only string keys");
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        if status == StatusCode::UNAUTHORIZED {
            return (status, kind, [(header::WWW_AUTHENTICATE, "Bearer")], body).into_response();
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return (status, kind, [(header::RETRY_AFTER, "5")], body).into_response();
        }
        (status, kind, body).into_response()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        use StatusCode as S;
        let text = error.to_string();
        match error {
            StoreError::NoRuns | StoreError::NotFound { .. } => {
                Self::not_found("run_not_found", text, "GET /api/v1/runs lists them")
            }
            StoreError::Ambiguous { .. } => {
                Self::new(S::UNPROCESSABLE_ENTITY, "run_ambiguous", text, "write the whole id")
            }
            StoreError::AlreadyAnswered { .. } => Self::new(
                S::CONFLICT,
                "gate_answered",
                text,
                "an answer counts once; a rewind takes the run back before it",
            ),
            StoreError::Driven { .. } => {
                Self::new(S::CONFLICT, "run_driven", text, "wait for it, or cancel it")
            }
            StoreError::Conflict { .. } | StoreError::LeaseLost { .. } => {
                Self::new(S::CONFLICT, "run_changed", text, "read the run again, then retry")
            }
            StoreError::Changed { .. } => Self::changed(text),
            StoreError::Busy { .. } => {
                Self::new(S::SERVICE_UNAVAILABLE, "store_busy", text, "retry in a moment")
            }
            StoreError::DiskFull { .. } => {
                Self::new(S::INSUFFICIENT_STORAGE, "store_full", text, "free some space")
            }
            _ => Self::internal("store_error", text, "see what the store reports on its machine"),
        }
    }
}

impl From<ReportError> for Problem {
    fn from(error: ReportError) -> Self {
        let text = error.to_string();
        match error {
            ReportError::Store(error) => error.into(),
            ReportError::NoStage { .. } => {
                Self::not_found("stage_not_found", text, "GET /api/v1/runs/{run} lists its stages")
            }
            ReportError::SeveralStages { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "stage_ambiguous",
                text,
                "name the stage with its branch",
            ),
            ReportError::NotEnded { .. } | ReportError::NoEdge { .. } => {
                Self::new(StatusCode::CONFLICT, "stage_not_ended", text, "look again when it has")
            }
            ReportError::Empty => {
                Self::not_found("run_not_found", text, "GET /api/v1/runs lists them")
            }
            ReportError::TooMuch { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "value_too_large",
                text,
                "ask without `resolve` for references",
            ),
            _ => Self::internal("store_error", text, "see what the store reports on its machine"),
        }
    }
}

impl From<PatchError> for Problem {
    fn from(error: PatchError) -> Self {
        let text = error.to_string();
        match error {
            PatchError::NotRecorded { .. } => Self::new(
                StatusCode::CONFLICT,
                "no_worktree",
                text,
                "start runs in a git work tree, or with `\"worktree\": true`",
            ),
            PatchError::Report(error) => error.into(),
            PatchError::Damaged { .. } => {
                Self::internal("store_error", text, "see what `fabro verify` reports")
            }
            _ => Self::new(
                StatusCode::CONFLICT,
                "commits_gone",
                text,
                "bring the repository and its branch back",
            ),
        }
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        let text = error.to_string();
        match error {
            ConfigError::NoFile(..) | ConfigError::NoWorkflow { .. } => Self::not_found(
                "workflow_not_found",
                text,
                "GET /api/v1/workflows lists those of the project",
            ),
            _ => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "settings_invalid",
                text,
                "fix the settings of the project",
            ),
        }
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        let text = error.to_string();
        let conflict = |code, fix: &str| Self::new(StatusCode::CONFLICT, code, text.clone(), fix);
        let wrong =
            |code, fix: &str| Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, text.clone(), fix);
        match error {
            RunError::Store(error) => error.into(),
            RunError::Config(error) => error.into(),
            RunError::Setup(error) => Self::invalid(error.message, error.fix),
            RunError::Goal(GoalError { message, fix, .. }) => {
                Self::invalid(format!("the goal cannot be rendered: {message}"), fix)
            }
            RunError::Invalid { path, findings, .. } => {
                let all: Vec<_> = findings.iter().map(|it| it.message.clone()).collect();
                let detail = format!("{} is not valid: {}", path.display(), all.join("; "));
                Self::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "workflow_invalid",
                    detail,
                    "fix the workflow; `fabro validate` shows where each error is",
                )
            }
            RunError::Unreadable { .. } | RunError::Plan(_) => {
                wrong("workflow_invalid", "fix the workflow")
            }
            RunError::NoModel { .. } => wrong(
                "no_model",
                "set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL for the server, or write [providers.NAME] into .fabro/config.toml",
            ),
            RunError::Ended { .. } => {
                conflict("run_ended", "go back in the run with rewind, or copy it with fork")
            }
            RunError::Busy { .. } => conflict("run_busy", "wait until it has ended"),
            RunError::SubWorkflow { root, .. } => {
                conflict("sub_workflow", &format!("name the run it belongs to: {root}"))
            }
            RunError::NoCheckpoint { .. } => Self::not_found(
                "stage_not_found",
                text,
                "GET /api/v1/runs/{run} lists its stages; nothing follows an exit",
            ),
            RunError::SeveralStages { .. } => {
                wrong("stage_ambiguous", "name the stage with its branch")
            }
            RunError::NoOpenGate { .. } => {
                conflict("no_open_gate", "GET /api/v1/gates lists those that wait")
            }
            RunError::GateAnswered { .. } => conflict(
                "gate_answered",
                "an answer counts once; a rewind takes the run back before it",
            ),
            RunError::GateTimedOut { .. } => conflict(
                "gate_timed_out",
                "a resume continues with its default, or fails the gate without one",
            ),
            RunError::NoSuchGate { open, .. } => {
                Self::not_found("gate_not_found", text, format!("waiting: {}", listed(&open)))
            }
            RunError::AmbiguousGate { gates } => {
                wrong("gate_ambiguous", &format!("name one of them as `gate`: {}", listed(&gates)))
            }
            RunError::InputInContext { .. } => Self::invalid(text, "start a run with other inputs"),
            RunError::Choice(_) => wrong("choice_invalid", "answer with one of these"),
            RunError::NoAgent { agents, .. } if agents.is_empty() => {
                conflict("no_agent", "only agent stages take messages")
            }
            RunError::NoAgent { agents, .. } => {
                conflict("no_agent", &format!("it has {}", agents.join(", ")))
            }
            RunError::DriverEnded { log, .. } => Self::internal(
                "driver_failed",
                format!("{text}: {}", last_lines(&log)),
                "the run's driver.log has what it says; resume the run when that is fixed",
            ),
            _ => Self::internal("driver_failed", text, "nothing that was committed is lost"),
        }
    }
}

/// The end of what a driver says, at most 2,000 characters.
fn last_lines(log: &str) -> String {
    let log = log.trim();
    let start = log.char_indices().rev().nth(1_999).map_or(0, |(at, _)| at);
    log[start..].to_owned()
}
/// How many gates a problem lists.
const MAX_LISTED: usize = 20;

fn listed(gates: &[NamedGate]) -> String {
    let mut lines: Vec<String> = gates.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if gates.len() > MAX_LISTED {
        lines.push(format!("… and {} more", gates.len() - MAX_LISTED));
    }
    lines.join("; ")
}
