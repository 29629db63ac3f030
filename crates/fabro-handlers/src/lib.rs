//! The stages a workflow is made of: command, agent, prompt, human, wait, fan-in, sub-workflow.
//!
//! Each handler is built from exactly the services it needs; [`Registry`] hands every stage to the
//! handler of its kind, and is itself what the engine's driver is given.
//!
//! Every stage that asks a model goes the same way, whichever backend answers:
//! [`LlmHandler::prepare_from`] makes the request, one loop asks until the reply is valid, and
//! [`interpret`], which does no I/O, says what the reply means:
//!
//! ```
//! use fabro_engine::Plan;
//! use fabro_graph::Workflow;
//! use fabro_handlers::{Interpretation, Reply, interpret};
//! use fabro_redact::Redactor;
//! use fabro_types::Status;
//!
//! let source = "digraph { start -> plan -> exit; plan [prompt=Plan, output_schema=routing] }";
//! let workflow = Workflow::from_source("example", source).unwrap();
//! let plan = Plan::compile(workflow).unwrap();
//! let read = |text: &str| {
//!     let reply = Reply { text: text.to_owned(), ..Reply::default() };
//!     interpret(&plan, "plan", &reply, &Redactor::default())
//! };
//! let Interpretation::Valid { outcome, .. } = read(r#"{"outcome": "failed"}"#) else { panic!() };
//! assert_eq!(outcome.status, Status::Failed);
//! assert!(matches!(read("I do not know."), Interpretation::Invalid { .. }));
//! ```
//!
//! What a stage writes into the context, besides what the engine does:
//!
//! - command: `command.output`, `command.stderr`, `command.exit_code` (128 and the signal's number
//!   when a signal ended it);
//! - agent, prompt and a fan-in that asks a model: `response.{node}`, `last_response`, and what the
//!   answer's `context_updates` say, as far as an agent may write it;
//! - human: `human.gate.selected`, `human.gate.label`, `human.gate.text`, and `human.gate.NODE.question`,
//!   `.answer`, `.label`;
//! - fan-in: `parallel.fan_in.best_id`, `best_outcome`, `best_head_sha`;
//! - sub-workflow: `child.{node}`, the child's final context as one object.
//!
//! Files of a stage (`prompt.md`, `response.md`, the script, logs; `status.json` by
//! [`StatusFiles`]) are for people and tools. The run's log is the truth, and nothing is read back
//! from them. A stage whose files cannot be written ends the driver without being recorded.
//!
//! Without an [`Exec`](fabro_sandbox::Exec) nothing is executed: commands and waits end at once by
//! [`DryHandler`]. A prompt that reads a context key which therefore is not there stays as written.
//!
//! # Limits
//!
//! - Sub-workflows nest 16 deep.
//! - A `status.json` of an agent is read up to 1 MiB. Values inside of others, as in the results of
//!   branches and the context of a sub-workflow, are read back from blobs up to 100 KB each and
//!   1 MiB in all; larger ones stay references.

mod agents;
mod artifacts;
mod blobs;
mod children;
mod command;
mod common;
mod dry;
mod element;
mod fan_in;
mod files;
mod human;
mod llm;
mod memory;
mod preamble;
mod registry;
mod render;
mod shown_texts;
mod steering;
mod sub_workflow;
mod threads;
mod toolbox;
mod wait;

pub use agents::{Agents, FailedServer, Guard, NoTools, Offer, Toolbox};
pub use children::{ChildWorkflow, ChildWorkflows, NoChildren};
pub use command::{CommandHandler, WORKFLOW_DIR_VARIABLE, last_line};
pub use dry::DryHandler;
pub use fabro_engine::read_all;
pub use fabro_sandbox::git::WorkTree;
pub use fan_in::FanInHandler;
pub use files::StatusFiles;
pub use human::{Gate, GateChoice, HumanHandler};
pub use llm::{
    AgentFile, AgentFiles, FanIn, Interpretation, LlmHandler, MessageParts, ModelDefaults, Reply,
    StageRequest, compaction_policy, interpret, interpret_simulated, invalid_outcome,
    offload_notes, price_by,
};
pub use registry::{Registry, Services};
pub use sub_workflow::{SubWorkflowHandler, sub_workflow_id};
pub use toolbox::LocalToolbox;
pub use wait::WaitHandler;

/// The context key of the workflow file's directory.
pub const WORKFLOW_DIR: &str = "internal.workflow_dir";
/// The context key of the preamble that a sub-workflow's stages start with.
pub const PARENT_PREAMBLE: &str = "internal.parent_preamble";

/// The context key of the list elements that a sub-workflow runs for; its gates show them.
pub const PARENT_ITEM: &str = "internal.parent_item";

#[cfg(test)]
mod tests;
