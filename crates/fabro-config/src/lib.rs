//! Settings of a project, a user and a run: run.toml and where the store is.
//!
//! [`locate`] resolves a workflow file, a run.toml, or the name of a workflow to a [`Target`];
//! [`settings`] reads the settings of a project and a user; [`store_dir`] finds the directory of the
//! store; [`providers`] lists the providers of models. The reference at the end of this page
//! (`reference.md`) describes every key.
//!
//! ```
//! let text = r#"
//! _version = 1
//! [run]
//! goal = "Fix the failing test"
//! [run.inputs]
//! repo = "demo"
//! "#;
//! let (config, warnings) = fabro_config::parse(text).expect("a valid file");
//! assert_eq!(config.goal.as_deref(), Some("Fix the failing test"));
//! assert_eq!(config.inputs["repo"], "demo");
//! assert!(warnings.is_empty());
//!
//! let errors = fabro_config::parse("_version = 1\n[run]\ngoal = 3\n").unwrap_err();
//! assert_eq!(errors[0].message, "`run.goal` is an integer, but a string is expected");
//! ```
//!
//! # Limits
//!
//! - `SUDO_UID` is the only environment variable that is read (see [`check_owner`]). Callers pass in other variables
//!   and the home directory.
//! - A settings file has at most 1 MiB, and a value nests at most 64 deep.
//! - No setting holds a secret: keys, and headers with a secret name, refer to environment variables,
//!   which are read when they are needed.
//! - An unknown key is a warning.
#![doc = ""]
#![doc = include_str!("../reference.md")]

mod agent;
mod checked_settings;
mod concurrency;
mod detect;
mod effective;
mod error;
mod file;
mod git;
mod hooks;
mod known_providers;
mod locate;
mod model;
mod named;
mod owner;
mod provider;
mod reader;
mod review;
mod run;
mod sandbox;
mod schema;
mod sections;
mod settings;
mod spelling;
mod store_dir;
mod syntax_help;
mod telemetry;
mod tools;
mod trust;
mod upstream;
mod upstream_findings;
mod upstream_tables;
mod values;
mod variables;
mod webhooks;

pub use agent::{AgentSettings, CompactionPreset, CompactionSettings, PreambleSettings};
pub use concurrency::{Concurrency, OnBusy};
pub use detect::{detect_providers, providers};
pub use effective::{EffectiveSetting, SettingSource, effective_settings};
pub use error::{ConfigError, Findings};
pub use fabro_types::{Permissions, ProviderKind};
pub use git::{GitAuthor, GitSettings};
pub use hooks::{Hook, HookAction, HookEvent, OnHookError};
pub use locate::{RunFile, Target, load, locate, locate_as, workflow_files, workflow_names};
pub use model::{ModelSettings, ScriptUse};
pub use provider::ProviderSettings;
pub use reader::{SettingsReview, Unsupported};
pub use review::{SettingsFile, review_settings};
pub use run::{ArtifactPatterns, Execution, PrepareStep, RunConfig, parse};
pub use sandbox::{SandboxProvider, SandboxSettings, Workspace};
pub use settings::{
    RunDefaults, Settings, parse_settings, settings, settings_as, settings_files,
    user_settings_file,
};
pub use spelling::spelled_as_on_disk;
pub use store_dir::{project_dir, project_dirs, project_root, store_dir};
pub use telemetry::TelemetrySettings;
pub use tools::{HttpMethod, HttpTool, McpServer, McpTransport, SearchProvider, WebSearchSettings};
pub use trust::{check_link, check_named_file, check_owner};
pub use variables::{MissingVariable, expand_variables};
pub use webhooks::{EVENT_NAMES, Webhook};

#[cfg(test)]
mod tests;
