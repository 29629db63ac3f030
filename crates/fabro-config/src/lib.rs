//! Settings of a project, a user and a run: run.toml and where the store is.
//!
//! [`locate`] turns what a user typed (a workflow file, a run.toml, or a name) into a [`Target`];
//! [`settings`] reads what a project and a user set once for all runs; [`store_dir`] says where
//! runs are recorded; [`providers`] says who can serve a model. Every key and what it means: the
//! reference at the end of this page (`reference.md`).
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
//! let findings = fabro_config::parse("_version = 1\n[run]\ngoal = 3\n").unwrap_err();
//! assert_eq!(findings[0].message, "`run.goal` is an integer, but a string is expected");
//! ```
//!
//! # Limits
//!
//! - The process environment and the home directory are never looked at: callers pass them in.
//! - A settings file has at most 1 MiB, and a value nests at most 64 deep.
//! - No setting holds a secret: keys, and headers that sound secret, are names of variables, read
//!   when they are needed.
//! - Only what this version reads is a setting; a key it does not know is a warning, never ignored
//!   in silence. [`unsupported`] names the settings that are checked but do nothing yet.
#![doc = ""]
#![doc = include_str!("../reference.md")]

mod agent;
mod detect;
mod error;
mod locate;
mod near;
mod provider;
mod reader;
mod run;
mod settings;
mod store_dir;
mod tools;
mod values;
mod variables;

pub use agent::{AgentSettings, CompactionPreset, CompactionSettings};
pub use detect::{detect_providers, providers};
pub use error::{ConfigError, Findings};
pub use fabro_types::{Permissions, ProviderKind};
pub use locate::{RunFile, Target, load, locate};
pub use provider::{ModelEntry, ProviderSettings};
pub use run::{ModelConfig, PrepareStep, RunConfig, Unsupported, parse, unsupported};
pub use settings::{ModelSettings, Settings, parse_settings, settings, user_settings_file};
pub use store_dir::{project_dir, store_dir};
pub use tools::{HttpMethod, HttpTool, McpServer, McpTransport};
pub use variables::{MissingVariable, expand_variables};

#[cfg(test)]
mod tests;
