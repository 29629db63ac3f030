//! Stages that another program works on.

use std::path::Path;

use fabro_engine::{Stage, StageEnd};
use fabro_events::{EventBody, MessagePurpose, Note};
use fabro_external_agents::{Acp, Backend, BackendError, Cli, CliAgent, Done, Task};
use fabro_types::{Failure, FailureClass, Outcome, Usage};
use serde_json::{Map, Value};

use super::output::{Output, Source, Verdict, invalid, repairs, response_outcome};
use super::talk::{Answered, Ending};
use super::{LlmHandler, cannot_record, given_up};
use crate::common::{known, preview, warn};
use crate::files::AgentStatus;
use crate::llm::journal::StageJournal;

impl LlmHandler {
    /// Lets another program work on the stage, and has its answer mended until it holds.
    pub(super) async fn run_backend(
        &self,
        stage: &mut Stage,
        message: &str,
        output: &Output,
    ) -> Result<Ending, StageEnd> {
        let backend = self.backend(stage)?;
        let work_dir = Path::new(&stage.run.work_dir).to_owned();
        let status = AgentStatus::before(&work_dir, None);
        let before = known(stage, self.tree.before(&work_dir).await).await;
        let (most, reading) = (repairs(stage), self.reading());
        let mut usage = Usage::default();
        let mut prompt = message.to_owned();
        let mut corrections = 0;
        loop {
            let done = match self.ask_backend(stage, &*backend, &prompt).await {
                Ok(done) => done,
                Err(BackendError::Canceled) => return Ok(Ending::Canceled(given_up(usage))),
                Err(BackendError::Log { path, source }) => {
                    return Err(cannot_record(format!("write {}: {source}", path.display())));
                }
                Err(error) => {
                    usage.turns += 1;
                    let failed = Outcome::failed(error.into());
                    return Ok(Ending::Failed(Box::new(Outcome { usage: Some(usage), ..failed })));
                }
            };
            let spent = done.usage.clone().unwrap_or_default();
            usage.add(&Usage { turns: spent.turns.max(1), ..spent });
            let touched = self.tree.touched(&work_dir, before.as_ref()).await;
            let files = known(stage, touched).await;
            let source = Source { stage, status: &status, last_file: None, reading: &reading };
            let feedback = match output.verdict(source, &done.text) {
                Verdict::Holds(value) => {
                    record(stage, message, &done.text, &usage).await?;
                    return Ok(Ending::Answered(Box::new(Answered {
                        text: done.text,
                        value,
                        usage,
                        files_touched: files,
                        last_file: None,
                        status,
                    })));
                }
                Verdict::Repair(feedback) => feedback,
            };
            if corrections == most {
                let said = response_outcome(&stage.at.node, &done.text);
                return Ok(Ending::Failed(Box::new(Outcome {
                    usage: Some(usage),
                    files_touched: files,
                    context_updates: said.context_updates,
                    ..Outcome::failed(invalid(most))
                })));
            }
            corrections += 1;
            // Each run of the program is a conversation of its own, so it is told all of it.
            prompt = format!("{message}\n\nYou answered:\n\n{}\n\n{feedback}", done.text);
        }
    }

    async fn ask_backend(
        &self,
        stage: &Stage,
        backend: &dyn Backend,
        prompt: &str,
    ) -> Result<Done, BackendError> {
        let (work_dir, logs) = (Path::new(&stage.run.work_dir), stage.dir());
        let (model, reporter) = (self.model_name(stage), stage.reporter.clone());
        let on_event = move |_| reporter.touch();
        let task = Task {
            model: model.as_deref(),
            env: &self.agents.backend_env,
            keys: &self.agents.backend_keys,
            permissions: self.permissions(stage),
            cancel: stage.cancel.clone(),
            redactor: self.agents.redactor.clone(),
            on_event: &on_event,
            ..Task::new(prompt, work_dir, &logs)
        };
        let done = backend.run(task).await?;
        for warning in &done.warnings {
            warn(&stage.reporter, "backend", warning.clone()).await;
        }
        Ok(done)
    }

    fn backend(&self, stage: &Stage) -> Result<Box<dyn Backend>, Failure> {
        let attrs = &stage.node().attrs;
        let failed = |message: String| Failure::new(FailureClass::Structural, message);
        if attrs.text("backend") == Some("acp") {
            let Some(command) = attrs.text("acp.command") else {
                return Err(failed(
                    "backend=acp needs acp.command: the program to start".to_owned(),
                ));
            };
            let config = match attrs.text("acp.config").map(serde_json::from_str) {
                None => Value::Object(Map::new()),
                Some(Ok(config)) => config,
                Some(Err(error)) => return Err(failed(format!("acp.config is no JSON: {error}"))),
            };
            return Ok(Box::new(Acp::new(command, &config)?));
        }
        let provider = self.provider_name(stage).or_else(|| {
            let model = self.model_name(stage)?;
            self.agents.catalog.find(&model)?.provider.clone()
        });
        let provider = provider.as_deref().unwrap_or("anthropic");
        match CliAgent::of_provider(provider) {
            Some(agent) => Ok(Box::new(Cli::new(agent))),
            None => Err(failed(format!(
                "no command-line agent for provider `{provider}`: use anthropic (claude), openai (codex) or gemini"
            ))),
        }
    }
}

/// The conversation, for the stages of its thread and for people.
async fn record(stage: &Stage, message: &str, answer: &str, usage: &Usage) -> Result<(), StageEnd> {
    let said = |role: &str, text: &str, usage| -> Note {
        EventBody::AgentMessage {
            role: role.to_owned(),
            text: preview(text),
            message: Some(Value::from(text).into()),
            usage,
            given: None,
            purpose: (role == "user").then_some(MessagePurpose::Request),
        }
        .into()
    };
    let notes = vec![said("user", message, None), said("assistant", answer, Some(usage.clone()))];
    let journal = StageJournal::new(stage.reporter.clone());
    let record = fabro_agent::Record { notes, tickets: Vec::new() };
    fabro_agent::Journal::record(&journal, record).await.map_err(cannot_record)
}
