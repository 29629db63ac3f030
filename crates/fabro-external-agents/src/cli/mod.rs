mod answer;
mod claude;
mod codex;
mod gemini;
mod output;
mod program;

use async_trait::async_trait;
use fabro_sandbox::{Exit, Mark};

use crate::cli::answer::Answer;
use crate::cli::output::OutputReader;
use crate::cli::program::Program;
use crate::exchange::{exchange, start};
use crate::{Backend, BackendError, Done, Task};

/// A program that is an agent when it is started with a prompt.
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
        Self::ALL.into_iter().find(|agent| agent.program().provider == provider)
    }

    /// The name of the program.
    pub fn name(self) -> &'static str {
        self.program().name
    }

    /// How to get the program.
    pub fn install(self) -> String {
        self.program().install()
    }

    /// Whether a variable of the environment is a key or a setting of the program or its provider.
    pub fn is_own_variable(self, name: &str) -> bool {
        self.program().variables.iter().any(|prefix| name.starts_with(prefix))
    }

    fn program(self) -> &'static Program {
        match self {
            Self::Claude => &claude::PROGRAM,
            Self::Codex => &codex::PROGRAM,
            Self::Gemini => &gemini::PROGRAM,
        }
    }
}

impl Cli {
    /// Runs the program of this name on the `PATH` of a task.
    pub fn new(agent: CliAgent) -> Self {
        Self { agent, program: None, dangerous: false }
    }

    /// Runs another program with the same interface instead: a path, or a name on the `PATH`.
    pub fn with_program(self, program: impl Into<String>) -> Self {
        Self { program: Some(program.into()), ..self }
    }

    /// Whether tasks with `full` permissions turn off every check that the program has. For users
    /// who ask for it, in an environment from which nothing of value can be reached.
    pub fn with_dangerous(self, dangerous: bool) -> Self {
        Self { dangerous, ..self }
    }

    fn done(&self, exit: Exit, mut answer: Answer, stderr: String) -> Result<Done, BackendError> {
        let name = self.agent.name();
        if exit != Exit::Code(0) || answer.text.is_none() {
            answer.settle_error();
        }
        if let Some((kind, message)) = answer.error {
            return Err(BackendError::reported(name, kind, &message));
        }
        if exit != Exit::Code(0) {
            let failed = BackendError::Failed { program: name.to_owned(), exit, stderr };
            let is_silent = answer.session_id.is_none() && answer.usage.is_none();
            let took_nothing = is_silent && answer.text.is_none();
            let has_code = matches!(exit, Exit::Code(_));
            return Err(if took_nothing && has_code {
                failed.before_request(name)
            } else {
                failed
            });
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
        let known = self.agent.program();
        let program = self.program.as_deref().unwrap_or(known.name);
        let args = known.args(task.permissions, self.dangerous, task.model);
        let mark = Mark::new();
        let own = task.keys.iter().filter(|(name, _)| self.agent.is_own_variable(name));
        let own: Vec<_> = own.cloned().collect();
        let env = [&own, task.env, &[mark.variable()]].concat();
        let started = start(program, &args, &env, &task, &known.install())?;
        let mut reader = OutputReader::new(known.output, task.on_event);
        let ended = exchange(started, &task, |bytes| reader.read(bytes)).await?;
        self.done(ended.exit, reader.finish(&ended.stderr), ended.stderr)
    }
}
