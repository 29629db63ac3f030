use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::error::ConfigError;
use crate::named::read_named;

/// One `[run.agent.mcp.NAME]`: a server of the Model Context Protocol. Its tools need the permission
/// `full`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpServer {
    /// How it is reached.
    #[serde(flatten)]
    pub transport: McpTransport,
    /// `context`: whether calls carry the workflow's memory.
    pub context: bool,
    /// `startup_timeout`: timeout until its first response.
    pub startup_timeout: Option<Duration>,
    /// `tool_timeout`: timeout of a call.
    pub tool_timeout: Option<Duration>,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum McpTransport {
    /// A program to start, which communicates on stdin and stdout.
    Command {
        /// `command`: the program.
        command: String,
        /// `args`: its arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// `env`: its environment variables. As written: `$NAME` is a variable of our environment.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// A running server.
    Http {
        /// `url`: its address.
        url: String,
        /// `headers`: sent with every request. As written: `$NAME` is an environment variable.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
}

impl Default for McpTransport {
    fn default() -> Self {
        Self::Command { command: String::new(), args: Vec::new(), env: BTreeMap::new() }
    }
}

/// One `[[run.agent.tools]]`: a tool that is an HTTP endpoint.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpTool {
    /// `name`: its name for the model; letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// `description`: what it does, for the model.
    pub description: String,
    /// `parameters`: the JSON Schema of its arguments, an object; the text `@FILE` before it is
    /// resolved.
    pub parameters: Value,
    /// `url`: its address.
    pub url: String,
    /// `method`: `POST` when absent.
    pub method: HttpMethod,
    /// `headers`: sent with every call. As written: `$NAME` is an environment variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// `context`: whether calls carry the workflow's memory.
    pub context: bool,
    /// `instructions`: how to use it, for the model.
    pub instructions: Option<String>,
}

/// How an HTTP tool is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// `GET`: the arguments are in the query.
    Get,
    /// `POST`: the arguments are a JSON body, as they are below.
    #[default]
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl HttpTool {
    /// Replaces `@FILE` in `parameters` with the content of that file. `by` is the settings file.
    pub(crate) fn read_parameters(
        &mut self,
        by: &Path,
        home: Option<&Path>,
    ) -> Result<(), ConfigError> {
        let Some(file) = self.parameters.as_str().and_then(|text| text.strip_prefix('@')) else {
            return Ok(());
        };
        let (path, text) = read_named(by, home, file)?;
        let schema = serde_json::from_str::<Map<String, Value>>(&text);
        self.parameters =
            schema.map(Value::Object).map_err(|source| ConfigError::Schema(path, source))?;
        Ok(())
    }
}

/// `[run.agent.web_search]`: the search engine of the tool `web_search`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebSearchSettings {
    /// `provider`: whose interface it has.
    pub provider: SearchProvider,
    /// `url`: its address, where it is not the provider's own.
    pub url: Option<String>,
    /// `api_key_env`: the environment variable that holds its key, where it is not the provider's own.
    pub api_key_env: Option<String>,
    /// `max_results`: how many results a search gives when the agent does not say; 1 to 20, 8 when absent.
    pub max_results: Option<u32>,
}

impl WebSearchSettings {
    /// The environment variable that holds the key; none for an engine without one.
    pub fn key_variable(&self) -> Option<&str> {
        self.api_key_env.as_deref().or(self.provider.key_variable())
    }
}

/// An interface of search engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchProvider {
    /// `brave`: Brave Search.
    #[default]
    Brave,
    /// `tavily`: Tavily.
    Tavily,
    /// `searxng`: a `SearXNG` server of your own.
    Searxng,
}

impl SearchProvider {
    /// The names in settings.
    pub const NAMES: [&'static str; 3] = ["brave", "tavily", "searxng"];

    /// The provider's own address.
    pub fn url(self) -> Option<&'static str> {
        match self {
            Self::Brave => Some("https://api.search.brave.com/res/v1/web/search"),
            Self::Tavily => Some("https://api.tavily.com/search"),
            Self::Searxng => None,
        }
    }

    /// The usual environment variable of its key.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Brave => Some("BRAVE_API_KEY"),
            Self::Tavily => Some("TAVILY_API_KEY"),
            Self::Searxng => None,
        }
    }
}
