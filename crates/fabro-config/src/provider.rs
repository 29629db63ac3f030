use std::collections::BTreeMap;
use std::time::Duration;

use fabro_types::ProviderKind;
use serde::{Deserialize, Serialize};

use crate::detect::usual;
use crate::reader::{Node, Reader};
use crate::variables::{MissingVariable, expand_variables};

/// One `[providers.NAME]`: who serves models, and how it is reached. It never holds a key, only the
/// name of the variable that does, so it can be kept with a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderSettings {
    /// What workflows and `run.model.provider` call it.
    pub name: String,
    /// `kind`: what it speaks; the name itself when it is absent and the name is one.
    pub kind: ProviderKind,
    /// `base_url`: where it is reached; the usual place of its kind when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// `api_key_env`: the variable that holds its key. See [`ProviderSettings::api_key`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// `headers`: sent with every request. As written: `$NAME` stands for a variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// `request_timeout`: how long an answer may take to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<Duration>,
    /// `stream_timeout`: how long an answer may pause once it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_timeout: Option<Duration>,
}

impl ProviderSettings {
    /// A provider of this name and kind, with nothing else said.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self { name: name.into(), kind, ..Self::default() }
    }

    /// Its key, looked up in the environment. Without `api_key_env` it is the usual variable of the
    /// provider's name or kind, and `None` when that is not set. Not for keeping.
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
    /// counts. Empty where there is no usual one.
    pub fn usual_keys(&self) -> &'static [&'static str] {
        let named = usual(&self.name).filter(|usual| usual.kind == self.kind);
        named.or_else(|| usual(self.kind.as_str())).map_or(&[], |usual| usual.keys)
    }

    /// Its headers, with variables put in. Not for keeping.
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

/// One `[models.NAME]`: what is known of a model, over the catalog that comes with the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelEntry {
    /// What the provider calls it.
    pub name: String,
    /// `provider`: who serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `context_window`: what it takes, question and answer together, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// `max_output_tokens`: the longest answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// `input_cost`: what a million tokens sent cost, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cost: Option<f64>,
    /// `output_cost`: what a million tokens of answers cost, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_cost: Option<f64>,
    /// `cached_cost`: what a million tokens read from the provider's cache cost, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_cost: Option<f64>,
    /// `aliases`: other names it is found by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

pub(crate) const KNOWN: &[&str] = &[
    "providers.NAME.kind",
    "providers.NAME.base_url",
    "providers.NAME.api_key_env",
    "providers.NAME.headers",
    "providers.NAME.request_timeout",
    "providers.NAME.stream_timeout",
    "models.NAME.provider",
    "models.NAME.context_window",
    "models.NAME.max_output_tokens",
    "models.NAME.input_cost",
    "models.NAME.output_cost",
    "models.NAME.cached_cost",
    "models.NAME.aliases",
];

/// Reads `[providers]`.
pub(crate) fn providers(
    reader: &mut Reader,
    node: &Node<'_>,
) -> BTreeMap<String, ProviderSettings> {
    let mut all = BTreeMap::new();
    for (key, value) in reader.named("providers", node) {
        let name = key.get_ref().to_string();
        if let Some(provider) = provider(reader, &name, value) {
            all.insert(name, provider);
        }
    }
    all
}

fn provider(reader: &mut Reader, name: &str, node: &Node<'_>) -> Option<ProviderSettings> {
    let table = format!("providers.{name}");
    let (known, errors) = (usual(name), reader.errors());
    let mut kind = None;
    let mut provider = ProviderSettings::new(name, ProviderKind::default());
    for (key, value) in reader.section(&table, node) {
        let full = format!("{table}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "kind" => kind = Some(self::kind(reader, &full, value)),
            "base_url" => provider.base_url = reader.url(&full, value),
            "api_key_env" => provider.api_key_env = reader.variable(&full, value),
            "headers" => provider.headers = reader.headers(&full, value),
            "request_timeout" => provider.request_timeout = reader.duration(&full, value),
            "stream_timeout" => provider.stream_timeout = reader.duration(&full, value),
            _ => reader.unknown_in(&table, "providers.NAME", key),
        }
    }
    if !node.get_ref().is_table() {
        return None;
    }
    let Some(kind) = kind.unwrap_or_else(|| known.map(|usual| usual.kind)) else {
        if reader.errors() == errors {
            reader.error(
                node,
                format!("`{table}` has no `kind`"),
                &format!("say what it speaks: {}", kinds()),
            );
        }
        return None;
    };
    provider.kind = kind;
    if provider.base_url.is_none() {
        provider.base_url =
            known.filter(|usual| usual.kind == kind).and_then(|it| it.base_url).map(str::to_owned);
    }
    if kind == ProviderKind::OpenAiCompatible
        && provider.base_url.is_none()
        && reader.errors() == errors
    {
        reader.error(
            node,
            format!("`{table}` has no `base_url`"),
            "say where it is, such as `http://127.0.0.1:8080/v1`",
        );
    }
    Some(provider)
}

fn kind(reader: &mut Reader, name: &str, node: &Node<'_>) -> Option<ProviderKind> {
    reader.word(name, node, &ProviderKind::ALL.map(ProviderKind::as_str), ProviderKind::parse)
}

fn kinds() -> String {
    ProviderKind::ALL.map(|kind| format!("`{}`", kind.as_str())).join(", ")
}

/// Reads `[models]`.
pub(crate) fn models(reader: &mut Reader, node: &Node<'_>) -> BTreeMap<String, ModelEntry> {
    let mut all = BTreeMap::new();
    for (key, value) in reader.named("models", node) {
        let name = key.get_ref().to_string();
        all.insert(name.clone(), model(reader, name, value));
    }
    all
}

fn model(reader: &mut Reader, name: String, node: &Node<'_>) -> ModelEntry {
    let table = format!("models.{name}");
    let mut model = ModelEntry { name, ..ModelEntry::default() };
    for (key, value) in reader.section(&table, node) {
        let full = format!("{table}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "provider" => model.provider = reader.text(&full, value),
            "context_window" => model.context_window = reader.count(&full, value, 1),
            "max_output_tokens" => model.max_output_tokens = reader.count(&full, value, 1),
            "input_cost" => model.input_cost = reader.cost(&full, value),
            "output_cost" => model.output_cost = reader.cost(&full, value),
            "cached_cost" => model.cached_cost = reader.cost(&full, value),
            "aliases" => model.aliases = reader.texts(&full, value),
            _ => reader.unknown_in(&table, "models.NAME", key),
        }
    }
    model
}
