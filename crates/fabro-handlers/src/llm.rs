//! Agent and prompt nodes: one question to a model, its answer, and what the answer asks for.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_context::keys;
use fabro_engine::{Finished, Handler, NewBlob, Stage, StageEnd, StageRecord};
use fabro_events::EventBody;
use fabro_graph::NodeKind;
use fabro_llm::{Message, Model, Origin, Reply, Request, complete};
use fabro_preamble::Limits;
use fabro_types::{BlobRef, Failure, FailureClass, Fidelity, Outcome, Usage};
use serde_json::Value;

use crate::common::{canceled, text_of, warn};
use crate::directives;
use crate::files::{StageFiles, fresh_text};
use crate::preamble::preamble;
use crate::render::render_prompt;

/// How many characters of a response `last_response` keeps.
const PREVIEW: usize = 200;

/// The largest `status.json` of an agent that is read.
const STATUS_FILE_BYTES: u64 = 1 << 20;

/// What to ask a model for when the node says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelDefaults {
    /// From the command line or the run's settings: stronger than the graph's own default.
    pub run: Option<String>,
    /// The same for the provider.
    pub run_provider: Option<String>,
    /// From the project or the user: weaker than the graph's default.
    pub configured: Option<String>,
    /// The same for the provider.
    pub configured_provider: Option<String>,
}

/// Runs agent and prompt nodes on a model.
pub struct LlmHandler {
    model: Arc<dyn Model>,
    defaults: ModelDefaults,
    limits: Limits,
}

impl LlmHandler {
    /// Stages ask `model`; preambles keep to `limits`.
    pub fn new(model: Arc<dyn Model>, defaults: ModelDefaults, limits: Limits) -> Self {
        Self { model, defaults, limits }
    }

    /// Asks the model what `text` says, in the words of `stage`'s node.
    pub(crate) async fn ask(&self, stage: &Stage, messages: Vec<Arc<Message>>) -> Asked {
        let request = self.request(stage, messages);
        let name = request.model.clone();
        let answer = tokio::select! {
            answer = complete(&*self.model, request) => answer,
            () = stage.cancel.cancelled() => return Asked::Canceled,
        };
        match answer {
            Ok(mut reply) => {
                reply.usage.model = reply.usage.model.or(name);
                price(stage, &mut reply.usage).await;
                Asked::Answered(Box::new(reply))
            }
            Err(error) => {
                let mut usage = error.usage.clone();
                price(stage, &mut usage).await;
                let mut outcome = Outcome::failed(error.into());
                outcome.usage = Some(usage);
                Asked::Failed(Box::new(outcome))
            }
        }
    }

    fn request(&self, stage: &Stage, messages: Vec<Arc<Message>>) -> Request {
        let (node, graph) = (&stage.node().attrs, stage.plan.workflow().attrs());
        let pick = |own: &str, run: &Option<String>, default: &str, last: &Option<String>| {
            let own = node.text(own).map(str::to_owned);
            own.or_else(|| run.clone())
                .or_else(|| graph.text(default).map(str::to_owned))
                .or_else(|| last.clone())
        };
        let origin = Origin { node: Arc::clone(&stage.at.node), taken: stage.turns.clone() };
        let mut request = Request::new(origin, messages);
        let defaults = &self.defaults;
        request.model = pick("model", &defaults.run, "default_model", &defaults.configured);
        request.provider = pick(
            "provider",
            &defaults.run_provider,
            "default_provider",
            &defaults.configured_provider,
        );
        request.reasoning_effort = node.text("reasoning_effort").map(str::to_owned);
        request.speed = node.text("speed").map(str::to_owned);
        request.max_tokens = node.int("max_tokens").and_then(|max| u32::try_from(max).ok());
        request
    }

    async fn run(&self, stage: &Stage) -> Result<StageEnd, StageEnd> {
        let prompt = render_prompt(stage)?;
        let before = preamble(stage, stage.fidelity(), &self.limits)?;
        let assembled = if before.is_empty() { prompt } else { format!("{before}\n\n{prompt}") };
        let files = StageFiles::open(stage)?;
        files.write("prompt.md", &assembled)?;
        let (name, bytes) = prompt_blob(&assembled);
        let mut messages = thread(stage)?;
        messages.push(Message::user(assembled).into());
        let mut finished = match self.ask(stage, messages).await {
            Asked::Canceled => Finished::from(given_up()),
            Asked::Failed(outcome) => Finished::from(*outcome),
            Asked::Answered(reply) => {
                files.write("response.md", &reply.text())?;
                Finished::from(self.answered(stage, *reply).await)
            }
        };
        finished.prompt = Some(name);
        finished.blobs.push((name, bytes));
        Ok(finished.into())
    }

    async fn answered(&self, stage: &Stage, reply: Reply) -> Outcome {
        let text = reply.text();
        if reply.message().tool_calls().next().is_some() {
            let message = "the model called tools, which this version does not run yet";
            let mut outcome = Outcome::failed(Failure::new(FailureClass::Deterministic, message));
            outcome.usage = Some(reply.usage);
            return outcome;
        }
        // The driver may be ending; then the outcome is not recorded either.
        let _ = stage.reporter.report(message("assistant", &text)).await;
        let mut outcome = response_outcome(&stage.at.node, &text);
        let source = directive_source(stage, &text);
        directives::apply(&mut outcome, stage, source.as_deref().unwrap_or(&text)).await;
        outcome.usage = Some(reply.usage);
        outcome
    }
}

/// The earlier messages of the conversation that the stage takes part in.
fn thread(stage: &Stage) -> Result<Vec<Arc<Message>>, StageEnd> {
    let mut messages = Vec::new();
    let full = stage.fidelity() == Fidelity::Full;
    let Some(thread) = stage.at.thread_id.as_ref().filter(|_| full) else { return Ok(messages) };
    let same = |record: &&Arc<StageRecord>| record.thread_id.as_ref() == Some(thread);
    for record in stage.history.iter().filter(same) {
        let key = format!("{}{}", keys::RESPONSE_PREFIX, record.node);
        let response = record.end.outcome.context_updates.get(&key);
        let (Some(prompt), Some(response)) = (record.end.prompt, response) else { continue };
        messages.push(Message::user(text_of(stage, &prompt.to_value())?).into());
        messages.push(Message::assistant(text_of(stage, response)?).into());
    }
    Ok(messages)
}

/// How asking a model ended.
pub(crate) enum Asked {
    Answered(Box<Reply>),
    Failed(Box<Outcome>),
    Canceled,
}

#[async_trait]
impl Handler for LlmHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        self.run(&stage).await.unwrap_or_else(|end| end)
    }
}

/// A turn that was ended early: whatever follows, a time limit's retry perhaps, takes the next.
pub(crate) fn given_up() -> Outcome {
    let usage = Usage { turns: 1, ..Usage::default() };
    Outcome { usage: Some(usage), ..canceled() }
}

/// The prompt as it goes into the log: a blob of its JSON string.
pub(crate) fn prompt_blob(prompt: &str) -> NewBlob {
    let bytes: Arc<[u8]> = Value::from(prompt).to_string().into_bytes().into();
    (BlobRef::of(&bytes), bytes)
}

/// The keys that every answer of a model writes.
pub(crate) fn response_outcome(node: &str, text: &str) -> Outcome {
    let preview: String = text.chars().take(PREVIEW).collect();
    Outcome::succeeded()
        .with_update(format!("{}{node}", keys::RESPONSE_PREFIX), text)
        .with_update(keys::LAST_RESPONSE, preview)
}

fn message(role: &str, text: &str) -> EventBody {
    let text = text.chars().take(PREVIEW).collect();
    EventBody::AgentMessage { role: role.to_owned(), text, message: None, usage: None }
}

/// Where an agent's directives are when its answer has none: a `status.json` in the working
/// directory that is not older than the stage. Prompt nodes have only their answer.
fn directive_source(stage: &Stage, response: &str) -> Option<String> {
    if stage.node().kind != NodeKind::Agent || fabro_routing::extract(response).is_some() {
        return None;
    }
    let path = Path::new(&stage.run.work_dir).join("status.json");
    let text = fresh_text(&path, stage.started_ms, STATUS_FILE_BYTES)?;
    fabro_routing::extract(&text).is_some().then_some(text)
}

/// Puts the price of a turn into its usage, where the model did not. A run with a spending limit
/// is told when the price is not known, for the limit does not count that turn.
async fn price(stage: &Stage, usage: &mut Usage) {
    if usage.cost_usd > 0.0 || usage.input_tokens + usage.output_tokens == 0 {
        return;
    }
    let limit = stage.run.max_cost.or_else(|| stage.plan.workflow().attrs().float("max_cost"));
    match (fabro_llm::cost(usage), limit) {
        (Some(dollars), _) => usage.cost_usd = dollars,
        (None, None) => {}
        (None, Some(_)) => {
            let model = usage.model.as_deref().unwrap_or("the model");
            let message =
                format!("the price of {model} is not known, so max_cost does not count it");
            warn(&stage.reporter, "price", message).await;
        }
    }
}
