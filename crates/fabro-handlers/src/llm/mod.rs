//! Stages that ask a model: the request is prepared, asked until the reply is valid, and the reply
//! interpreted as the stage's outcome.

mod api;
mod context_server;
mod exchange;
mod external;
mod interpret;
mod joined_branches;
mod journal;
mod live;
mod prepare;
mod recorded;
mod settings;
mod summary;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_agent::Transcript;
use fabro_engine::{Backend, Clock, Finished, Handler, NewBlob, NodeBody, Stage, StageEnd};
use fabro_events::Event;
use fabro_llm::{AskingStage, Model, ModelSource, TurnCounts};
use fabro_types::{BlobRef, BranchPath, Outcome, Usage};
use serde_json::Value;

use self::api::ApiConversation;
pub(crate) use self::exchange::NoReply;
use self::exchange::{NextMessage, ValidReply, ask_until_valid};
use self::external::ExternalConversation;
pub(crate) use self::interpret::with_directives;
pub use self::interpret::{
    AgentFile, AgentFiles, Interpretation, Reply, interpret, interpret_simulated, invalid_outcome,
};
pub use self::joined_branches::FanIn;
pub use self::journal::offload_notes;
pub use self::prepare::{MessageParts, StageRequest};
pub use self::settings::{ModelDefaults, compaction_policy, price_by};
use crate::WorkTree;
use crate::agents::Agents;
use crate::common::{canceled, warn};
use crate::files::{AgentStatus, StageFiles, text_of_file};
use crate::preamble::Preambles;
use crate::threads::ThreadCache;

/// The largest file of an agent that directives are looked for in.
const AGENT_FILE_BYTES: u64 = 1 << 20;

/// Runs agent and prompt nodes on a model.
pub struct LlmHandler {
    models: ModelSource,
    defaults: ModelDefaults,
    pub(crate) preambles: Preambles,
    pub(crate) agents: Agents,
    tree: Arc<WorkTree>,
    threads: ThreadCache<Transcript>,
    /// The time, for prices.
    clock: Arc<dyn Clock>,
}

impl LlmHandler {
    /// Stages ask their model of `models`; agents work with `agents`;
    /// `tree` knows which files other programs touched, `clock` the time, on which prices depend.
    pub fn new(
        models: ModelSource,
        defaults: ModelDefaults,
        agents: Agents,
        tree: Arc<WorkTree>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let threads = ThreadCache::default();
        let preambles = Preambles::new(&agents);
        Self { models, defaults, preambles, agents, tree, threads, clock }
    }

    /// The model for the stage. `taken` are the turns of its line. Stages of a sub-workflow are on the
    /// branch of the stage that runs it.
    pub(crate) fn model(&self, stage: &Stage, taken: &TurnCounts) -> Arc<dyn Model> {
        let outer = stage.run.parent.as_ref().and_then(|parent| parent.branch.as_deref());
        let branches: Vec<&str> = outer.into_iter().chain(stage.branch.as_deref()).collect();
        (self.models)(&AskingStage {
            node: &stage.at.node,
            branch: BranchPath::new(&branches.join("/")),
            visit: stage.at.visit,
            taken,
            taken_before_visit: stage.at.turns_before,
        })
    }

    async fn run(&self, stage: &mut Stage) -> Result<StageEnd, StageEnd> {
        let recorded = stage.recorded().await?;
        let request = self.prepare_from(stage, &recorded).await?;
        let plan = Arc::clone(&stage.plan);
        let node = Arc::clone(&stage.at.node);
        let redactor = &self.agents.redactor;
        let is_simulated = stage.run.dry_run;
        let interpret = |reply: &Reply| {
            if is_simulated {
                return interpret_simulated(&node, reply);
            }
            interpret(&plan, &node, reply, redactor)
        };
        match self.ask(stage, &request, &recorded, &interpret).await {
            Ok(outcome) => Ok(request.finish(outcome)),
            Err(NoReply::Failed(outcome)) => Ok(request.finish(*outcome)),
            Err(NoReply::End(end)) => Err(end),
        }
    }

    /// Asks until the reply is valid, and writes the files of the stage.
    pub(crate) async fn ask(
        &self,
        stage: &mut Stage,
        request: &StageRequest,
        recorded: &[Event],
        interpret: &(dyn Fn(&Reply) -> Interpretation + Sync),
    ) -> Result<Outcome, NoReply> {
        let files = StageFiles::open(stage).await.map_err(StageEnd::from)?;
        files.write("prompt.md", &request.message).map_err(StageEnd::from)?;
        let ValidReply { text, outcome } =
            self.ask_backend(stage, request, recorded, interpret).await?;
        files.write("response.md", &text).map_err(StageEnd::from)?;
        Ok(outcome)
    }

    async fn ask_backend(
        &self,
        stage: &mut Stage,
        request: &StageRequest,
        recorded: &[Event],
        interpret: &(dyn Fn(&Reply) -> Interpretation + Sync),
    ) -> Result<ValidReply, NoReply> {
        let first = NextMessage::Request(request.message.clone());
        let retries = stage.spec().llm().map_or(0, |llm| llm.output_retries);
        if *backend(stage) != Backend::Api && !stage.run.dry_run {
            let mut program = ExternalConversation::new(self, stage, request, recorded).await?;
            let first = if program.is_interrupted() { NextMessage::Resume } else { first };
            let reply = ask_until_valid(&mut program, stage, first, retries, interpret).await;
            program.warn_of_unknown_price(stage).await;
            return reply;
        }
        let mut session = ApiConversation::new(self, stage, request, recorded).await?;
        let first = if session.is_interrupted() { NextMessage::Resume } else { first };
        let reply = ask_until_valid(&mut session, stage, first, retries, interpret).await;
        session.warn_of_unknown_price(stage).await;
        reply
    }

    /// The files in which the stage's agent may have put its directives.
    async fn agent_files(
        &self,
        stage: &Stage,
        status: &AgentStatus,
        last_touched: Option<&str>,
    ) -> AgentFiles {
        if stage.spec().agent().is_none() {
            return AgentFiles::default();
        }
        let work_dir = Path::new(&stage.run.work_dir);
        let last = last_touched.filter(|file| *file != AgentStatus::NAME);
        // Any file of the project may be the last one; the directives of a large one were not meant.
        let last = last.and_then(|file| {
            let text = text_of_file(work_dir, Path::new(file), AGENT_FILE_BYTES).ok()??;
            Some((file, text))
        });
        let status = match status.text(AGENT_FILE_BYTES) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("{} is not read for directives: {error}", AgentStatus::NAME);
                warn(&stage.reporter, "directive", message).await;
                None
            }
        };
        let contents = status.map(|text| (AgentStatus::NAME, text)).into_iter().chain(last);
        let redacted = |(name, text): (&str, String)| AgentFile {
            name: name.to_owned(),
            text: self.agents.redactor.redact(&text).into_owned(),
        };
        AgentFiles::Contents(contents.map(redacted).collect())
    }
}

#[async_trait]
impl Handler for LlmHandler {
    async fn execute(&self, mut stage: Stage) -> StageEnd {
        self.run(&mut stage).await.unwrap_or_else(|end| end)
    }
}

impl StageRequest {
    /// The end of the stage, with what the request adds to its outcome.
    pub(crate) fn finish(&self, outcome: Outcome) -> StageEnd {
        let add = |outcome: Outcome, (key, value)| outcome.with_update(key, value);
        let mut finished = Finished::from(self.updates().fold(outcome, add));
        let (name, bytes) = prompt_blob(&self.message);
        finished.prompt = Some(name);
        finished.blobs.push((name, bytes));
        finished.into()
    }
}

/// What answers the stage's request. A fan-in always asks a model.
fn backend(stage: &Stage) -> &Backend {
    match &stage.spec().body {
        NodeBody::Agent(agent) => &agent.llm.backend,
        NodeBody::Prompt(llm) => &llm.backend,
        _ => &Backend::Api,
    }
}

pub(crate) fn cannot_record(error: impl std::fmt::Display) -> StageEnd {
    StageEnd::CannotRecord { message: error.to_string() }
}

/// The prompt as it goes into the log: a blob of its JSON string.
fn prompt_blob(prompt: &str) -> NewBlob {
    let bytes: Arc<[u8]> = Value::from(prompt).to_string().into_bytes().into();
    (BlobRef::of(&bytes), bytes)
}

/// The outcome of a stage that was canceled during a turn. A retry after a timeout takes the next.
fn canceled_with(used: Usage) -> Outcome {
    Outcome {
        usage: Some(Usage { failed_requests: used.failed_requests + 1, ..used }),
        ..canceled()
    }
}
