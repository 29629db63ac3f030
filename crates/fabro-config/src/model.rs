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
    /// `script`: a file of canned responses, used only while no provider is configured.
    /// [`settings`](crate::settings) makes it absolute; [`parse`](crate::parse) and [`parse_settings`](crate::parse_settings) leave it as
    /// written.
    pub script: Option<PathBuf>,
}
