mod answer;
mod claude;
mod codex;
mod gemini;

use async_trait::async_trait;
use fabro_sandbox::{Exit, Mark};
use fabro_types::Permissions;

use crate::cli::answer::{Answer, Hearing};
use crate::exchange::{exchange, start};
use crate::{Backend, BackendError, Done, Task};

/// A program that works as an agent when it is started with a prompt.
#[derive(Clone, Debug)]
pub struct Cli {
    agent: CliAgent,
    program: Option<String>,
    dangerous: bool,
}

/// The programs that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CliAgent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

impl CliAgent {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::Gemini];

    /// The program for the models of a provider: `anthropic`, `openai` or `gemini`.
    pub fn of_provider(provider: &str) -> Option<Self> {
        match provider {
            "anthropic" => Some(Self::Claude),
            "openai" => Some(Self::Codex),
            "gemini" => Some(Self::Gemini),
            _ => None,
        }
    }

    /// The name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// Whether a variable of the environment is a key or a setting of the program or its provider.
    pub fn is_own_variable(self, name: &str) -> bool {
        let prefixes: &[&str] = match self {
            Self::Claude => &["ANTHROPIC_", "CLAUDE_"],
            Self::Codex => &["OPENAI_", "CODEX_"],
            Self::Gemini => &["GEMINI_", "GOOGLE_"],
        };
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    fn install(self) -> &'static str {
        match self {
            Self::Claude => {
                "install Claude Code with `npm install -g @anthropic-ai/claude-code`, or give the path of the program"
            }
            Self::Codex => {
                "install Codex with `npm install -g @openai/codex`, or give the path of the program"
            }
            Self::Gemini => {
                "install Gemini CLI with `npm install -g @google/gemini-cli`, or give the path of the program"
            }
        }
    }
}

impl Cli {
    /// Runs the program of this name on the `PATH` of a task.
    pub fn new(agent: CliAgent) -> Self {
        Self { agent, program: None, dangerous: false }
    }

    /// Runs another program in its place, which speaks as it does: a path, or a name on the `PATH`.
    pub fn with_program(self, program: impl Into<String>) -> Self {
        Self { program: Some(program.into()), ..self }
    }

    /// Whether tasks with `full` permissions turn off every check that the program has. For users
    /// who ask for it, in surroundings that nothing of value can be reached from.
    pub fn with_dangerous(self, dangerous: bool) -> Self {
        Self { dangerous, ..self }
    }

    fn args(&self, task: &Task<'_>) -> Vec<String> {
        let dangerous = self.dangerous && task.permissions == Permissions::Full;
        let mut args = match self.agent {
            CliAgent::Claude => claude::args(task.permissions, dangerous),
            CliAgent::Codex => codex::args(task.permissions, dangerous),
            CliAgent::Gemini => gemini::args(task.permissions, dangerous),
        };
        if let Some(model) = task.model {
            args.extend(["--model", model]);
        }
        if self.agent == CliAgent::Codex {
            // The prompt is on stdin.
            args.push("-");
        }
        args.into_iter().map(str::to_owned).collect()
    }

    fn done(&self, exit: Exit, mut answer: Answer, stderr: String) -> Result<Done, BackendError> {
        let name = self.agent.program();
        if exit != Exit::Code(0) || answer.text.is_none() {
            answer.give_up();
        }
        if let Some((class, message)) = answer.error {
            return Err(BackendError::reported(name, class, &message));
        }
        if exit != Exit::Code(0) {
            return Err(BackendError::Failed { program: name.to_owned(), exit, stderr });
        }
        let Some(text) = answer.text else {
            return Err(BackendError::NoAnswer { program: name.to_owned(), stderr });
        };
        let Answer { usage, session_id, .. } = answer;
        Ok(Done { text, usage, session_id, warnings: Vec::new() })
    }
}

#[async_trait]
impl Backend for Cli {
    async fn run(&self, task: Task<'_>) -> Result<Done, BackendError> {
        if task.cancel.is_cancelled() {
            return Err(BackendError::Canceled);
        }
        let program = self.program.as_deref().unwrap_or(self.agent.program());
        let args = self.args(&task);
        let mark = Mark::new();
        let own = task.keys.iter().filter(|(name, _)| self.agent.is_own_variable(name));
        let own: Vec<_> = own.cloned().collect();
        let env = [&own, task.env, &[mark.variable()]].concat();
        let started = start(program, &args, &env, &task, self.agent.install())?;
        let mut hearing = Hearing::new(self.agent, task.on_event);
        let ended = exchange(started, &task, |bytes| hearing.hear(bytes)).await?;
        self.done(ended.exit, hearing.answer(&ended.stderr), ended.stderr)
    }
}
