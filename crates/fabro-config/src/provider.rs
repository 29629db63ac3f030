use std::collections::BTreeMap;
use std::time::Duration;

use fabro_types::{ModelInterface, ProviderKind};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::known_providers::known_provider;
use crate::variables::{MissingVariable, expand_variables};

/// One `[providers.NAME]`: a provider of models. It never holds a key, only the name of the
/// environment variable that does, so it can be stored with a run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderSettings {
    /// Its name in workflows and in `run.model.provider`.
    pub name: String,
    /// `kind`: its protocol; the name itself when it is absent and the name is one.
    pub kind: ProviderKind,
    /// `base_url`: its address; the usual one of its kind when absent.
    pub base_url: Option<String>,
    /// The only model that it lists, where a run needs one and no model is named. No setting: it is found when
    /// the run is created.
    pub listed_model: Option<String>,
    /// `interface`: the interface of its models, where its kind is `openai` or `openai-compatible`.
    pub interface: Option<ModelInterface>,
    /// `output_schema`: whether it takes the JSON Schema of a response; when absent, that is tried.
    pub output_schema: Option<bool>,
    /// `long_cache`: whether its prompt cache is kept for an hour instead of five minutes, where its kind is
    /// `anthropic`.
    pub long_cache: Option<bool>,
    /// `api_key_env`: the environment variable that holds its key. See [`ProviderSettings::api_key`].
    pub api_key_env: Option<String>,
    /// `headers`: sent with every request. As written: `$NAME` is an environment variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// `request_timeout`: timeout until a response begins.
    pub request_timeout: Option<Duration>,
    /// `stream_timeout`: timeout between two parts of a response.
    pub stream_timeout: Option<Duration>,
}

impl ProviderSettings {
    /// A provider of this name and kind, everything else unset.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self { name: name.into(), kind, ..Self::default() }
    }

    /// Its key, looked up in the environment. Without `api_key_env` it is the usual variable of the
    /// provider's name or kind, and `None` when that is not set. Not to be stored.
    ///
    /// # Errors
    ///
    /// `api_key_env` names a variable that is not set, or is empty.
    pub fn api_key(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, MissingVariable> {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        match &self.api_key_env {
            Some(name) => set(name).map(Some).ok_or_else(|| MissingVariable(name.clone())),
            None => Ok(self.usual_keys().iter().find_map(|name| set(name))),
        }
    }

    /// The variables that hold its key unless `api_key_env` names another; the first that is set
    /// counts. Empty when there is no usual one.
    pub fn usual_keys(&self) -> &'static [&'static str] {
        let known = known_provider(&self.name).filter(|known| known.kind == self.kind);
        known.or_else(|| known_provider(self.kind.as_str())).map_or(&[], |known| known.keys)
    }

    /// Its headers, with variables expanded. Not to be stored.
    ///
    /// # Errors
    ///
    /// A header names a variable that is not set.
    pub fn resolved_headers(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<BTreeMap<String, String>, MissingVariable> {
        let resolve = |(name, value): (&String, &String)| {
            Ok((name.clone(), expand_variables(value, &lookup)?))
        };
        self.headers.iter().map(resolve).collect()
    }
}
