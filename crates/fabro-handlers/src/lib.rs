//! The stages a workflow is made of: command, agent, prompt, human, wait, fan-in, sub-workflow.
//!
//! Each handler is built from exactly the services it needs; [`Registry`] hands every stage to the
//! handler of its kind, and is itself what the engine's driver is given. What a run depends on is
//! kept with it as a [`Bundle`].
//!
//! ```
//! use fabro_handlers::{Bundle, RunSettings};
//!
//! let bundle = Bundle {
//!     name: "hello".into(),
//!     file: "hello.fabro".into(),
//!     base: String::new(),
//!     source: "digraph { start -> exit }".into(),
//!     files: Default::default(),
//!     settings: RunSettings::default(),
//! };
//! assert_eq!(bundle.plan().unwrap().workflow().name(), "hello");
//! ```
//!
//! Limits: an agent answers in one turn and calls no tools; `output_schema`, workflow memory and
//! the cli and acp backends are not run yet, see [`unsupported`].

mod blobs;
mod bundle;
mod command;
mod directives;
mod dry;
mod fan_in;
mod files;
mod human;
mod llm;
mod preamble;
mod registry;
mod render;
mod sub_workflow;
mod unsupported;
mod wait;

pub use bundle::{Bundle, BundleError, RunSettings, render_goal};
pub use command::CommandHandler;
pub use dry::DryHandler;
pub use fabro_preamble::Limits;
pub use fan_in::FanInHandler;
pub use files::StatusFiles;
pub use human::HumanHandler;
pub use llm::{LlmHandler, ModelDefaults};
pub use registry::{Registry, Services};
pub use sub_workflow::{SubWorkflowHandler, read_all};
pub use unsupported::{Unsupported, unsupported};
pub use wait::WaitHandler;

/// The context key of the workflow file's directory.
pub const WORKFLOW_DIR: &str = "internal.workflow_dir";
/// The context key of the preamble that a sub-workflow's stages start with.
pub const PARENT_PREAMBLE: &str = "internal.parent_preamble";

#[cfg(test)]
mod tests;
