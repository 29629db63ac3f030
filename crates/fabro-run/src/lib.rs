//! A run as a library: create it or open it, drive it, and change it from outside.
//!
//! [`Run`] is what a command line, a server, a worker or a test calls. It takes a [`RunSpec`] and
//! keeps everything that the run depends on with it, so that it can be resumed when the files it came
//! from have changed or are gone. [`RunServices`] say where events go, who answers gates and what
//! interrupts the run; [`DriveResult`] says how it ended. Any [`RunStore`](fabro_store::RunStore) keeps
//! runs; what stages leave behind goes to a directory of this machine.
//!
//! ```
//! use std::sync::Arc;
//! use fabro_run::{DriveResult, LoadedWorkflow, Run, RunServices, RunSpec};
//! use fabro_store::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let source = r#"digraph { start -> greet -> exit; greet [prompt="Say hello"] }"#;
//! let mut spec = RunSpec::new(LoadedWorkflow::parse("hello", source)?, dir.path());
//! spec.settings.model_script = Some(r#"{"greet": [{"text": "Hello."}]}"#.to_owned());
//!
//! let store = Arc::new(SqliteStore::open(&dir.path().join("store"))?);
//! let runs_dir = store.runs_dir();
//! let run = Run::create(store, &runs_dir, spec).await?;
//! assert_eq!(run.drive(RunServices::default()).await?, DriveResult::Succeeded);
//! # Ok(())
//! # }
//! ```
//!
//! [`RunSpec::from_target`] merges a run.toml, the settings of project and user, and [`Overrides`].
//! A run that paused or was interrupted is opened and driven again. Stages that had completed do not
//! run again. Here a run pauses at a gate, which is answered from anywhere:
//!
//! ```
//! use std::sync::Arc;
//! use fabro_run::{AnsweredBy, DriveResult, LoadedWorkflow, Run, RunServices, RunSpec, answer};
//! use fabro_store::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let store = Arc::new(SqliteStore::open(&dir.path().join("store"))?);
//! let runs_dir = store.runs_dir();
//! let source = r#"digraph { start -> ship; ship [shape=hexagon]; ship -> exit [label="[Y] Yes"] }"#;
//! let spec = RunSpec::new(LoadedWorkflow::parse("release", source)?, dir.path());
//! let run = Run::create(store.clone(), &runs_dir, spec).await?;
//! let id = run.id();
//! let paused = run.drive(RunServices::default()).await?;
//! assert!(matches!(paused, DriveResult::Paused { .. }));
//!
//! answer(&*store, id, None, "y", AnsweredBy::new("ann", "http"), None).await?;
//! let run = Run::open(store, &runs_dir, id).await?;
//! assert_eq!(run.drive(RunServices::default()).await?, DriveResult::Succeeded);
//! # Ok(())
//! # }
//! ```
//!
//! [`Run::with_resume_options`] changes a spending limit, prepared answers or a model script before
//! it is driven again. Without driving it, [`answer`], [`steer`], [`cancel`], [`fork`] and [`rewind`]
//! change it. A run and the runs
//! of its sub-workflows are its family: they are driven and canceled together.
//!
//! What a run depends on is kept with it as a [`Bundle`]: the text of its workflow, the files that it
//! names, its settings, but never the values of secrets.
//!
//! # Limits
//!
//! - The environment of the process is read whenever services are built. Variables that are not UTF-8
//!   are ignored.
//! - Signals, the terminal and exit codes are up to the caller.

mod actions;
mod answers;
mod asked_models;
mod background;
mod bundle;
mod children;
mod concurrency;
mod control;
mod error;
mod family;
mod gates;
mod goal;
mod hooks;
mod lease;
mod model_names;
mod model_test;
mod model_warnings;
mod models;
mod older_log;
mod ownership;
mod preflight;
mod prepare;
mod reach;
mod remove;
mod restore;
mod resume_options;
mod retry;
mod run;
mod run_file;
mod run_id;
mod run_services;
mod sandbox;
mod sandbox_check;
mod secrets;
mod services;
mod sources;
mod spec;
mod stage_commits;
mod stage_trees;
mod start_form;
mod telemetry;
mod unread_inputs;
mod work_dir;
mod worktree;

#[cfg(test)]
mod tests;

/// Logins at MCP servers that ask for one by OAuth.
pub mod mcp_login {
    pub use fabro_tools::mcp::{Login, LoginError, LoginRequest, is_logged_in, log_out};
}

pub use fabro_events::AnsweredBy;

pub use actions::{
    BackgroundOptions, ResumedByAnswer, StartedRun, cancel_here, driver_command, fork_here,
    resume_answered, resume_in_background, start_in_background,
};
pub use bundle::{Bundle, BundleError, RunSettings};
pub use children::BundledChildren;
pub use control::{
    Cancellation, ForkChanges, ForkPoint, answer, cancel, fork, is_driven, record_compaction,
    rewind, steer,
};
pub use error::{NamedGate, RunError, SetupError, UNAVAILABLE};
pub use family::{Member, Within, holding_stages, run_redactor, running_members};
pub use gates::{
    AskedGates, Gate, find_stage_below, gate_names, gates_of_family, named_gates, open_gates,
    open_gates_of_family,
};
pub use goal::{GoalError, render_goal};
pub use model_names::{UnknownModels, check_model_names};
pub use model_test::{ModelTest, ModelTestError, test_model, test_providers, usual_model};
pub use models::{catalog, client, providers};
pub use older_log::refuse_older_log;
pub use remove::{remove_branch, remove_run};
pub use resume_options::{RefreshedModels, ResumeOptions};
pub use retry::retry;
pub use run::{DriveResult, Run};
pub use run_file::{check_given_inputs, check_inputs, check_run_file};
pub use run_id::{RUN_ID_VARIABLE, new_run_id};
pub use run_services::{RunServices, SystemClock, now_ms, os_user};
pub use sandbox::{remove_run_sandbox, sandbox_command};
pub use sandbox_check::{SandboxFindings, check_sandbox};
pub use services::ServiceBuilder;
pub use sources::{FileSources, is_too_large, read_text, read_text_or_pipe};
pub use spec::{LoadedWorkflow, Overrides, RunSpec, read_model_script};
pub use start_form::{StartForm, start_form};
pub use telemetry::{exporter, run_telemetry, run_trace};
pub use worktree::{WORKTREE, author};
