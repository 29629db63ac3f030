use std::path::Path;

use async_trait::async_trait;
use fabro_redact::Redactor;
use fabro_types::{Permissions, Usage};
use tokio_util::sync::CancellationToken;

use crate::BackendError;

/// A program that works as an agent.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Lets the agent work on a task until it has answered.
    ///
    /// # Errors
    ///
    /// It could not be started, failed, was canceled, or ended without an answer; nothing of it
    /// runs on then.
    async fn run(&self, task: Task<'_>) -> Result<Done, BackendError>;
}

/// What an agent is to do, and where.
#[derive(Clone)]
pub struct Task<'a> {
    /// What it is told, of any length.
    pub prompt: &'a str,
    /// The directory it works in.
    pub work_dir: &'a Path,
    /// The model it is to use; its own choice when absent.
    pub model: Option<&'a str>,
    /// Its environment besides [`keys`](Self::keys): nothing is inherited.
    pub env: &'a [(String, String)],
    /// Variables with keys and settings of all providers of models, for the agents that they are for: a
    /// command-line agent gets those of its own provider, any other agent gets all. Where both have a
    /// name, `env` wins.
    pub keys: &'a [(String, String)],
    /// What it may do.
    pub permissions: Permissions,
    /// Ends it when it is canceled.
    pub cancel: CancellationToken,
    /// The directory that gets `stdout.log` and `stderr.log`, redacted, while it works.
    pub logs: &'a Path,
    /// Redacts everything that is kept.
    pub redactor: Redactor,
    /// Is told what it does meanwhile.
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
            redactor: Redactor::default(),
            on_event: &|_| {},
        }
    }

    /// The same task in this environment.
    pub fn with_env(self, env: &'a [(String, String)]) -> Self {
        Self { env, ..self }
    }
}

/// What an agent answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Its answer, redacted.
    pub text: String,
    /// What it used, when it says so.
    pub usage: Option<Usage>,
    /// What it calls the conversation, when it says so.
    pub session_id: Option<String>,
    /// What did not go as it was asked for, for the user.
    pub warnings: Vec<String>,
}

/// Activity of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It says something.
    Text(String),
    /// It uses a tool.
    Tool {
        /// The tool, as the program calls it.
        name: String,
    },
    /// Something else.
    Activity,
}
