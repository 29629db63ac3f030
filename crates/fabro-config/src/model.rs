use std::path::PathBuf;

use serde::Deserialize;

/// `[run.model]`: which model to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ModelSettings {
    /// `name`: the model, such as `claude-sonnet-4-5`.
    pub name: Option<String>,
    /// `provider`: the provider that serves it, such as `anthropic`.
    pub provider: Option<String>,
    /// `fallbacks`: the models to try when it fails, in order: `provider` or `provider/model`.
    pub fallbacks: Vec<String>,
    /// `script`: a file of canned responses, used as `script_when` says.
    /// [`settings`](crate::settings) makes it absolute; [`parse`](crate::parse) and [`parse_settings`](crate::parse_settings) leave it as
    /// written.
    pub script: Option<PathBuf>,
    /// `script_when`: when the script answers; [`ScriptUse::NoProvider`] when absent.
    pub script_when: Option<ScriptUse>,
}

/// `run.model.script_when`: when a model script that the settings name answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptUse {
    /// `no_provider`: while no provider is configured.
    #[default]
    NoProvider,
    /// `always`: also when one is, unless the command line asks for a model.
    Always,
}
