use std::collections::BTreeMap;
use std::fmt;

use fabro_types::Diagnostic;
use serde_json::{Map, Value};
use toml::de::DeTable;

use crate::reader::{Node, Reader, entries, read};

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
    /// `run.agent.permissions`: what agents may do when their node does not say.
    pub permissions: Option<Permissions>,
    /// `run.artifacts.include`: glob patterns of files to keep, beside the usual ones.
    pub artifacts: Vec<String>,
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

/// What an agent's tools may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permissions {
    /// `read-only`: look at files.
    ReadOnly,
    /// `read-write`: change files too.
    ReadWrite,
    /// `full`: run commands and reach the network too.
    Full,
}

impl Permissions {
    /// The word of the settings file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::ReadWrite => "read-write",
            Self::Full => "full",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::ReadOnly, Self::ReadWrite, Self::Full].into_iter().find(|it| it.as_str() == word)
    }
}

/// A setting that is checked but does nothing in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Its dotted name, such as `run.model.fallbacks`.
    pub setting: &'static str,
    /// What it would do, such as `asking another model when one fails`.
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
    read(text, KNOWN, top)
}

/// The settings of `config` that later versions act on; empty when all of it works today.
pub fn unsupported(config: &RunConfig) -> Vec<Unsupported> {
    let set = [
        (
            !config.model.fallbacks.is_empty(),
            "run.model.fallbacks",
            "asking another model when one fails",
        ),
        (config.permissions.is_some(), "run.agent.permissions", "agents with tools"),
        (!config.artifacts.is_empty(), "run.artifacts.include", "keeping the files a run produced"),
    ];
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
    "run.agent.permissions",
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
                config.env = env(reader, name, value);
            }),
            "prepare" => only(reader, "run.prepare", "steps", value, |reader, name, value| {
                config.prepare = steps(reader, name, value);
            }),
            "agent" => only(reader, "run.agent", "permissions", value, |reader, name, value| {
                config.permissions = permissions(reader, name, value);
            }),
            "artifacts" => {
                only(reader, "run.artifacts", "include", value, |reader, name, value| {
                    config.artifacts = patterns(reader, name, value);
                });
            }
            _ => reader.unknown("run", key),
        }
    }
}

/// Reads a `[run.model]` table; `fallbacks` too, which only a run.toml has.
fn model(reader: &mut Reader, node: &Node<'_>) -> ModelConfig {
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

fn env(reader: &mut Reader, name: &str, node: &Node<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (key, value) in reader.section(name, node) {
        let variable = key.get_ref().as_ref();
        let full = format!("{name}.{variable}");
        if variable.is_empty() || variable.contains(['=', '\0']) {
            reader.error(value, format!("`{full}` is no name of a variable"), "correct the name");
        } else if value.get_ref().as_str() == Some("") {
            // Set but empty differs from not set: scripts test for it.
            env.insert(variable.to_owned(), String::new());
        } else if let Some(text) = reader.text(&full, value) {
            env.insert(variable.to_owned(), text);
        }
    }
    env
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

fn permissions(reader: &mut Reader, name: &str, node: &Node<'_>) -> Option<Permissions> {
    let word = reader.text(name, node)?;
    let permissions = Permissions::parse(&word);
    if permissions.is_none() {
        let message = format!("`{name}` is `{word}`");
        reader.error(node, message, "use `read-only`, `read-write` or `full`");
    }
    permissions
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
