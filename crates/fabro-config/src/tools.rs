use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use fabro_types::OWN_TOOLS;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ConfigError;
use crate::locate::{expand, read_text};
use crate::reader::{Node, Reader};

/// One `[run.agent.mcp.NAME]`: a server of the Model Context Protocol. Its tools need the permission
/// `full`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpServer {
    /// How it is reached.
    #[serde(flatten)]
    pub transport: McpTransport,
    /// `context`: whether its tools are told about the workflow with every call.
    pub context: bool,
    /// `startup_timeout`: how long it may take until it answers first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_timeout: Option<Duration>,
    /// `tool_timeout`: how long a call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_timeout: Option<Duration>,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum McpTransport {
    /// A program that is started, spoken to through its stdin and stdout.
    Command {
        /// `command`: the program.
        command: String,
        /// `args`: its arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// `env`: variables it gets. As written: `$NAME` stands for a variable of ours.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// A server that is there.
    Http {
        /// `url`: where it is.
        url: String,
        /// `headers`: sent with every request. As written: `$NAME` stands for a variable.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
}

impl Default for McpTransport {
    fn default() -> Self {
        Self::Command { command: String::new(), args: Vec::new(), env: BTreeMap::new() }
    }
}

/// One `[[run.agent.tools]]`: a tool that is a web address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpTool {
    /// `name`: what the model calls it; letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// `description`: what it does, for the model.
    pub description: String,
    /// `parameters`: the JSON Schema of its arguments, an object; the text `@FILE` before it is
    /// resolved.
    pub parameters: Value,
    /// `url`: where it is.
    pub url: String,
    /// `method`: `POST` when absent.
    pub method: HttpMethod,
    /// `headers`: sent with every call. As written: `$NAME` stands for a variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// `context`: whether it is told about the workflow with every call.
    pub context: bool,
    /// `instructions`: what the model is told about using it.
    #[serde(skip_serializing_if = "Option::is_none")]
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

impl HttpMethod {
    const WORDS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

    /// The word of the settings file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];
        all.into_iter().find(|method| method.as_str() == word)
    }
}

impl HttpTool {
    /// Puts the content of the file that `parameters` names in its place.
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
            Err(source) => return Err(ConfigError::Schema { path, source }),
        }
        Ok(())
    }
}

pub(crate) const KNOWN: &[&str] = &[
    "run.agent.mcp.NAME.command",
    "run.agent.mcp.NAME.args",
    "run.agent.mcp.NAME.env",
    "run.agent.mcp.NAME.url",
    "run.agent.mcp.NAME.headers",
    "run.agent.mcp.NAME.context",
    "run.agent.mcp.NAME.startup_timeout",
    "run.agent.mcp.NAME.tool_timeout",
    "run.agent.tools.name",
    "run.agent.tools.description",
    "run.agent.tools.parameters",
    "run.agent.tools.url",
    "run.agent.tools.method",
    "run.agent.tools.headers",
    "run.agent.tools.context",
    "run.agent.tools.instructions",
];

/// Reads `[run.agent.mcp]`.
pub(crate) fn mcp(reader: &mut Reader, name: &str, node: &Node<'_>) -> BTreeMap<String, McpServer> {
    let mut all = BTreeMap::new();
    for (key, value) in reader.named(name, node) {
        let server = key.get_ref().to_string();
        if !is_tool_name(&server) {
            let message = format!("`{server}` is no name of a server");
            reader.error(value, message, "use at most 64 letters, digits, `_` and `-`");
        } else if let Some(read) = mcp_server(reader, &format!("{name}.{server}"), value) {
            all.insert(server, read);
        }
    }
    all
}

fn mcp_server(reader: &mut Reader, name: &str, node: &Node<'_>) -> Option<McpServer> {
    let mut server = McpServer::default();
    let (mut command, mut args, mut env) = (None, Vec::new(), BTreeMap::new());
    let (mut url, mut headers) = (None, BTreeMap::new());
    let (mut of_command, mut of_url) = (false, false);
    let errors = reader.errors();
    for (key, value) in reader.section(name, node) {
        let key_name = key.get_ref().as_ref();
        let full = format!("{name}.{key_name}");
        of_command |= ["command", "args", "env"].contains(&key_name);
        of_url |= ["url", "headers"].contains(&key_name);
        match key_name {
            "command" => command = reader.text(&full, value),
            "args" => args = reader.any_texts(&full, value),
            "env" => env = reader.secret_env(&full, value),
            "url" => url = reader.url(&full, value),
            "headers" => headers = reader.headers(&full, value),
            "context" => server.context = reader.flag(&full, value).unwrap_or_default(),
            "startup_timeout" => server.startup_timeout = reader.duration(&full, value),
            "tool_timeout" => server.tool_timeout = reader.duration(&full, value),
            _ => reader.unknown_in(name, "run.agent.mcp.NAME", key),
        }
    }
    let complaint = match (of_command, of_url) {
        (true, true) => Some("has settings of a command and of a url"),
        (false, false) => Some("has neither `command` nor `url`"),
        (true, false) if command.is_none() => Some("has no `command`"),
        (false, true) if url.is_none() => Some("has no `url`"),
        _ => None,
    };
    if let Some(complaint) = complaint
        && reader.errors() == errors
    {
        let fix = "give it the `command` that starts it, or the `url` where it is";
        reader.error(node, format!("`{name}` {complaint}"), fix);
    }
    server.transport = match (command, url) {
        (Some(command), _) => McpTransport::Command { command, args, env },
        (None, Some(url)) => McpTransport::Http { url, headers },
        _ => return None,
    };
    Some(server)
}

/// Reads `[[run.agent.tools]]`.
pub(crate) fn http_tools(reader: &mut Reader, name: &str, node: &Node<'_>) -> Vec<HttpTool> {
    let mut all: Vec<HttpTool> = Vec::new();
    let mut names = BTreeSet::new();
    for item in reader.array(name, node) {
        let Some(tool) = http_tool(reader, name, item) else { continue };
        if OWN_TOOLS.contains(&tool.name.as_str()) || tool.name.starts_with("mcp__") {
            let message = format!("`{}` is a tool of fabro's own", tool.name);
            reader.error(item, message, "give it another name");
            continue;
        }
        if names.insert(tool.name.clone()) {
            all.push(tool);
        } else {
            let message = format!("two of `{name}` are named `{}`", tool.name);
            reader.error(item, message, "give each a name of its own");
        }
    }
    all
}

fn http_tool(reader: &mut Reader, name: &str, node: &Node<'_>) -> Option<HttpTool> {
    let errors = reader.errors();
    let mut tool = HttpTool { parameters: no_arguments(), ..HttpTool::default() };
    for (key, value) in reader.section(name, node) {
        let full = format!("{name}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "name" => tool.name = self::name(reader, &full, value).unwrap_or_default(),
            "description" => tool.description = reader.text(&full, value).unwrap_or_default(),
            "parameters" => tool.parameters = parameters(reader, &full, value),
            "url" => tool.url = reader.url(&full, value).unwrap_or_default(),
            "method" => {
                let method = reader.word(&full, value, &HttpMethod::WORDS, HttpMethod::parse);
                tool.method = method.unwrap_or_default();
            }
            "headers" => tool.headers = reader.headers(&full, value),
            "context" => tool.context = reader.flag(&full, value).unwrap_or_default(),
            "instructions" => tool.instructions = reader.text(&full, value),
            _ => reader.unknown(name, key),
        }
    }
    if reader.errors() > errors {
        return None;
    }
    let needed = [("name", &tool.name), ("description", &tool.description), ("url", &tool.url)];
    for (key, value) in needed {
        if value.is_empty() {
            reader.error(node, format!("a tool of `{name}` has no `{key}`"), "give it one");
        }
    }
    (reader.errors() == errors).then_some(tool)
}

/// The schema of a tool without arguments.
fn no_arguments() -> Value {
    serde_json::json!({"type": "object", "properties": {}})
}

fn name(reader: &mut Reader, full: &str, node: &Node<'_>) -> Option<String> {
    let name = reader.text(full, node)?;
    if is_tool_name(&name) {
        return Some(name);
    }
    let message = format!("`{full}` is `{name}`, which no model could call");
    reader.error(node, message, "use at most 64 letters, digits, `_` and `-`");
    None
}

/// A JSON Schema as a table, or the file that has it.
fn parameters(reader: &mut Reader, full: &str, node: &Node<'_>) -> Value {
    let Some(text) = node.get_ref().as_str() else {
        return Value::Object(reader.json_table(full, node));
    };
    if text.strip_prefix('@').is_none_or(|file| file.trim().is_empty()) {
        let message = format!("`{full}` is a string that names no file");
        reader.error(node, message, "make it a table, or write `@file.json`");
    }
    Value::from(text)
}

/// What all providers take as the name of a tool.
fn is_tool_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_part)
}
