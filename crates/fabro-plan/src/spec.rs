//! The typed specifications of nodes, edges and the graph: what attributes mean, with defaults
//! applied.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fabro_condition::Condition;
use fabro_events::QuestionType;
use fabro_graph::NodeIx;
use fabro_routing::Schema;
use fabro_template::Template;
use fabro_types::{Fidelity, NodeKind, OnFailure, OnUnavailable, Permissions, Status, Weight};
use serde_json::Value;
use strum::EnumString;

/// Everything that the engine and the handlers know about a node.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// The id.
    pub id: Arc<str>,
    /// The label, or the id when there is none.
    pub label: Arc<str>,
    /// Which handler runs it.
    pub kind: NodeKind,
    /// The timeout of one attempt.
    pub timeout: Option<Duration>,
    /// `max_visits`, or the graph's `max_node_visits`.
    pub max_visits: VisitLimit,
    /// Attempts and delays after a failure.
    pub retry: RetryPolicy,
    /// Where a failure that no edge takes jumps to.
    pub retry_targets: RetryTargets,
    /// The node's own `fidelity`; see [`Plan::fidelity`](crate::Plan::fidelity).
    pub fidelity: Option<Fidelity>,
    /// The node's own `thread_id`.
    pub thread_id: Option<Arc<str>>,
    /// The run may only end when this node, if visited, succeeded.
    pub goal_gate: bool,
    /// A failure that the stage did not state itself counts as succeeded.
    pub auto_status: bool,
    /// When attempts or time run out, the stage is partially succeeded instead of failed.
    pub allow_partial: bool,
    /// The node's own `on_failure`; see [`GraphSpec::on_failure`].
    pub on_failure: Option<OnFailure>,
    /// The node's own `on_unavailable`; see [`GraphSpec::on_unavailable`].
    pub on_unavailable: Option<OnUnavailable>,
    /// How an edge is chosen among equals.
    pub selection: Selection,
    /// What only nodes of this kind have.
    pub body: NodeBody,
}

impl NodeSpec {
    /// The request to a model: of an agent, a prompt, or a fan-in with a prompt.
    pub fn llm(&self) -> Option<&LlmSpec> {
        match &self.body {
            NodeBody::Agent(agent) => Some(&agent.llm),
            NodeBody::Prompt(llm) => Some(llm),
            NodeBody::FanIn(llm, _) => llm.as_deref(),
            _ => None,
        }
    }

    /// The agent.
    pub fn agent(&self) -> Option<&AgentSpec> {
        match &self.body {
            NodeBody::Agent(agent) => Some(agent),
            _ => None,
        }
    }

    /// The script of a command.
    pub fn command(&self) -> Option<&CommandSpec> {
        match &self.body {
            NodeBody::Command(command) => Some(command),
            _ => None,
        }
    }

    /// The human gate.
    pub fn human(&self) -> Option<&HumanSpec> {
        match &self.body {
            NodeBody::Human(human) => Some(human),
            _ => None,
        }
    }

    /// The fan-out.
    pub fn parallel(&self) -> Option<&ParallelSpec> {
        match &self.body {
            NodeBody::Parallel(parallel) => Some(parallel),
            _ => None,
        }
    }

    /// The exit.
    pub fn exit(&self) -> Option<&ExitSpec> {
        match &self.body {
            NodeBody::Exit(exit) => Some(exit),
            _ => None,
        }
    }

    /// The sub-workflow.
    pub fn manager(&self) -> Option<&ManagerSpec> {
        match &self.body {
            NodeBody::Manager(manager) => Some(manager),
            _ => None,
        }
    }
}

/// An exit node.
#[derive(Clone, Debug, Default)]
pub struct ExitSpec {
    /// `status` of the run that ends here, never [`Status::Skipped`]; if `None`, unhandled failures
    /// decide.
    pub status: Option<Status>,
    /// `reason` why the run ends here.
    pub reason: Option<TextTemplate>,
}

/// How often a node may be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitLimit {
    /// Neither node nor graph says: any number of times, in a dry run a few times.
    Unstated,
    /// 0 is written: any number of times, also in a dry run.
    Unlimited,
    /// So many times.
    AtMost(u32),
}

/// What only nodes of one kind have.
#[derive(Clone, Debug)]
pub enum NodeBody {
    /// Where a run begins.
    Start,
    /// Where a run ends.
    Exit(ExitSpec),
    /// A choice between edges.
    Conditional,
    /// A model with tools.
    Agent(Box<AgentSpec>),
    /// One question to a model.
    Prompt(Box<LlmSpec>),
    /// A script.
    Command(CommandSpec),
    /// A question to a person.
    Human(HumanSpec),
    /// The beginning of a fan-out.
    Parallel(ParallelSpec),
    /// Where branches join; with a prompt a model chooses the best one.
    FanIn(Option<Box<LlmSpec>>, Merge),
    /// A pause of this length.
    Wait(Option<Duration>),
    /// A sub-workflow.
    Manager(Box<ManagerSpec>),
}

/// What a model is asked, and how.
#[derive(Clone, Debug)]
pub struct LlmSpec {
    /// The prompt; the label when there is none.
    pub prompt: TextTemplate,
    /// The node's own model.
    pub model: Option<Arc<str>>,
    /// The node's own provider.
    pub provider: Option<Arc<str>>,
    /// How hard the model thinks.
    pub reasoning_effort: Option<Arc<str>>,
    /// The provider's service class.
    pub speed: Option<Arc<str>>,
    /// The length of one answer.
    pub max_tokens: Option<u32>,
    /// The turn limit.
    pub max_turns: Option<u32>,
    /// The node's own models or providers to try when the first one does not answer.
    pub fallbacks: Option<Vec<Arc<str>>>,
    /// What runs the request.
    pub backend: Backend,
    /// What the answer must be.
    pub output: OutputSpec,
    /// How often an answer that does not match is sent back for repair.
    pub output_retries: u32,
    /// The node's own permissions for tools.
    pub permissions: Option<Permissions>,
    /// The prompt has the conversation of earlier stages (`memory=turns`, the node's or the graph's).
    pub memory_turns: bool,
    /// Files to search for passages that go into the prompt, as a pattern.
    pub rag: Option<Arc<str>>,
}

/// What an agent has besides its request.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// The request.
    pub llm: LlmSpec,
    /// The names of the tools that it may use; `None` for all.
    pub tools: Option<Vec<Arc<str>>>,
    /// What it may do with the workflow's memory.
    pub context_tool: ContextTool,
    /// It reads AGENTS.md and the like.
    pub project_memory: bool,
}

impl AgentSpec {
    /// Whether its `tools` allow this one.
    pub fn may_use(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| **name == *tool))
    }
}

/// What runs the request of a model stage.
#[derive(Clone, Debug, Default, PartialEq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Backend {
    /// A provider's API.
    #[default]
    Api,
    /// A command-line agent.
    Cli,
    /// An ACP agent.
    Acp {
        /// The command that starts it.
        command: Option<Arc<str>>,
        /// Its settings, a JSON value.
        config: Option<Value>,
    },
}

/// What the answer of a model, or the output of a script, must match.
#[derive(Clone, Debug)]
pub enum OutputSpec {
    /// Anything.
    Free,
    /// An object of routing directives.
    Routing,
    /// JSON that matches this schema.
    Schema(Arc<Schema>),
}

/// What an agent may do with the workflow's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum ContextTool {
    /// Read it.
    #[default]
    Read,
    /// Read it and add notes.
    Write,
    /// Nothing.
    Off,
}

/// A script.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The script; without one the stage fails.
    pub script: Option<TextTemplate>,
    /// What runs it.
    pub language: Language,
    /// The environment variables that it gets besides those of every script.
    pub env: Vec<(Arc<str>, TextTemplate)>,
    /// The context key whose value it reads from its standard input.
    pub stdin: Option<Arc<str>>,
    /// Whether stderr is merged into stdout.
    pub merge_stderr: bool,
    /// What its output must match.
    pub output: OutputSpec,
}

/// What runs a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Language {
    /// The shell.
    #[default]
    Shell,
    /// Python.
    Python,
}

/// A human gate. Its options are the node's edges.
#[derive(Clone, Debug)]
pub struct HumanSpec {
    /// The question: the label, else the id.
    pub question: TextTemplate,
    /// What is displayed with it, in this order.
    pub show: Vec<ShowSpec>,
    /// The link in the context key `review_target` is displayed first.
    pub review_target: bool,
    /// How it asks.
    pub question_type: QuestionType,
    /// The option (by its target, key or label) taken when time runs out or the gate is approved automatically.
    pub default_choice: Option<Arc<str>>,
}

/// A text that a gate displays with its question.
#[derive(Clone, Debug)]
pub enum ShowSpec {
    /// The last output or answer before it.
    Last,
    /// The value of a context key.
    Key(Arc<str>),
    /// A text with templates.
    Text(TextTemplate),
}

/// The beginning of a fan-out. Its branches are the node's edges, or the elements of a list.
#[derive(Clone, Debug)]
pub struct ParallelSpec {
    /// When the branches count as joined.
    pub join_policy: JoinPolicy,
    /// How many branches run at once.
    pub max_parallel: u32,
    /// The list that it has a branch for each element of.
    pub for_each: Option<ForEachSpec>,
    /// Whether the branches share the files.
    pub isolation: Isolation,
}

/// Whether the branches of a fan-out share the files of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Isolation {
    /// They work in one directory.
    #[default]
    None,
    /// Each has a git worktree of its own.
    Worktree,
}

/// Whose files a fan-in takes, of branches with git worktrees of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Merge {
    /// Those of the best branch.
    #[default]
    Best,
    /// Those of all branches that succeeded, merged in their order.
    All,
}

/// A list, and how its elements are called.
#[derive(Clone, Debug)]
pub struct ForEachSpec {
    /// As written.
    pub text: Arc<str>,
    /// Where it comes from.
    pub list: ListSource,
    /// The context key of an element in its branch.
    pub name: Arc<str>,
    /// How many elements there may be.
    pub max_items: usize,
}

/// Where a list comes from.
#[derive(Clone, Debug)]
pub enum ListSource {
    /// A context key, as in a condition.
    Key(Arc<str>),
    /// An expression, or a text.
    Text(TextTemplate),
}

/// When the branches of a fan-out count as joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum JoinPolicy {
    /// When all branches have ended.
    #[default]
    WaitAll,
    /// When all branches have ended, and at once when one has failed, which is a failure.
    AllSuccess,
    /// When one branch has succeeded: the branches race, and the others are canceled.
    FirstSuccess,
    /// When so many branches have succeeded; more than half without a number.
    Quorum(Option<u32>),
}

impl JoinPolicy {
    /// Whether a fan-out can succeed while some of its branches fail.
    pub fn allows_failed_branches(self) -> bool {
        matches!(self, Self::FirstSuccess | Self::Quorum(_))
    }
}

/// A sub-workflow.
#[derive(Clone, Debug)]
pub struct ManagerSpec {
    /// Its file as written, when it has one.
    pub file: Option<Arc<str>>,
    /// Its source; `None` when the node names no sub-workflow.
    pub source: Option<Arc<str>>,
    /// How long it may take: `manager.poll_interval` times `manager.max_cycles`.
    pub timeout: Duration,
    /// Its inputs by name; without any it has those of the run that it is a part of.
    pub inputs: Vec<(Arc<str>, InputSpec)>,
    /// Ends it when the condition holds after one of its stages.
    pub stop_condition: Option<Arc<Condition>>,
}

/// An input of a sub-workflow.
#[derive(Clone, Debug)]
pub enum InputSpec {
    /// A number or boolean as written.
    Value(Value),
    /// A text, or the value of an expression.
    Text(TextTemplate),
}

/// Everything that the engine and the handlers know about an edge.
#[derive(Clone, Debug)]
pub struct EdgeSpec {
    /// Its source.
    pub from: NodeIx,
    /// Its target.
    pub to: NodeIx,
    /// The label, unless it is empty.
    pub label: Option<Arc<str>>,
    /// The label of a human gate's edge, if it has templates.
    pub option: Option<TextTemplate>,
    /// What a human gate says about the option besides its label: `human.description`, `human.preview`.
    pub about: Vec<TextTemplate>,
    /// When it may be taken; `None` for an unconditional edge.
    pub condition: Option<EdgeCondition>,
    /// The weight; 0 when none is written.
    pub weight: Weight,
    /// The fidelity of the stage that it leads to.
    pub fidelity: Option<Fidelity>,
    /// The conversation of the stage that it leads to.
    pub thread_id: Option<Arc<str>>,
    /// It starts the workflow again at its target, with a fresh context.
    pub loop_restart: bool,
    /// It takes an answer to a human gate that matches no option.
    pub freeform: bool,
}

/// The condition of an edge.
#[derive(Clone, Debug)]
pub struct EdgeCondition {
    /// As written, without whitespace around it.
    pub text: Arc<str>,
    /// Parsed.
    pub parsed: Arc<Condition>,
}

/// What the graph's own attributes say.
#[derive(Clone, Debug)]
pub struct GraphSpec {
    /// The goal, which the run's settings may replace.
    pub goal: Option<TextTemplate>,
    /// The model where neither node, stylesheet nor command line names one.
    pub default_model: Option<Arc<str>>,
    /// The provider where neither node, stylesheet nor command line names one.
    pub default_provider: Option<Arc<str>>,
    /// The fidelity where neither edge nor node has one.
    pub default_fidelity: Fidelity,
    /// The conversation where neither edge nor node names one.
    pub default_thread: Option<Arc<str>>,
    /// The spending limit in US dollars.
    pub max_cost: Option<f64>,
    /// The token limit of the run, its sub-workflows included.
    pub max_tokens: Option<u64>,
    /// How long a model stage may show no activity; `None` without a watchdog.
    pub stall_timeout: Option<Duration>,
    /// The failure policy of nodes that do not set their own; `None` means [`OnFailure::Route`].
    pub on_failure: Option<OnFailure>,
    /// Where a failure on the main line jumps to when the node has no target of its own.
    pub retry_targets: RetryTargets,
    /// `loop_restart_signature_limit`: a line ends, failed, when a node fails for the so-many-th
    /// time with the same failure signature and the failure would leave it by a jump (to a retry
    /// target or back from a goal gate). Only deterministic and structural failures count. A
    /// success of the node starts the count again.
    pub signature_limit: u32,
    /// What follows when no model or agent is available, where the node does not say; `None`: the run pauses,
    /// unless the workflow handles the failure.
    pub on_unavailable: Option<OnUnavailable>,
}

/// Where a failed stage or an unmet goal gate jumps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryTargets {
    /// `retry_target`
    pub first: Option<NodeIx>,
    /// `fallback_retry_target`
    pub fallback: Option<NodeIx>,
}

/// How often, and how fast, a failed stage is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts, the first one included.
    pub attempts: u32,
    /// The delay before the second attempt, in milliseconds.
    pub first_delay_ms: u64,
    /// How much longer each further delay is.
    pub backoff_factor: u64,
    /// Retries every retryable failure, not only transient ones.
    pub any_failure: bool,
    /// Deterministic failures are not retried, because the workflow handles them.
    pub spares_deterministic: bool,
}

/// How an edge is chosen among equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Selection {
    /// The highest weight, then the lowest target id.
    #[default]
    Deterministic,
    /// At random, by weight.
    Random,
}

/// A text of the workflow that is rendered before it is used: a prompt, a script, the goal.
#[derive(Clone)]
pub struct TextTemplate {
    /// As written.
    pub text: Arc<str>,
    /// Parsed.
    pub template: Template,
}

impl fmt::Debug for TextTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TextTemplate").field(&self.text).finish()
    }
}
