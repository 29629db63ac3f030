//! What the model of a stage is asked. Reading it does I/O; assembling the message does not.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabro_agent::{
    DOCUMENT_BYTES, ProjectDocs, SUBAGENT_TOOLS, SystemInfo, project_docs, read_skills,
    system_prompt, use_skill,
};
use fabro_engine::{AgentSpec, Backend, ContextTool, Finished, Stage, StageEnd};
use fabro_events::{Event, EventBody, Note};
use fabro_preamble::memory::{Blocks, MEMORY_TOKENS, Memory, ToolContext, assemble};
use fabro_redact::Redactor;
use fabro_tokens::O200k;
use fabro_tools::{ToolSet, WorkflowContext as _};
use fabro_types::{Failure, FailureClass, Fidelity, NodeKind, Permissions, unknown_tools};
use serde_json::Value;

use super::LlmHandler;
use super::joined_branches::FanIn;
use super::summary::Summarised;
use crate::agents::FailedServer;
use crate::common::{canceled, text_of, warn};
use crate::element;
use crate::memory::{self, StageContext};
use crate::render::render_prompt;

/// The heading of the description of an agent's surroundings, at the end of its system prompt.
const ENVIRONMENT: &str = "\n\n# Environment at the start\n\n";

/// The same before the request of a later stage of its thread.
const ENVIRONMENT_NOW: &str = "# Environment now\n\n";

/// What the model of a stage is asked, and what it may use.
#[derive(Default)]
pub struct StageRequest {
    /// The message, redacted.
    pub message: String,
    /// The system prompt of an agent, redacted; empty for others.
    pub system: String,
    /// The text before the message of an agent, redacted: its stage, and what has changed around it since
    /// its thread began.
    pub opening: String,
    /// The tools of an agent.
    pub tools: ToolSet,
    pub(crate) tool_context: ToolContext,
    /// What agents append to the workflow's memory.
    pub(crate) context: Option<Arc<StageContext>>,
    /// A new summary of the turns that the memory no longer keeps.
    pub(crate) summary: Option<(&'static str, Value)>,
    /// What was recorded while the request was prepared.
    pub(crate) notes: Vec<Note>,
}

impl StageRequest {
    /// What the stage writes into the context in addition to its outcome.
    pub(crate) fn updates(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let appended = self.context.as_ref().and_then(|context| context.update());
        appended.into_iter().chain(self.summary.clone())
    }
}

/// The parts of a stage's message, in the order of `docs/agents.md`.
#[derive(Clone, Copy, Debug)]
pub struct MessageParts<'a> {
    /// What happened before.
    pub preamble: &'a str,
    /// What was said before, for a stage with `memory=turns`.
    pub memory: Option<&'a Memory>,
    /// Passages of files.
    pub passages: &'a str,
    /// How to use the tools.
    pub tool_instructions: &'a str,
    /// The rendered prompt.
    pub prompt: &'a str,
}

impl MessageParts<'_> {
    /// The message, redacted: passages of files and answers of people come from outside.
    pub fn assemble(&self, redactor: &Redactor) -> String {
        let memory = self.memory.map(|memory| memory.block(&O200k, MEMORY_TOKENS));
        let blocks = Blocks {
            preamble: self.preamble,
            memory: memory.as_deref().unwrap_or_default(),
            rag: self.passages,
            tool_instructions: self.tool_instructions,
            partner: self.memory.and_then(Memory::partner).unwrap_or_default(),
            prompt: self.prompt,
        };
        redactor.redact(&assemble(&blocks, &O200k)).into_owned()
    }
}

impl LlmHandler {
    /// What the stage's model is asked. Reads the history, files and tools of the stage, but asks
    /// no model, except for a summary of older turns where the settings name a model for it.
    ///
    /// `recorded` are the events of the stage's conversation before an interruption: a summary or a
    /// request among them is not made again.
    ///
    /// # Errors
    ///
    /// The stage ends so, without having asked.
    pub async fn prepare_from(
        &self,
        stage: &Stage,
        recorded: &[Event],
    ) -> Result<StageRequest, StageEnd> {
        let spec = stage.spec().llm();
        let agent = stage.spec().agent();
        let with_turns = spec.is_some_and(|llm| llm.memory_turns);
        let with_passages = spec.is_some_and(|llm| llm.rag.is_some());
        let memory = if agent.is_some() || with_turns || with_passages {
            memory::memory(stage)?
        } else {
            Memory::default()
        };
        let Summarised { memory, update, notes } = self.summarised(stage, memory, recorded).await?;
        let appended = memory::recorded_notes(stage, recorded)?;
        let shown = |text: &str, dirs: &[PathBuf]| match &self.agents.sandbox {
            Some(sandbox) => sandbox.shown(text, Path::new(&stage.run.work_dir), dirs).into_owned(),
            None => text.to_owned(),
        };
        let redactor = self.agents.redactor.clone();
        let context = Arc::new(StageContext::new(stage, appended, redactor, &shown).await?);
        let mut tools = ToolSet::default();
        let mut system = String::new();
        let mut opening = String::new();
        if let Some(agent) = agent {
            let offered = self.tools(stage, agent, &context).await?;
            let prompts;
            (tools, prompts) = self.equip(stage, agent, offered, recorded).await?;
            system = shown(&prompts.system, &[]);
            opening = shown(&prompts.opening, &[]);
        }
        let message = if let Some(message) = recorded_request(stage, recorded)? {
            message
        } else {
            let mut prompt = render_prompt(stage)? + &element::prompt_suffix(stage)?;
            if stage.spec().kind == NodeKind::FanIn {
                let branches = FanIn::of(stage)?.sections(stage, &self.preambles).await?;
                prompt = format!("{prompt}\n\n{branches}");
            }
            let fidelity = match stage.at.fidelity {
                // Programs do not have the conversation of the thread.
                Fidelity::Full if *super::backend(stage) != Backend::Api => Fidelity::SummaryHigh,
                fidelity => fidelity,
            };
            let parts = MessageParts {
                preamble: &self.preambles.write(stage, fidelity, agent.is_some()).await?,
                memory: with_turns.then_some(&memory),
                passages: &memory::passages(stage, &memory, &prompt, &self.agents.redactor).await?,
                tool_instructions: &tools.instructions(self.permissions(stage)),
                prompt: &prompt,
            };
            let dirs = [context.value_dirs(), context.artifact_dirs()].concat();
            shown(&parts.assemble(&self.agents.redactor), &dirs)
        };
        Ok(StageRequest {
            message,
            system,
            opening,
            tools,
            tool_context: (&memory).into(),
            context: Some(context),
            summary: update,
            notes,
        })
    }

    /// The tools that an agent behind an API is offered.
    async fn tools(
        &self,
        stage: &Stage,
        agent: &AgentSpec,
        context: &Arc<StageContext>,
    ) -> Result<ToolSet, StageEnd> {
        if agent.llm.backend != Backend::Api || stage.run.dry_run {
            return Ok(ToolSet::default());
        }
        let work_dir = Path::new(&stage.run.work_dir);
        let workflow = Arc::clone(context) as _;
        let offer = self.agents.toolbox.tools(work_dir, self.permissions(stage), workflow);
        // A server may be slow to start.
        let offer = tokio::select! {
            biased;
            () = stage.cancel.cancelled() => return Err(Finished::from(canceled()).into()),
            offer = offer => offer,
        };
        for warning in offer.warnings {
            warn(&stage.reporter, "tools", warning).await;
        }
        let listed = || agent.tools.iter().flatten();
        if listed().any(|name| &**name == "web_search") && offer.tools.get("web_search").is_none() {
            let warning = "the node names `web_search`, and no search engine is configured: \
                 [run.agent.web_search] names one";
            warn(&stage.reporter, "tools", warning.to_owned()).await;
        }
        if let Some(failure) = server_missing(agent, &offer.failed_servers) {
            return Err(failure.into());
        }
        let named = listed().flat_map(|name| unknown_tools(name));
        for name in named.filter(|name| offer.tools.get(name).is_none()) {
            let end = format!("__{name}");
            let mut all = offer.tools.names().into_iter();
            let meant = all.find(|it| it.starts_with("mcp__") && it.ends_with(&end));
            let meant = meant.map(|it| format!(": did you mean `{it}`?")).unwrap_or_default();
            let warning = format!("the node names `{name}`, and there is no such tool{meant}");
            warn(&stage.reporter, "tools", warning).await;
        }
        let tools = allowed(agent, &offer.tools);
        let guard = self.agents.guard.as_ref().and_then(|guard| guard.calls(stage));
        Ok(match guard {
            Some(guard) => tools.with_guard(guard),
            None => tools,
        })
    }

    /// The tools of an agent, with its skills as one more, and its texts besides the message.
    async fn equip(
        &self,
        stage: &Stage,
        agent: &AgentSpec,
        tools: ToolSet,
        recorded: &[Event],
    ) -> Result<(ToolSet, AgentPrompts), StageEnd> {
        let work_dir = Path::new(&stage.run.work_dir);
        let settings = &self.agents.settings;
        let mut skills = Vec::new();
        if !tools.names().is_empty() && agent.may_use("use_skill") {
            let more = settings.skills.as_deref().unwrap_or_default();
            let (found, broken) = read_skills(work_dir, more);
            for error in broken {
                warn(&stage.reporter, "tools", format!("a skill is left out: {error}")).await;
            }
            skills = found;
        }
        let tools = use_skill(skills.clone()).into_iter().fold(tools, ToolSet::with);
        let wants_docs =
            agent.project_memory && settings.project_docs != Some(false) && !stage.run.dry_run;
        let redactor = &self.agents.redactor;
        let docs =
            if wants_docs { project_docs(work_dir, redactor) } else { ProjectDocs::default() };
        for reason in &docs.refused {
            warn(&stage.reporter, "project_docs", format!("not read: {reason}")).await;
        }
        if !docs.cut.is_empty() {
            let cut = docs.cut.join(", ");
            let warning = format!(
                "the documents of the project have more than {} KB together, so these are cut: {cut}",
                DOCUMENT_BYTES / 1024
            );
            warn(&stage.reporter, "project_docs", warning).await;
        }
        let permissions = self.permissions(stage);
        let mut names = tools.allowed(permissions).names();
        let has_session = agent.llm.backend == Backend::Api && !stage.run.dry_run;
        if has_session && self.subagent_depth(stage) > 0 {
            names.extend(SUBAGENT_TOOLS.map(str::to_owned));
        }
        let label = &*stage.spec().label;
        let begun = recorded_system(stage, recorded)?;
        let is_in_system = begun.as_ref().is_some_and(|begun| begun.contains(&stage_line(label)));
        let mut system = system_prompt(&SystemInfo {
            label: if is_in_system { label } else { "" },
            work_dir: Some(work_dir),
            permissions,
            tools: &names,
            project_docs: &docs.text,
            skills: &skills,
        });
        let mut opening = String::new();
        if let Some(begun) = begun {
            // It stays what it was when the conversation began.
            system.push_str(environment_of(&begun));
        } else if has_session {
            opening = stage_line(label);
            let now = self.environment(stage).await;
            match self.thread_environment(stage, &now).await? {
                Some(then) => {
                    system.push_str(&then);
                    if then != now {
                        let now = now.trim_start_matches(ENVIRONMENT);
                        let _ = write!(opening, "\n\n{ENVIRONMENT_NOW}{now}");
                    }
                }
                None => system.push_str(&now),
            }
        }
        let redacted = |text: String| self.agents.redactor.redact(&text).into_owned();
        Ok((tools, AgentPrompts { system: redacted(system), opening: redacted(opening) }))
    }

    /// The description of the agent's surroundings.
    async fn environment(&self, stage: &Stage) -> String {
        let date = fabro_events::timestamp(self.clock.now_ms());
        let date = date.get(.."2026-01-01".len()).unwrap_or_default();
        let mut text =
            format!("{ENVIRONMENT}{} ({}), {date}", std::env::consts::OS, std::env::consts::ARCH);
        if let Some(model) = self.model_name(stage) {
            let _ = write!(text, "{MODEL}{model}");
        }
        if let Some(git) = fabro_sandbox::git::brief(Path::new(&stage.run.work_dir)).await {
            let _ = write!(text, "\n{git}");
        }
        text
    }

    /// The description in the system prompt of the thread that the stage continues: another one there
    /// would be another beginning of all requests, which no cache has. `None` when there is no such thread, or
    /// when another model continues it, whose cache has nothing of it.
    async fn thread_environment(
        &self,
        stage: &Stage,
        now: &str,
    ) -> Result<Option<String>, StageEnd> {
        let thread = self.thread(stage).await?;
        let Some(system) = thread.iter().rev().find_map(|part| part.system()) else {
            return Ok(None);
        };
        let system = text_of(stage, system)?;
        let then = environment_of(&system);
        Ok((!then.is_empty() && model_in(then) == model_in(now)).then(|| then.to_owned()))
    }

    /// What the tools of the stage's agent may do.
    pub(super) fn permissions(&self, stage: &Stage) -> Permissions {
        let own = stage.spec().llm().and_then(|llm| llm.permissions);
        own.or(self.agents.settings.permissions).unwrap_or_default()
    }
}

/// The tools that the node's agent is offered: those it names, less what `context_tool` takes away.
fn allowed(agent: &AgentSpec, all: &ToolSet) -> ToolSet {
    let hidden: &[&str] = match agent.context_tool {
        ContextTool::Off => &["get_workflow_context", "append_workflow_context"],
        ContextTool::Write => &[],
        ContextTool::Read => &["append_workflow_context"],
    };
    let keep = |name: &String| !hidden.contains(&name.as_str()) && agent.may_use(name);
    let names: Vec<String> = all.names().into_iter().filter(keep).collect();
    all.select(&names)
}

/// The texts that an agent gets besides the message.
struct AgentPrompts {
    system: String,
    opening: String,
}

/// Where the description of the surroundings names the model.
const MODEL: &str = ", model ";

fn stage_line(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("The stage is \"{label}\".") }
}

/// The description of the surroundings in a system prompt; empty when it has none.
fn environment_of(system: &str) -> &str {
    system.rfind(ENVIRONMENT).map_or("", |at| &system[at..])
}

/// The model that a description of the surroundings names.
fn model_in(environment: &str) -> Option<&str> {
    let first = environment.trim_start_matches(ENVIRONMENT).lines().next()?;
    first.split_once(MODEL).map(|(_, model)| model)
}

/// The system prompt with which the conversation of the stage began; `None` when it has not begun. Empty in
/// records without one.
fn recorded_system(stage: &Stage, recorded: &[Event]) -> Result<Option<String>, Failure> {
    let first = recorded.iter().find_map(|event| match &event.entry.body {
        EventBody::AgentMessage { role, given, .. } if role == "user" => Some(given.as_ref()),
        _ => None,
    });
    let Some(given) = first else { return Ok(None) };
    let system = given.and_then(|given| given.system.as_ref());
    let system = system.map(|system| text_of(stage, system)).transpose()?;
    Ok(Some(system.unwrap_or_default()))
}

/// The failure of an agent that cannot do its work: its `tools` name one of a server that cannot be used.
fn server_missing(agent: &AgentSpec, failed: &[FailedServer]) -> Option<Failure> {
    let names = || agent.tools.iter().flatten();
    let server = failed.iter().find(|it| names().any(|name| name.starts_with(&it.tool_prefix)))?;
    let remedy = format!(
        "start the server, or correct [run.agent.mcp.{}] in the settings and begin a new run",
        server.name
    );
    let message = format!("a tool that the node names is missing: {}", server.problem);
    let failure = Failure::new(FailureClass::Deterministic, message);
    Some(Failure { unavailable: Some(remedy), ..failure })
}

/// What the model was asked before the stage was interrupted.
fn recorded_request(stage: &Stage, recorded: &[Event]) -> Result<Option<String>, Failure> {
    let first = recorded.iter().find_map(|event| match &event.entry.body {
        EventBody::AgentMessage { role, message: Some(message), .. } if role == "user" => {
            Some(message)
        }
        _ => None,
    });
    first.map(|message| text_of(stage, message)).transpose()
}
