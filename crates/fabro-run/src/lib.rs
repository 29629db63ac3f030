//! From settings and the environment to what a run works with: providers, tools, servers, secrets.
//!
//! Settings (`fabro-config`, kept with a run as [`RunSettings`](fabro_handlers::RunSettings)) name
//! things; here they are looked up in the environment and made: [`model`] is who answers, [`agents`]
//! is what agents work with, and [`redactor`] knows every secret of both, so that none is recorded.
//! [`check_kept`] and [`check_given`] refuse what people give a run where it holds one of them.
//! [`check_run_file`] finds what a run.toml names and cannot have, [`Beside`] reads what a workflow names.
//! [`prepare`] runs the steps before the first stage. [`family`] and [`at_work`] find the runs that are
//! driven, answered and ended together: a run and its sub-workflows. [`start_driver`] is for runs that go
//! on in the background.
//!
//! ```
//! use fabro_handlers::RunSettings;
//!
//! let settings = RunSettings {
//!     model_script: Some(r#"{"*": [{"text": "Hello."}]}"#.to_owned()),
//!     ..RunSettings::default()
//! };
//! assert!(fabro_run::model(&settings, false).is_ok());
//! let broken = RunSettings { model_script: Some("{".to_owned()), ..RunSettings::default() };
//! let error = fabro_run::model(&broken, false).err().unwrap();
//! assert_eq!(error.fix, "mend the file");
//! ```
//!
//! # Limits
//!
//! - Reads the environment of the process, each time it is asked. Variables that are no UTF-8 are as
//!   good as absent.
//! - Nothing is started or asked here: servers start when an agent needs them.
//! - The family of a run is looked for among all runs of the store.

mod agents;
mod background;
mod env;
mod family;
mod files;
mod given;
mod models;
mod prepare;
mod run_file;
mod settings;
mod trial;

pub use agents::{agents, provider, recorded_redactor, redactor};
pub use background::{BackgroundError, start_driver};
pub use env::{Variables, expanded, without_secrets};
pub use family::{Member, at_work, end_family, end_stages_left_behind, family, root};
pub use files::{Beside, is_too_large, read_text};
pub use given::{answers, check_given, check_kept, check_values, used_up};
pub use models::{catalog, client, model, providers};
pub use prepare::{NotPrepared, prepare, prepare_dir};
pub use run_file::{check_run_file, goal_of, model_script_of};
pub use settings::{check, run_settings};
pub use trial::{Mishap, Tried, try_all, try_model};

/// Settings that cannot be used here and now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SetupError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
}

impl SetupError {
    fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into() }
    }
}
