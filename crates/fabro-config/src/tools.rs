use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::error::ConfigError;
use crate::file::{expand, read_text};

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
    /// Replaces `@FILE` in `parameters` with the content of that file.
    pub(crate) fn read_parameters(
        &mut self,
        dir: &Path,
        home: Option<&Path>,
    ) -> Result<(), ConfigError> {
        let Some(file) = self.parameters.as_str().and_then(|text| text.strip_prefix('@')) else {
            return Ok(());
        };
        let path = expand(dir, home, Path::new(file.trim()));
        let schema = serde_json::from_str::<Map<String, Value>>(&read_text(&path)?);
        match schema {
            Ok(schema) => self.parameters = Value::Object(schema),
            Err(source) => return Err(ConfigError::Schema(path, source)),
        }
        Ok(())
    }
}
