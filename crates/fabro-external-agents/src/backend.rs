use std::path::Path;

use async_trait::async_trait;
use fabro_redact::{Redactor, Unredacted};
use fabro_sandbox::Sandbox;
use fabro_types::{Permissions, Usage};
use tokio_util::sync::CancellationToken;

use crate::BackendError;

/// A program that is an agent.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Runs the agent on a task until it has answered.
    ///
    /// # Errors
    ///
    /// It could not be started, failed, was canceled, or ended without an answer; none of its
    /// processes is left then.
    async fn run(&self, task: Task<'_>) -> Result<Done, BackendError>;

    /// Whether it stops when [`Task::budget_usd`] is used up.
    fn takes_budget(&self) -> bool {
        false
    }
}

/// A task for an agent, with its environment.
#[derive(Clone)]
pub struct Task<'a> {
    /// The prompt, of any length.
    pub prompt: &'a str,
    /// The directory it works in.
    pub work_dir: &'a Path,
    /// The model to use; the agent's own choice when absent.
    pub model: Option<&'a str>,
    /// Its environment besides [`keys`](Self::keys): nothing is inherited.
    pub env: &'a [(String, String)],
    /// Variables with keys and settings of all providers of models, for the agents that they are for: a
    /// command-line agent gets those of its own provider, any other agent gets all. Where both have a
    /// name, `env` wins.
    pub keys: &'a [(String, String)],
    /// Its permissions.
    pub permissions: Permissions,
    /// Cancels it.
    pub cancel: CancellationToken,
    /// The directory for `stdout.log` and `stderr.log`, redacted, written while it runs.
    pub logs: &'a Path,
    /// The conversation that it continues, where it can; a new one when absent.
    pub resume: Option<Session<'a>>,
    /// What it may spend, in US dollars, for programs that watch it themselves.
    pub budget_usd: Option<f64>,
    /// What confines it.
    pub sandbox: Option<&'a Sandbox>,
    /// Tells it what the workflow around it knows, where it can be given an MCP server.
    pub context_server: Option<&'a ContextServer>,
    /// Redacts everything that is recorded.
    pub redactor: Redactor,
    /// Gets reports of its activity.
    pub on_event: &'a (dyn Fn(Progress) + Send + Sync),
}

impl<'a> Task<'a> {
    /// A task with an empty environment and the default permissions, without a watcher.
    pub fn new(prompt: &'a str, work_dir: &'a Path, logs: &'a Path) -> Self {
        Self {
            prompt,
            work_dir,
            model: None,
            env: &[],
            keys: &[],
            permissions: Permissions::default(),
            cancel: CancellationToken::new(),
            logs,
            resume: None,
            budget_usd: None,
            sandbox: None,
            context_server: None,
            redactor: Redactor::default(),
            on_event: &|_| {},
        }
    }

    /// The same task in this environment.
    pub fn with_env(self, env: &'a [(String, String)]) -> Self {
        Self { env, ..self }
    }
}

/// A program that an agent starts as an MCP server, on stdin and stdout, with the tool `get_workflow_context`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextServer {
    /// The program, absolute.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
}

impl ContextServer {
    /// What agents call the server.
    pub const NAME: &str = "fabro";

    /// The program with these arguments.
    pub fn new<'w>(program: impl Into<String>, args: impl IntoIterator<Item = &'w str>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(str::to_owned).collect() }
    }
}

/// A conversation of an earlier run.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// The program's id of it.
    pub id: &'a str,
    /// What its runs reported together: some programs count on from there.
    pub used: &'a Usage,
}

/// The answer of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Its answer, redacted.
    pub text: String,
    /// Its answer before redaction, if redaction changed it.
    pub unredacted: Option<Unredacted>,
    /// What this run used, by model, as far as it reports it.
    pub usage: Vec<Usage>,
    /// Its id of the conversation, when it reports one.
    pub session_id: Option<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Activity of an agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// Its id of the conversation, once it has taken the prompt.
    Session(String),
    /// What this run has used so far, by model; it takes the place of what was reported before. Also
    /// of a run that fails or is canceled.
    Usage(Vec<Usage>),
    /// Text of its answer.
    Text(String),
    /// A call of a tool.
    Tool {
        /// The tool's name in the program.
        name: String,
    },
    /// Anything else.
    Activity,
}
