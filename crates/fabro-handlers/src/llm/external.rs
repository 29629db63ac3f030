//! The backends `cli` and `acp`: another program answers.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use fabro_engine::{Backend, Stage, StageEnd};
use fabro_events::{EventBody, MessagePurpose, Note};
use fabro_external_agents::{Acp, Backend as Program, BackendError, Cli, CliAgent, Done, Task};
use fabro_sandbox::git::Snapshot;
use fabro_types::{Failure, FailureClass, Outcome, Usage};
use serde_json::{Map, Value};

use super::exchange::{Conversation, NextMessage, NoReply};
use super::interpret::Reply;
use super::journal::StageJournal;
use super::{LlmHandler, canceled_with, cannot_record};
use crate::common::{known, preview, warn};
use crate::files::AgentStatus;

/// A program that answers the request of a stage. Each run of it is a conversation of its own.
pub(super) struct ExternalConversation<'a> {
    handler: &'a LlmHandler,
    program: Box<dyn Program>,
    request: &'a str,
    work_dir: PathBuf,
    before: Option<Snapshot>,
    status: AgentStatus,
    usage: Usage,
    corrections: u32,
}

impl<'a> ExternalConversation<'a> {
    pub(super) async fn new(
        handler: &'a LlmHandler,
        stage: &Stage,
        request: &'a str,
    ) -> Result<Self, StageEnd> {
        let program = program(handler, stage)?;
        let work_dir = Path::new(&stage.run.work_dir).to_owned();
        let status = AgentStatus::before(&work_dir, None);
        let before = known(stage, handler.tree.before(&work_dir).await).await;
        let usage = Usage::default();
        Ok(Self { handler, program, request, work_dir, before, status, usage, corrections: 0 })
    }

    async fn run(&self, stage: &Stage, prompt: &str) -> Result<Done, BackendError> {
        let agents = &self.handler.agents;
        let logs = stage.dir();
        let model = self.handler.model_name(stage);
        let reporter = stage.reporter.clone();
        let on_event = move |_| reporter.touch();
        let task = Task {
            model: model.as_deref(),
            env: &agents.backend_env,
            keys: &agents.backend_keys,
            permissions: self.handler.permissions(stage),
            cancel: stage.cancel.clone(),
            redactor: agents.redactor.clone(),
            on_event: &on_event,
            ..Task::new(prompt, &self.work_dir, &logs)
        };
        let done = self.program.run(task).await?;
        for warning in &done.warnings {
            warn(&stage.reporter, "backend", warning.clone()).await;
        }
        Ok(done)
    }

    fn no_reply(&self, error: BackendError) -> NoReply {
        let usage = self.usage.clone();
        match error {
            BackendError::Canceled => NoReply::Failed(Box::new(canceled_with(usage))),
            BackendError::Log { path, source } => {
                cannot_record(format!("write {}: {source}", path.display())).into()
            }
            error => {
                let usage = Some(Usage { turns: usage.turns + 1, ..usage });
                let failed = Outcome::failed(error.into());
                NoReply::Failed(Box::new(Outcome { usage, ..failed }))
            }
        }
    }
}

#[async_trait]
impl Conversation for ExternalConversation<'_> {
    async fn ask(&mut self, stage: &mut Stage, message: NextMessage) -> Result<Reply, NoReply> {
        let prompt = match message {
            NextMessage::Correction { feedback, answer } => {
                self.corrections += 1;
                // Each run of the program starts from nothing, so it gets the whole request again.
                format!("{}\n\nYou answered:\n\n{answer}\n\n{feedback}", self.request)
            }
            NextMessage::Request(request) => request,
            NextMessage::Resume => self.request.to_owned(),
        };
        let done = self.run(stage, &prompt).await.map_err(|error| self.no_reply(error))?;
        let used = done.usage.unwrap_or_default();
        self.usage.add(&Usage { turns: used.turns.max(1), ..used });
        let touched = self.handler.tree.touched(&self.work_dir, self.before.as_ref()).await;
        Ok(Reply {
            text: done.text,
            usage: self.usage.clone(),
            files_touched: known(stage, touched).await,
            files: self.handler.agent_files(stage, &self.status, None),
        })
    }

    fn corrections(&self) -> u32 {
        self.corrections
    }

    /// The conversation, for the stages of its thread and for people.
    async fn accept(&mut self, stage: &Stage, reply: &Reply) -> Result<(), StageEnd> {
        let note = |role: &str, text: &str, usage, purpose| -> Note {
            EventBody::AgentMessage {
                role: role.to_owned(),
                text: preview(text),
                message: Some(Value::from(text).into()),
                usage,
                given: None,
                purpose,
            }
            .into()
        };
        let notes = vec![
            note("user", self.request, None, Some(MessagePurpose::Request)),
            note("assistant", &reply.text, Some(reply.usage.clone()), None),
        ];
        let journal = StageJournal::new(stage.reporter.clone());
        let record = fabro_agent::Record { notes, tickets: Vec::new() };
        fabro_agent::Journal::record(&journal, record).await.map_err(cannot_record)
    }
}

fn program(handler: &LlmHandler, stage: &Stage) -> Result<Box<dyn Program>, Failure> {
    let failed = |message: String| Failure::new(FailureClass::Structural, message);
    if let Backend::Acp { command, config } = super::backend(stage) {
        let Some(command) = command else {
            let message = "backend=acp needs acp.command: the program to start";
            return Err(failed(message.to_owned()));
        };
        let none = Value::Object(Map::new());
        return Ok(Box::new(Acp::new(command, config.as_ref().unwrap_or(&none))?));
    }
    let provider = handler.provider_name(stage).or_else(|| {
        let model = handler.model_name(stage)?;
        handler.agents.catalog.find(&model)?.provider.clone()
    });
    let provider = provider.as_deref().unwrap_or("anthropic");
    match CliAgent::of_provider(provider) {
        Some(agent) => Ok(Box::new(Cli::new(agent))),
        None => Err(failed(format!(
            "no command-line agent for provider `{provider}`: use anthropic (claude), openai (codex) or gemini"
        ))),
    }
}
