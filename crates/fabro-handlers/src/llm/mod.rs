//! Agent and prompt nodes: a conversation with a model, its answer, and what the answer asks for.

mod backend;
mod journal;
mod output;
mod summary;
mod talk;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_agent::{
    BeforeCall, SystemInfo, Transcript, project_docs, read_skills, system_prompt, use_skill,
};
use fabro_engine::{Finished, Handler, NewBlob, Stage, StageEnd};
use fabro_events::{Event, EventBody, Note, PauseReason};
use fabro_graph::NodeKind;
use fabro_llm::Model;
use fabro_preamble::Limits;
use fabro_preamble::memory::{Blocks, assemble};
use fabro_store::Recalled;
use fabro_tokens::O200k;
use fabro_tools::ToolSet;
use fabro_types::{BlobRef, Failure, Outcome, Usage, tool_names, unknown_tools};
use serde_json::Value;

use self::output::{Known, Reading};
pub(crate) use self::output::{Output, response_outcome};
use self::summary::Summarised;
pub use self::talk::compaction_policy;
pub(crate) use self::talk::{Ending, Talk};
use crate::WorkTree;
use crate::agents::Agents;
use crate::common::{canceled, text_of, warn};
use crate::files::StageFiles;
use crate::memory::{self, StageContext};
use crate::preamble::preamble;
use crate::render::render_prompt;

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
    pub(crate) agents: Agents,
    tree: Arc<WorkTree>,
    threads: Recalled<Transcript>,
    known: Option<Recorded>,
}

/// What is known of a stage that is replayed.
struct Recorded {
    left_in_files: Known,
    before_call: BeforeCall,
}

impl LlmHandler {
    /// Stages ask `model`; preambles keep to `limits`; agents work with `agents`;
    /// `tree` knows which files other programs touched.
    pub fn new(
        model: Arc<dyn Model>,
        defaults: ModelDefaults,
        limits: Limits,
        agents: Agents,
        tree: Arc<WorkTree>,
    ) -> Self {
        Self { model, defaults, limits, agents, tree, threads: Recalled::default(), known: None }
    }

    /// The same for a stage that was recorded. The files of its agent are not looked at: instead
    /// `left_in_files` gives the text with directives that was in them, or what the agent was told of
    /// one that does not hold. A call begins when `before_call` is over.
    #[must_use]
    pub fn recorded(
        self,
        left_in_files: impl Fn() -> Option<Result<String, String>> + Send + Sync + 'static,
        before_call: BeforeCall,
    ) -> Self {
        let known = Some(Recorded { left_in_files: Arc::new(left_in_files), before_call });
        Self { known, ..self }
    }

    fn reading(&self) -> Reading {
        let known = self.known.as_ref().map(|known| Arc::clone(&known.left_in_files));
        Reading { redactor: self.agents.redactor.clone(), known }
    }

    async fn run(&self, mut stage: Stage) -> Result<StageEnd, StageEnd> {
        let stage = &mut stage;
        let recorded = stage.recorded().await.map_err(cannot_record)?;
        let output = Output::of(stage)?;
        let work = self.work(stage, &recorded).await?;
        let message = match asked_before(stage, &recorded)? {
            Some(message) => message,
            None => self.message(stage, &work).await?,
        };
        let files = StageFiles::open(stage).await?;
        files.write("prompt.md", &message)?;
        let (name, bytes) = prompt_blob(&message);
        let ending = match stage.node().attrs.text("backend") {
            Some("cli" | "acp") if !stage.run.dry_run => {
                self.run_backend(stage, &message, &output).await?
            }
            _ => {
                let talk = Talk {
                    message,
                    system: work.system,
                    output: &output,
                    tools: work.tools,
                    context: (&work.memory).into(),
                    recorded: &recorded,
                    notes: &work.notes,
                };
                self.talk(stage, talk).await?
            }
        };
        let mut finished = match ending {
            Ending::Paused => return Ok(StageEnd::Suspended(PauseReason::Budget)),
            Ending::Canceled(usage) => Finished::from(Outcome { usage: Some(usage), ..canceled() }),
            Ending::Failed(outcome) => Finished::from(*outcome),
            Ending::Answered(answered) => {
                files.write("response.md", &answered.text)?;
                Finished::from(answered.outcome(stage, &output, &self.reading()).await)
            }
        };
        for (key, value) in work.context.update().into_iter().chain(work.summary) {
            finished.outcome = finished.outcome.with_update(key, value);
        }
        finished.prompt = Some(name);
        finished.blobs.push((name, bytes));
        Ok(finished.into())
    }

    /// What the stage's agent knows and has.
    async fn work(&self, stage: &Stage, recorded: &[Event]) -> Result<Work, StageEnd> {
        let node = stage.node();
        let is_agent = node.kind == NodeKind::Agent;
        let in_turns = is_turns(stage);
        let memory = if is_agent || in_turns || node.attrs.get("rag").is_some() {
            memory::memory(stage)?
        } else {
            fabro_preamble::memory::Memory::default()
        };
        let Summarised { memory, update, notes } = self.summarised(stage, memory, recorded).await?;
        let context = StageContext::new(stage, memory::recorded_notes(stage, recorded)?).await?;
        let context = Arc::new(context);
        let has_tools = is_agent && node.attrs.text("backend").is_none_or(|it| it == "api");
        let tools = if has_tools && !stage.run.dry_run {
            let work_dir = Path::new(&stage.run.work_dir);
            let (permissions, workflow) = (self.permissions(stage), Arc::clone(&context) as _);
            let offer = self.agents.toolbox.tools(work_dir, permissions, workflow);
            // A server may be slow to start.
            let offer = tokio::select! {
                biased;
                () = stage.cancel.cancelled() => return Err(Finished::from(canceled()).into()),
                offer = offer => offer,
            };
            for warning in offer.warnings {
                warn(&stage.reporter, "tools", warning).await;
            }
            let named = stage.node().attrs.text("tools").unwrap_or_default();
            for name in unknown_tools(named).filter(|name| offer.tools.get(name).is_none()) {
                let warning = format!("the node names `{name}`, and there is no such tool");
                warn(&stage.reporter, "tools", warning).await;
            }
            offered(stage, &offer.tools)
        } else {
            ToolSet::default()
        };
        let (tools, system) =
            if is_agent { self.equip(stage, tools).await } else { (tools, String::new()) };
        Ok(Work { memory, in_turns, context, tools, system, summary: update, notes })
    }

    /// The skills of an agent as a tool more, and its system prompt.
    async fn equip(&self, stage: &Stage, tools: ToolSet) -> (ToolSet, String) {
        let work_dir = Path::new(&stage.run.work_dir);
        let settings = &self.agents.settings;
        let more = settings.skills.as_deref().unwrap_or_default();
        let is_wanted = !tools.names().is_empty() && is_named(stage, "use_skill");
        let (skills, broken) =
            if is_wanted { read_skills(work_dir, more) } else { Default::default() };
        for error in broken {
            warn(&stage.reporter, "tools", format!("a skill is left out: {error}")).await;
        }
        let tools = use_skill(skills.clone()).into_iter().fold(tools, ToolSet::with);
        let wants_docs = stage.node().attrs.bool("project_memory") != Some(false)
            && settings.project_docs != Some(false)
            && !stage.run.dry_run;
        let docs = if wants_docs { project_docs(work_dir) } else { String::new() };
        let permissions = self.permissions(stage);
        let system = system_prompt(&SystemInfo {
            label: stage.node().label(),
            work_dir: Some(work_dir),
            permissions,
            tools: &tools.allowed(permissions).names(),
            project_docs: &docs,
            skills: &skills,
        });
        (tools, self.agents.redactor.redact(&system).into_owned())
    }

    /// The message of the stage: all that it is told, in the order of `docs/agents.md`.
    async fn message(&self, stage: &Stage, work: &Work) -> Result<String, StageEnd> {
        let prompt = render_prompt(stage)?;
        let before = preamble(stage, stage.fidelity(), &self.limits)?;
        let said = if work.in_turns {
            work.memory.block(&O200k, fabro_preamble::memory::MEMORY_TOKENS)
        } else {
            String::new()
        };
        let partner = work.memory.partner().filter(|_| work.in_turns).unwrap_or_default();
        let rag = memory::passages(stage, &work.memory, &prompt).await?;
        let tools = work.tools.instructions(self.permissions(stage));
        let blocks = Blocks {
            preamble: &before,
            memory: &said,
            rag: &rag,
            tool_instructions: &tools,
            partner,
            prompt: &prompt,
        };
        // Passages of files and answers of people come from outside.
        Ok(self.agents.redactor.redact(&assemble(&blocks, &O200k)).into_owned())
    }
}

/// What a stage's agent knows and has.
struct Work {
    memory: fabro_preamble::memory::Memory,
    /// The prompt tells of the memory.
    in_turns: bool,
    context: Arc<StageContext>,
    tools: ToolSet,
    system: String,
    /// A new summary of the turns that the memory no longer keeps.
    summary: Option<(&'static str, Value)>,
    /// What was recorded of making it.
    notes: Vec<Note>,
}

fn is_turns(stage: &Stage) -> bool {
    let own = stage.node().attrs.text("memory");
    own.or_else(|| stage.plan.workflow().attrs().text("memory")) == Some("turns")
}

/// The tools that the node's agent is offered: those it names, less what `context_tool` takes away.
fn offered(stage: &Stage, all: &ToolSet) -> ToolSet {
    let node = &stage.node().attrs;
    let hidden: &[&str] = match node.text("context_tool") {
        Some("off") => &["get_workflow_context", "append_workflow_context"],
        Some("write") => &[],
        _ => &["append_workflow_context"],
    };
    let keep = |name: &String| !hidden.contains(&name.as_str()) && is_named(stage, name);
    let names: Vec<String> = all.names().into_iter().filter(keep).collect();
    all.select(&names)
}

/// Whether the node's `tools` name this one; without the attribute they name all.
fn is_named(stage: &Stage, tool: &str) -> bool {
    let names = stage.node().attrs.text("tools");
    names.is_none_or(|names| tool_names(names).any(|name| name == tool))
}

/// What the agent was asked before it was interrupted.
fn asked_before(stage: &Stage, recorded: &[Event]) -> Result<Option<String>, Failure> {
    let first = recorded.iter().find_map(|event| match &event.entry.body {
        EventBody::AgentMessage { role, message: Some(message), .. } if role == "user" => {
            Some(message)
        }
        _ => None,
    });
    first.map(|message| text_of(stage, message)).transpose()
}

#[async_trait]
impl Handler for LlmHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        self.run(stage).await.unwrap_or_else(|end| end)
    }
}

pub(crate) fn cannot_record(error: impl std::fmt::Display) -> StageEnd {
    StageEnd::CannotRecord { message: error.to_string() }
}

/// The prompt as it goes into the log: a blob of its JSON string.
pub(crate) fn prompt_blob(prompt: &str) -> NewBlob {
    let bytes: Arc<[u8]> = Value::from(prompt).to_string().into_bytes().into();
    (BlobRef::of(&bytes), bytes)
}

/// A turn that was ended early: whatever follows, a time limit's retry perhaps, takes the next.
fn given_up(before: Usage) -> Usage {
    Usage { turns: before.turns + 1, ..before }
}
