use std::collections::BTreeMap;
use std::fmt;

use fabro_types::Diagnostic;
use serde_json::{Map, Value};
use toml::de::DeTable;

use crate::agent::{self, AgentSettings};
use crate::provider::{self, ModelEntry, ProviderSettings};
use crate::reader::{Node, Reader, entries, read};
use crate::tools;

/// What a run.toml sets, as it is written: paths are relative to the file it stands in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunConfig {
    /// `workflow.graph`: the workflow file; `workflow.fabro` when it is absent.
    pub graph: Option<String>,
    /// `run.goal`: the goal, or `@file`; `@@` stands for a literal `@` at its start.
    pub goal: Option<String>,
    /// `run.inputs`: the run's inputs, in the order of the file.
    pub inputs: Map<String, Value>,
    /// `run.model`: the model of stages that name none.
    pub model: ModelConfig,
    /// `run.sandbox.env`: variables that scripts get besides the user's environment.
    pub env: BTreeMap<String, String>,
    /// `run.prepare.steps`: what runs before the first stage, in order.
    pub prepare: Vec<PrepareStep>,
    /// `run.agent`: what agents may do, and what they are given, when their node does not say.
    pub agent: AgentSettings,
    /// `run.artifacts.include`: glob patterns of files to keep, beside the usual ones.
    pub artifacts: Vec<String>,
    /// `providers`: who serves models, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// `models`: what is known of models beyond the catalog, by name.
    pub models: BTreeMap<String, ModelEntry>,
}

/// Which model to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// `name`: the model, such as `claude-sonnet-4-5`.
    pub name: Option<String>,
    /// `provider`: who serves it, such as `anthropic`.
    pub provider: Option<String>,
    /// `fallbacks`: what to ask instead when it fails, in order: `provider` or `provider/model`.
    pub fallbacks: Vec<String>,
    /// `script`: a file of ready answers, used only while no provider is configured.
    pub script: Option<String>,
}

/// One `[[run.prepare.steps]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareStep {
    /// What the shell runs.
    pub script: String,
}

/// A setting that is checked but does nothing in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Its dotted name, such as `run.artifacts.include`.
    pub setting: &'static str,
    /// What it would do, such as `keeping the files a run produced`.
    pub feature: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` has no effect yet: this version lacks {}", self.setting, self.feature)
    }
}

/// Reads a run.toml. The warnings are keys that are no setting and a missing `_version`.
///
/// # Errors
///
/// Everything found in the file, in its order, at least one of them an error: text that is no TOML,
/// a version this crate does not read, a value of the wrong type or out of range.
pub fn parse(text: &str) -> Result<(RunConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
    read(text, &[KNOWN, agent::KNOWN, tools::KNOWN, provider::KNOWN], top)
}

/// The settings of `config` that later versions act on; empty when all of it works today.
pub fn unsupported(config: &RunConfig) -> Vec<Unsupported> {
    let set = [(
        !config.artifacts.is_empty(),
        "run.artifacts.include",
        "keeping the files a run produced",
    )];
    set.into_iter()
        .filter(|(set, ..)| *set)
        .map(|(_, setting, feature)| Unsupported { setting, feature })
        .collect()
}

const KNOWN: &[&str] = &[
    "_version",
    "workflow.graph",
    "run.goal",
    "run.inputs",
    "run.model.name",
    "run.model.provider",
    "run.model.fallbacks",
    "run.model.script",
    "run.sandbox.env",
    "run.prepare.steps.script",
    "run.artifacts.include",
];

fn top(reader: &mut Reader, table: &DeTable<'_>, config: &mut RunConfig) {
    for (key, value) in entries(table) {
        match key.get_ref().as_ref() {
            "_version" => {}
            "workflow" => {
                for (key, value) in reader.section("workflow", value) {
                    match key.get_ref().as_ref() {
                        "graph" => config.graph = reader.text("workflow.graph", value),
                        _ => reader.unknown("workflow", key),
                    }
                }
            }
            "run" => run(reader, value, config),
            "providers" => config.providers = provider::providers(reader, value),
            "models" => config.models = provider::models(reader, value),
            _ => reader.unknown("", key),
        }
    }
}

fn run(reader: &mut Reader, node: &Node<'_>, config: &mut RunConfig) {
    for (key, value) in reader.section("run", node) {
        match key.get_ref().as_ref() {
            "goal" => config.goal = reader.text("run.goal", value),
            "inputs" => config.inputs = reader.json_table("run.inputs", value),
            "model" => config.model = model(reader, value),
            "sandbox" => only(reader, "run.sandbox", "env", value, |reader, name, value| {
                config.env = reader.env(name, value);
            }),
            "prepare" => only(reader, "run.prepare", "steps", value, |reader, name, value| {
                config.prepare = steps(reader, name, value);
            }),
            "agent" => config.agent = agent::agent(reader, value),
            "artifacts" => {
                only(reader, "run.artifacts", "include", value, |reader, name, value| {
                    config.artifacts = patterns(reader, name, value);
                });
            }
            _ => reader.unknown("run", key),
        }
    }
}

/// Reads a `[run.model]` table.
pub(crate) fn model(reader: &mut Reader, node: &Node<'_>) -> ModelConfig {
    let mut model = ModelConfig::default();
    for (key, value) in reader.section("run.model", node) {
        match key.get_ref().as_ref() {
            "name" => model.name = reader.text("run.model.name", value),
            "provider" => model.provider = reader.text("run.model.provider", value),
            "script" => model.script = reader.text("run.model.script", value),
            "fallbacks" => model.fallbacks = reader.texts("run.model.fallbacks", value),
            _ => reader.unknown("run.model", key),
        }
    }
    model
}

fn steps(reader: &mut Reader, name: &str, node: &Node<'_>) -> Vec<PrepareStep> {
    let mut steps = Vec::new();
    for item in reader.array(name, node) {
        let mut script = None;
        let mut written = false;
        for (key, value) in reader.section(name, item) {
            match key.get_ref().as_ref() {
                "script" => {
                    written = true;
                    script = reader.text("run.prepare.steps.script", value);
                }
                _ => reader.unknown(name, key),
            }
        }
        if !written && item.get_ref().is_table() {
            reader.error(item, format!("a step of `{name}` has no `script`"), "give it one");
        }
        steps.extend(script.map(|script| PrepareStep { script }));
    }
    steps
}

fn patterns(reader: &mut Reader, name: &str, node: &Node<'_>) -> Vec<String> {
    let patterns = reader.texts(name, node);
    let outside = |pattern: &&String| {
        pattern.starts_with(['/', '~']) || pattern.split(['/', '\\']).any(|part| part == "..")
    };
    if let Some(pattern) = patterns.iter().find(outside) {
        let message = format!("`{name}` names `{pattern}`, outside the working directory");
        reader.error(node, message, "write patterns relative to the working directory");
    }
    patterns
}

/// Reads a table that has one setting.
fn only(
    reader: &mut Reader,
    name: &str,
    setting: &str,
    node: &Node<'_>,
    take: impl FnOnce(&mut Reader, &str, &Node<'_>),
) {
    let mut take = Some(take);
    for (key, value) in reader.section(name, node) {
        match take.take_if(|_| key.get_ref() == setting) {
            Some(take) => take(reader, &format!("{name}.{setting}"), value),
            None => reader.unknown(name, key),
        }
    }
}

#[cfg(test)]
mod tests;
