mod agy;
mod answer;
mod claude;
mod codex;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gemini;
mod output;
mod program;

use async_trait::async_trait;
use fabro_redact::Unredacted;
use fabro_sandbox::{Exit, Mark};
use fabro_types::{FailureClass, Permissions};

use crate::cli::answer::Answer;
use crate::cli::output::OutputReader;
use crate::cli::program::{Program, PromptBy};
use crate::error::StatedKind;
use crate::exchange::{exchange, start};
use crate::{Backend, BackendError, Done, Task};

/// The exit codes of a shell for a program that cannot be run.
const NOT_RUN: [i32; 2] = [126, 127];

/// What the programs print, in place of an event, when no user is logged in.
const LOGIN: [&str; 5] =
    ["/login", "Invalid API key", "Not logged in", "codex login", "set an Auth method"];

/// The longest prompt that can be an argument of a program.
const LONGEST_ARGUMENT: usize = 128 * 1024 - 1;

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
    /// Gemini CLI; where that is not installed, its successor Antigravity CLI.
    Gemini,
    /// Antigravity CLI.
    Agy,
}

/// Variables that an agent sets for its child processes, in addition to names with `_SESSION_`. They
/// would make an agent of the same kind join that session.
const SESSION_VARIABLES: [&str; 7] = [
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_WEBSOCKET_AUTH_FILE_DESCRIPTOR",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "GEMINI_CLI",
];

impl CliAgent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Agy];

    /// The program for the models of a provider (`anthropic`, `openai`, `gemini` or `antigravity`),
    /// or of this name.
    pub fn of_provider(provider: &str) -> Option<Self> {
        let is_it = |agent: &Self| agent.program().provider == provider || agent.name() == provider;
        Self::ALL.into_iter().find(is_it)
    }

    /// The program that takes the place of this one where it is not installed.
    pub fn successor(self) -> Option<Self> {
        (self == Self::Gemini).then_some(Self::Agy)
    }

    /// The name of the program.
    pub fn name(self) -> &'static str {
        self.program().name
    }

    /// How to get the program.
    pub fn install(self) -> String {
        self.program().install()
    }

    /// Whether an environment variable is a key or a setting of the program or its provider. Variables of
    /// an agent session are excluded, since an agent may have started Fabro.
    pub fn is_own_variable(self, name: &str) -> bool {
        let is_of_session = name.contains("_SESSION_") || SESSION_VARIABLES.contains(&name);
        !is_of_session && self.program().variables.iter().any(|prefix| name.starts_with(prefix))
    }

    fn program(self) -> &'static Program {
        match self {
            Self::Claude => &claude::PROGRAM,
            Self::Codex => &codex::PROGRAM,
            Self::Gemini => &gemini::PROGRAM,
            Self::Agy => &agy::PROGRAM,
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
        let is_done = answer.text.is_some() && (answer.is_complete || exit == Exit::Code(0));
        if !is_done {
            answer.settle_error();
        }
        if answer.hit_budget {
            return Err(BackendError::Budget { program: name.to_owned() });
        }
        match (answer.error.take(), answer.text.take()) {
            (None, Some(text)) if is_done => {
                let Answer { usage, session_id, .. } = answer;
                Ok(Done { text, usage, session_id, ..Done::default() })
            }
            (Some((kind, message)), _) => {
                let kind = if answer.has_worked { kind.after_work() } else { kind };
                Err(BackendError::reported(name, kind, &message).shortened())
            }
            (None, _) => Err(self.unstated(exit, &answer, stderr)),
        }
    }

    /// The error of a program that did not say why it has no answer.
    fn unstated(&self, exit: Exit, answer: &Answer, stderr: String) -> BackendError {
        let program = self.agent.name().to_owned();
        // Some print what is wrong on stdout.
        let last = if stderr.trim().is_empty() { answer.noise.clone() } else { stderr };
        let code = match exit {
            Exit::Code(code) => Some(code),
            _ => None,
        };
        let meaning = code.and_then(self.agent.program().output.exit);
        let asks_for_login = LOGIN.iter().any(|it| last.contains(it) || answer.noise.contains(it));
        let login = StatedKind::unavailable(FailureClass::Deterministic);
        let kind = meaning.or((asks_for_login && !answer.has_worked).then_some(login));
        if let Some(kind) = kind {
            let kind = if answer.has_worked { kind.after_work() } else { kind };
            let error = BackendError::Failed { program, exit, stderr: last };
            return BackendError::Stated { kind, error: Box::new(error) };
        }
        if exit == Exit::Code(0) {
            return BackendError::NoAnswer { program, stderr: last };
        }
        let is_run = code.is_none_or(|code| !NOT_RUN.contains(&code));
        let failed = BackendError::Failed { program, exit, stderr: last };
        if is_run || answer.has_worked { failed } else { failed.before_request(self.agent.name()) }
    }

    async fn run_program(&self, program: &str, task: &Task<'_>) -> Result<Done, BackendError> {
        let known = self.agent.program();
        let (prompt, is_argument) = match known.prompt {
            PromptBy::Stdin(_) => (task.prompt, false),
            PromptBy::Argument(_) => ("", true),
        };
        if is_argument && task.prompt.len() > LONGEST_ARGUMENT {
            return Err(BackendError::Config(format!(
                "the prompt has {} bytes, and {} takes at most {LONGEST_ARGUMENT}: shorten it, or choose a lower fidelity",
                task.prompt.len(),
                known.name
            )));
        }
        let lost = match &task.resume {
            Some(_) if known.resume.is_none() => Some("it has no option for that"),
            // The log was written by an earlier version, or forged.
            Some(session) if answer::session_id(session.id).is_none() => {
                Some("the recorded session id is invalid")
            }
            _ => None,
        };
        if let Some(message) = lost {
            return Err(BackendError::SessionLost {
                program: known.name.to_owned(),
                message: message.to_owned(),
            });
        }
        let args = known.args(task, self.dangerous);
        let mark = Mark::new();
        let own = task.keys.iter().filter(|(name, _)| self.agent.is_own_variable(name));
        let own: Vec<_> = own.cloned().collect();
        let env = [&own, task.env, &[mark.variable()]].concat();
        let started = start(program, &args, &env, task, &known.install())?;
        let answer = Answer {
            model: task.model.map(str::to_owned),
            total: task.resume.map(|session| session.used.clone()).unwrap_or_default(),
            ..Answer::default()
        };
        // Only the text of the answer is used from the unredacted output.
        let mut unredacted = OutputReader::new(known.output, answer.clone(), &|_| {});
        let mut reader = OutputReader::new(known.output, answer, task.on_event);
        let ended = exchange(started, task, prompt, |read, redacted| {
            unredacted.read(read);
            reader.read(redacted);
        });
        let ended = ended.await?;
        let renamed = ended.renamed;
        let unredacted = unredacted.finish(&ended.stderr).text;
        let mut done = self.done(ended.exit, reader.finish(&ended.stderr), ended.stderr)?;
        done.unredacted = unredacted.filter(|text| *text != done.text).map(Unredacted::new);
        done.warnings.extend(renamed.lines().map(str::to_owned));
        if known.read_only.is_empty() && task.permissions < Permissions::Full {
            done.warnings.push(format!(
                "{} has no options for permissions: its own settings say what it may do",
                known.name
            ));
        }
        Ok(done)
    }
}

#[async_trait]
impl Backend for Cli {
    fn takes_budget(&self) -> bool {
        self.agent.program().budget.is_some()
    }

    async fn run(&self, task: Task<'_>) -> Result<Done, BackendError> {
        if task.cancel.is_cancelled() {
            return Err(BackendError::Canceled);
        }
        let program = self.program.as_deref().unwrap_or(self.agent.name());
        let ended = self.run_program(program, &task).await;
        match (&ended, self.agent.successor()) {
            (Err(BackendError::Missing { .. }), Some(successor)) if self.program.is_none() => {
                let other = Self { agent: successor, ..self.clone() };
                match other.run_program(successor.name(), &task).await {
                    Err(BackendError::Missing { .. }) => ended,
                    other => other,
                }
            }
            _ => ended,
        }
    }
}

/// How to log in to a program of this name, in parentheses; empty for one that is not known.
pub(crate) fn login(program: &str) -> String {
    let known = CliAgent::ALL.into_iter().find(|agent| agent.name() == program);
    known.map_or_else(String::new, |agent| format!(" ({})", agent.program().login))
}
