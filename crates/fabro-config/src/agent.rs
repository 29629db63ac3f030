use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fabro_types::Permissions;
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::locate::expand;
use crate::reader::{Node, Reader};
use crate::tools::{self, HttpTool, McpServer};

/// `[run.agent]`: what agents may do, and what they are given, where their node does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSettings {
    /// `permissions`: what their tools may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// `max_turns`: how many answers of the model a stage may take, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// `web_allow`: hosts (`HOST` or `HOST:PORT`) that they may fetch from although the address is
    /// a private one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_allow: Option<Vec<String>>,
    /// `project_docs`: whether they are shown the project's AGENTS.md and the like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_docs: Option<bool>,
    /// `summary_model`: what folds older turns of a workflow's memory into its summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_model: Option<String>,
    /// `subagent_depth`: how deep agents may start agents; 0 is not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_depth: Option<u32>,
    /// `context_window`: what the model takes, in tokens, over what the catalog says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// `skills`: folders with skills. As written after parsing, absolute once resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<PathBuf>>,
    /// `compaction`: how long conversations are shortened.
    pub compaction: CompactionSettings,
    /// `mcp`: servers whose tools they may use, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpServer>,
    /// `tools`: HTTP tools, in the order of the file; no two have the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<HttpTool>,
}

/// `[run.agent.compaction]`: what differs from the preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionSettings {
    /// `preset`: where it starts from; `fabro` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<CompactionPreset>,
    /// `enabled`: whether conversations are shortened without being asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `compact_at_tokens`: the size above which they are, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_at_tokens: Option<u64>,
    /// `reserve_tokens`: what is kept free below the model's window, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_tokens: Option<u64>,
    /// `keep_recent`: how many of the last messages stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_recent: Option<usize>,
    /// `recover_from_overflow`: whether a question that was too long is shortened and asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recover_from_overflow: Option<bool>,
}

/// When conversations are shortened, as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CompactionPreset {
    /// `fabro`: after an answer, above four fifths of the window.
    #[default]
    Fabro,
    /// `harness`: before a question, when little of the window is left.
    Harness,
    /// `strict`: never by itself.
    Strict,
}

impl CompactionPreset {
    /// The word of the settings file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fabro => "fabro",
            Self::Harness => "harness",
            Self::Strict => "strict",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Fabro, Self::Harness, Self::Strict].into_iter().find(|it| it.as_str() == word)
    }
}

impl AgentSettings {
    /// These settings, completed from weaker ones: field by field, servers and tools by name.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        let mut mcp = weaker.mcp;
        mcp.extend(self.mcp);
        let mut tools = self.tools;
        let own: BTreeSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        tools.extend(weaker.tools.into_iter().filter(|tool| !own.contains(&tool.name)));
        Self {
            permissions: self.permissions.or(weaker.permissions),
            max_turns: self.max_turns.or(weaker.max_turns),
            web_allow: self.web_allow.or(weaker.web_allow),
            project_docs: self.project_docs.or(weaker.project_docs),
            summary_model: self.summary_model.or(weaker.summary_model),
            subagent_depth: self.subagent_depth.or(weaker.subagent_depth),
            context_window: self.context_window.or(weaker.context_window),
            skills: self.skills.or(weaker.skills),
            compaction: self.compaction.or(weaker.compaction),
            mcp,
            tools,
        }
    }

    /// The same with the paths of a file in `dir` resolved: folders of skills become absolute, and
    /// the JSON Schemas that tools name as `@file` are read. `home` is what `~` stands for.
    ///
    /// # Errors
    ///
    /// A schema's file cannot be read, or holds no JSON object.
    pub fn resolved(mut self, dir: &Path, home: Option<&Path>) -> Result<Self, ConfigError> {
        for folder in self.skills.iter_mut().flatten() {
            *folder = expand(dir, home, folder);
        }
        for tool in &mut self.tools {
            tool.read_parameters(dir, home)?;
        }
        Ok(self)
    }
}

impl CompactionSettings {
    /// These settings, completed from weaker ones field by field.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        Self {
            preset: self.preset.or(weaker.preset),
            enabled: self.enabled.or(weaker.enabled),
            compact_at_tokens: self.compact_at_tokens.or(weaker.compact_at_tokens),
            reserve_tokens: self.reserve_tokens.or(weaker.reserve_tokens),
            keep_recent: self.keep_recent.or(weaker.keep_recent),
            recover_from_overflow: self.recover_from_overflow.or(weaker.recover_from_overflow),
        }
    }
}

pub(crate) const KNOWN: &[&str] = &[
    "run.agent.permissions",
    "run.agent.max_turns",
    "run.agent.web_allow",
    "run.agent.project_docs",
    "run.agent.summary_model",
    "run.agent.subagent_depth",
    "run.agent.context_window",
    "run.agent.skills",
    "run.agent.compaction.preset",
    "run.agent.compaction.enabled",
    "run.agent.compaction.compact_at_tokens",
    "run.agent.compaction.reserve_tokens",
    "run.agent.compaction.keep_recent",
    "run.agent.compaction.recover_from_overflow",
];

/// Reads `[run.agent]`.
pub(crate) fn agent(reader: &mut Reader, node: &Node<'_>) -> AgentSettings {
    let mut agent = AgentSettings::default();
    for (key, value) in reader.section("run.agent", node) {
        let full = format!("run.agent.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "permissions" => agent.permissions = permissions(reader, &full, value),
            "max_turns" => agent.max_turns = reader.small(&full, value, 1),
            "web_allow" => agent.web_allow = Some(hosts(reader, &full, value)),
            "project_docs" => agent.project_docs = reader.flag(&full, value),
            "summary_model" => agent.summary_model = reader.text(&full, value),
            "subagent_depth" => agent.subagent_depth = reader.small(&full, value, 0),
            "context_window" => agent.context_window = reader.count(&full, value, 1),
            "skills" => {
                let folders = reader.texts(&full, value);
                agent.skills = Some(folders.into_iter().map(PathBuf::from).collect());
            }
            "compaction" => agent.compaction = compaction(reader, &full, value),
            "mcp" => agent.mcp = tools::mcp(reader, &full, value),
            "tools" => agent.tools = tools::http_tools(reader, &full, value),
            _ => reader.unknown("run.agent", key),
        }
    }
    agent
}

fn permissions(reader: &mut Reader, name: &str, node: &Node<'_>) -> Option<Permissions> {
    reader.word(name, node, &["read-only", "read-write", "full"], Permissions::parse)
}

fn compaction(reader: &mut Reader, name: &str, node: &Node<'_>) -> CompactionSettings {
    let mut compaction = CompactionSettings::default();
    for (key, value) in reader.section(name, node) {
        let full = format!("{name}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "preset" => {
                let words = ["fabro", "harness", "strict"];
                compaction.preset = reader.word(&full, value, &words, CompactionPreset::parse);
            }
            "enabled" => compaction.enabled = reader.flag(&full, value),
            "compact_at_tokens" => compaction.compact_at_tokens = reader.count(&full, value, 1),
            "reserve_tokens" => compaction.reserve_tokens = reader.count(&full, value, 0),
            "keep_recent" => {
                let count = reader.small(&full, value, 0);
                compaction.keep_recent = count.map(|count| count as usize);
            }
            "recover_from_overflow" => {
                compaction.recover_from_overflow = reader.flag(&full, value);
            }
            _ => reader.unknown(name, key),
        }
    }
    compaction
}

/// Hosts, each with a port or without.
fn hosts(reader: &mut Reader, name: &str, node: &Node<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for item in reader.array(name, node) {
        let Some(host) = reader.text(name, item) else { continue };
        if is_host(&host) {
            hosts.push(host);
        } else {
            let message = format!("`{name}` names `{host}`, which is no host");
            reader.error(item, message, "write HOST or HOST:PORT, such as `127.0.0.1:8080`");
        }
    }
    hosts
}

fn is_host(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_name = |host: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        !host.is_empty() && host.chars().all(plain)
    };
    if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else { return false };
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return host.parse::<std::net::Ipv6Addr>().is_ok() && is_port;
    }
    match text.split_once(':') {
        Some((host, port)) => is_name(host) && is_port(port),
        None => is_name(text),
    }
}
