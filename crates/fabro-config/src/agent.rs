use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fabro_types::Permissions;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::error::ConfigError;
use crate::file::expand;
use crate::tools::{HttpTool, McpServer, WebSearchSettings};

/// `[run.agent]`: the settings of agents whose node does not set them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSettings {
    /// `permissions`: what their tools may do.
    pub permissions: Option<Permissions>,
    /// `max_turns`: how many responses of the model a stage may take, at least 1.
    pub max_turns: Option<u32>,
    /// `web_allow`: hosts (`HOST` or `HOST:PORT`) with a private address that they may fetch from.
    pub web_allow: Option<Vec<String>>,
    /// `web_search`: the search engine they may ask; without it they have no `web_search`.
    pub web_search: Option<WebSearchSettings>,
    /// `project_docs`: whether they are shown the project's AGENTS.md and the like.
    pub project_docs: Option<bool>,
    /// `summary_model`: the model that summarizes older turns of a workflow's memory.
    pub summary_model: Option<String>,
    /// `subagent_depth`: how deep agents may start subagents; 0 disables them.
    pub subagent_depth: Option<u32>,
    /// `max_subagents`: how many subagents of one agent run at the same time, at least 1.
    pub max_subagents: Option<u32>,
    /// `context_window`: the context window of the model in tokens, instead of the catalog's.
    pub context_window: Option<u64>,
    /// `skills`: folders with skills. As written after parsing, absolute once resolved.
    pub skills: Option<Vec<PathBuf>>,
    /// `compaction`: how conversations are compacted.
    pub compaction: CompactionSettings,
    /// `preamble`: how long preambles may be.
    pub preamble: PreambleSettings,
    /// `mcp`: MCP servers whose tools they may use, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpServer>,
    /// `tools`: HTTP tools, in the order of the file; no two have the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<HttpTool>,
}

/// `[run.agent.compaction]`: what differs from the preset.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionSettings {
    /// `preset`: the defaults of the other settings; `fabro` when absent.
    pub preset: Option<CompactionPreset>,
    /// `enabled`: whether conversations are compacted automatically.
    pub enabled: Option<bool>,
    /// `compact_at_tokens`: the size above which they are compacted, in tokens.
    pub compact_at_tokens: Option<u64>,
    /// `reserve_tokens`: what stays free below the model's window, in tokens.
    pub reserve_tokens: Option<u64>,
    /// `keep_recent`: how many of the last messages stay unchanged.
    pub keep_recent: Option<usize>,
    /// `recover_from_overflow`: whether a request that was too long is compacted and sent again.
    pub recover_from_overflow: Option<bool>,
}

/// `[run.agent.preamble]`: the ceilings of preambles.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreambleSettings {
    /// `compact_tokens`: the most tokens under `compact`; 8,000.
    pub compact_tokens: Option<usize>,
    /// `high_tokens`: the most tokens under `summary:high`; 32,000.
    pub high_tokens: Option<usize>,
}

impl PreambleSettings {
    /// These settings, completed from weaker ones field by field.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        Self {
            compact_tokens: self.compact_tokens.or(weaker.compact_tokens),
            high_tokens: self.high_tokens.or(weaker.high_tokens),
        }
    }
}

/// When conversations are compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CompactionPreset {
    /// `fabro`: after a response, above four fifths of the window.
    #[default]
    Fabro,
    /// `harness`: before a request, when little of the window is left.
    Harness,
    /// `strict`: never automatically.
    Strict,
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
            web_search: self.web_search.or(weaker.web_search),
            project_docs: self.project_docs.or(weaker.project_docs),
            summary_model: self.summary_model.or(weaker.summary_model),
            subagent_depth: self.subagent_depth.or(weaker.subagent_depth),
            max_subagents: self.max_subagents.or(weaker.max_subagents),
            context_window: self.context_window.or(weaker.context_window),
            skills: self.skills.or(weaker.skills),
            compaction: self.compaction.or(weaker.compaction),
            preamble: self.preamble.or(weaker.preamble),
            mcp,
            tools,
        }
    }

    /// Resolves the paths in these settings, which are from the file `by`: skill folders become
    /// absolute, and JSON Schemas that tools reference as `@file` are read. `home` replaces `~`.
    ///
    /// # Errors
    ///
    /// The file of a schema cannot be read, or does not hold a JSON object.
    pub fn resolved(mut self, by: &Path, home: Option<&Path>) -> Result<Self, ConfigError> {
        let dir = by.parent().unwrap_or(by);
        for folder in self.skills.iter_mut().flatten() {
            *folder = expand(dir, home, folder);
        }
        for tool in &mut self.tools {
            tool.read_parameters(by, home)?;
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
