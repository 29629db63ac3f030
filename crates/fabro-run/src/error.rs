//! Why a run cannot be created, changed or driven.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use crate::{BundleError, GoalError};
use fabro_config::ConfigError;
use fabro_engine::{DriveError, Inconsistent, PlanError};
use fabro_gate::NoMatch;
use fabro_store::StoreError;
use fabro_types::{Diagnostic, RunId, RunStatus, one_line};

/// The rule of the findings that name what stages need and this machine or its settings do not have.
pub const UNAVAILABLE: &str = "unavailable";

/// Settings or input that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SetupError {
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: String,
}

impl SetupError {
    pub(crate) fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into() }
    }
}

/// Why a run cannot be created, changed or driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A workflow file or a run.toml has errors.
    #[error("{} is not valid: {}", path.display(), findings.first().map_or("", |it| &it.message))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its text, which the spans of the findings refer to.
        text: String,
        /// The errors.
        findings: Vec<Diagnostic>,
    },
    /// A workflow file cannot be read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The project's or the run's settings cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Settings or input cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The goal cannot be rendered.
    #[error(transparent)]
    Goal(#[from] GoalError),
    /// The workflow cannot be compiled.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The workflow kept with the run cannot be read back.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The workflow has stages that ask a model, and no model is configured.
    #[error("no model is configured for {stages} of {file}{}", named_provider(provider.as_deref()))]
    NoModel {
        /// The first of these stages.
        stages: String,
        /// The workflow file.
        file: String,
        /// The provider that it names.
        provider: Option<String>,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files of a stage say more than the log.
    #[error(
        "run {run} is incomplete: {} is newer than the database (its write-ahead log is lost, or it is an older copy); restore the newer one", dir.display()
    )]
    OlderLog {
        /// The run.
        run: RunId,
        /// The directory of the stage.
        dir: PathBuf,
    },
    /// The log does not begin with the record that creates a run.
    #[error("the log of run {run} does not begin with its creation")]
    NotCreated {
        /// The run.
        run: RunId,
    },
    /// An event of the log does not fit those before it.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    /// The run has ended.
    #[error("run {run} has ended: {status}")]
    Ended {
        /// The run.
        run: RunId,
        /// How it ended.
        status: RunStatus,
    },
    /// The concurrency limit of the key is reached, and `on_busy` is `skip`.
    #[error("not started: {} with the key `{key}` {} ([run.concurrency] `key` keeps workflows apart)", list(runs), if runs.len() == 1 { "is running" } else { "are running" })]
    Busy {
        /// The key.
        key: String,
        /// The runs.
        runs: Vec<RunId>,
    },
    /// A sub-workflow cannot be driven or changed without the run it belongs to.
    #[error("run {run} is a sub-workflow of run {root}")]
    SubWorkflow {
        /// The run of the sub-workflow.
        run: RunId,
        /// The run to drive or change instead.
        root: RunId,
    },
    /// The run has no end of this stage that can be continued from.
    #[error("run {run} has no end of {} to continue from", stage_name(stage.as_deref()))]
    NoCheckpoint {
        /// The run.
        run: RunId,
        /// The stage; `None` for the last one.
        stage: Option<String>,
    },
    /// A context value to set has the name of an input; inputs are not part of the context.
    #[error("`{key}` is an input of the run, not a value of its context")]
    InputInContext {
        /// The name that was given.
        key: String,
    },
    /// Several branches made this visit of the node.
    #[error("`{stage}` means {} stages: name one of {}", stages.len(), stages.join(", "))]
    SeveralStages {
        /// What was asked for.
        stage: String,
        /// Each of them as `BRANCH/NODE@VISIT`, in the order they started.
        stages: Vec<String>,
    },
    /// No gate of the run waits for an answer.
    #[error("no gate of run {run} waits for an answer")]
    NoOpenGate {
        /// The run.
        run: RunId,
    },
    /// The gate was already answered, and accepts no second answer.
    #[error("gate {gate} was already answered: {answer}, by {by}")]
    GateAnswered {
        /// The gate, as `NODE@VISIT`.
        gate: String,
        /// What was chosen, or the text.
        answer: String,
        /// Who answered and by which channel, or only the channel: `timeout`.
        by: String,
    },
    /// The gate has timed out.
    #[error("gate {gate} no longer takes an answer: it has timed out")]
    GateTimedOut {
        /// The run.
        run: RunId,
        /// The gate.
        gate: String,
    },
    /// No open gate has this name.
    #[error("no gate `{name}` waits for an answer")]
    NoSuchGate {
        /// The name.
        name: String,
        /// The open gates.
        open: Vec<NamedGate>,
    },
    /// More than one open gate matches.
    #[error("several gates wait for an answer")]
    AmbiguousGate {
        /// The matching gates.
        gates: Vec<NamedGate>,
    },
    /// The answer is none of the gate's options.
    #[error(transparent)]
    Choice(#[from] NoMatch),
    /// The run has no agent, or none with this name.
    #[error("the run has no {}", agent_name(node.as_deref()))]
    NoAgent {
        /// The node that was named.
        node: Option<String>,
        /// The agents of the run.
        agents: Vec<Arc<str>>,
    },
    /// The driver cannot continue; the run can be resumed.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A background driver cannot be started.
    #[error("{message}")]
    Background {
        /// What happened.
        message: String,
    },
    /// A background driver ended before it had started the run.
    #[error("the background driver ended: {status}")]
    DriverEnded {
        /// Its exit status.
        status: ExitStatus,
        /// What it wrote to stderr.
        log: String,
    },
}

fn list(runs: &[RunId]) -> String {
    let names: Vec<String> = runs.iter().map(|run| format!("run {run}")).collect();
    if names.is_empty() { "another run".to_owned() } else { names.join(", ") }
}

fn stage_name(stage: Option<&str>) -> String {
    stage.map_or_else(|| "any stage".to_owned(), |stage| format!("a stage `{stage}`"))
}

fn agent_name(node: Option<&str>) -> String {
    node.map_or_else(|| "agents".to_owned(), |node| format!("agent `{node}`"))
}

fn named_provider(provider: Option<&str>) -> String {
    provider.map_or_else(String::new, |name| format!(", and no provider `{name}`"))
}

/// An open gate as shown in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedGate {
    /// Its shortest name.
    pub name: String,
    /// The list element that it asks about.
    pub item: Option<String>,
    /// The question.
    pub question: String,
}

impl fmt::Display for NamedGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(item) = &self.item {
            write!(f, "  {}", one_line(item, 40))?;
        }
        write!(f, "  {}", one_line(&self.question, 60))
    }
}
