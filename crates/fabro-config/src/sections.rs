//! What the settings of one section must be together, and what they are when the file is silent.

use fabro_types::{OWN_TOOLS, ProviderKind};
use serde_json::{Map, Value, json};

use crate::known_providers::known_provider;
use crate::reader::{Node, Reader};
use crate::schema::PROVIDER_KINDS;
use crate::values::is_tool_name;

type Section = Map<String, Value>;

impl Reader {
    /// Completes an entry of a table whose keys the user chooses: `name` is its key, `full` what
    /// diagnostics call it.
    pub(crate) fn check_entry(
        &mut self,
        pattern: &str,
        full: &str,
        name: &str,
        node: &Node<'_>,
        section: &mut Section,
    ) {
        match pattern {
            "providers.NAME" => self.provider(full, name, node, section),
            "models.NAME" => {
                section.insert("name".to_owned(), name.into());
            }
            "run.agent.mcp.NAME" => self.mcp_server(full, name, node, section),
            _ => unreachable!("{pattern} has keys that the user chooses, and no check"),
        }
    }

    /// Completes an item of an array of tables.
    pub(crate) fn check_item(
        &mut self,
        name: &str,
        pattern: &str,
        node: &Node<'_>,
        section: &mut Section,
    ) {
        match pattern {
            "run.prepare.steps" => {
                if section.contains_key("script") && section.contains_key("command") {
                    let message = format!("a step of `{name}` has both `script` and `command`");
                    self.error(node, message, "write two steps, or remove one of them");
                } else if let Some(command) = section.remove("command") {
                    section.insert("script".to_owned(), shell_command(&command).into());
                }
                self.needs(name, "step", &["script"], node, section);
            }
            "run.hooks" => self.hook(name, node, section),
            "webhooks" => self.webhook(name, node, section),
            "run.agent.tools" => self.http_tool(name, node, section),
            "models.NAME.prices" => {
                self.needs(name, "price", &["input_cost", "output_cost"], node, section);
                if !["from", "above", "except_hours"].iter().any(|key| section.contains_key(*key)) {
                    let message = format!("a price of `{name}` does not say when it holds");
                    self.error(node, message, "give it `from`, `above` or `except_hours`");
                }
            }
            _ => unreachable!("{name} is an array of tables without a check"),
        }
    }

    fn provider(&mut self, full: &str, name: &str, node: &Node<'_>, section: &mut Section) {
        let known = known_provider(name);
        let kind = section.get("kind").and_then(Value::as_str).and_then(ProviderKind::parse);
        let Some(kind) = kind.or(known.map(|known| known.kind)) else {
            let kinds = format!("name its protocol: `{}`", PROVIDER_KINDS.join("`, `"));
            return self.error(node, format!("`{full}` has no `kind`"), &kinds);
        };
        let usual_url = known.filter(|known| known.kind == kind).and_then(|known| known.base_url);
        if let Some(url) = usual_url {
            section.entry("base_url").or_insert_with(|| url.into());
        }
        if kind == ProviderKind::OpenAiCompatible && !section.contains_key("base_url") {
            let fix = "give its address, such as `http://127.0.0.1:8080/v1`";
            self.error(node, format!("`{full}` has no `base_url`"), fix);
        }
        section.insert("name".to_owned(), name.into());
        section.insert("kind".to_owned(), kind.as_str().into());
    }

    fn mcp_server(&mut self, full: &str, name: &str, node: &Node<'_>, section: &mut Section) {
        if !is_tool_name(name) {
            let message = format!("`{name}` is not a valid server name");
            return self.error(node, message, "use at most 64 letters, digits, `_` and `-`");
        }
        with_arguments(section);
        let has_any = |keys: &[&str]| keys.iter().any(|key| section.contains_key(*key));
        let problem = match (has_any(&["command", "args", "env"]), has_any(&["url", "headers"])) {
            (true, true) => "has settings of a command and of a URL",
            (false, false) => "has neither `command` nor `url`",
            (true, false) if !section.contains_key("command") => "has no `command`",
            (false, true) if !section.contains_key("url") => "has no `url`",
            _ => return,
        };
        let fix = "give it the `command` that starts it, or the `url` of a running server";
        self.error(node, format!("`{full}` {problem}"), fix);
    }

    fn http_tool(&mut self, name: &str, node: &Node<'_>, section: &mut Section) {
        self.needs(name, "tool", &["name", "description", "url"], node, section);
        section.entry("parameters").or_insert_with(|| json!({"type": "object", "properties": {}}));
        let Some(tool) = section.get("name").and_then(Value::as_str) else { return };
        if OWN_TOOLS.contains(&tool) || tool.starts_with("mcp__") {
            let message = format!("`{tool}` is the name of a built-in tool");
            self.error(node, message, "give it another name");
        } else if !self.tools.insert(tool.to_owned()) {
            let message = format!("two of `{name}` are named `{tool}`");
            self.error(node, message, "give each its own name");
        }
    }

    pub(crate) fn needs(
        &mut self,
        name: &str,
        item: &str,
        keys: &[&str],
        node: &Node<'_>,
        section: &Section,
    ) {
        for key in keys.iter().filter(|key| !section.contains_key(**key)) {
            self.error(node, format!("a {item} of `{name}` has no `{key}`"), "give it one");
        }
    }
}

/// Other ways to write how an MCP server is started: `command` as an array, `script`. Its `type`
/// follows from the other settings.
fn with_arguments(section: &mut Section) {
    section.remove("type");
    if let Some(script) = section.remove("script")
        && !section.contains_key("command")
    {
        section.insert("command".to_owned(), "sh".into());
        section.insert("args".to_owned(), json!(["-c", script]));
    }
    if let Some(Value::Array(words)) = section.get_mut("command") {
        let mut words = std::mem::take(words).into_iter();
        match words.next() {
            Some(program) => section.insert("command".to_owned(), program),
            None => section.remove("command"),
        };
        let own = section.remove("args");
        let own = own.as_ref().and_then(Value::as_array).into_iter().flatten().cloned();
        let arguments: Vec<Value> = words.chain(own).collect();
        section.insert("args".to_owned(), arguments.into());
    }
}

/// A command as a shell script: an array is quoted word by word.
pub(crate) fn shell_command(command: &Value) -> String {
    let Some(words) = command.as_array() else {
        return command.as_str().unwrap_or_default().to_owned();
    };
    let quoted = |word: &Value| {
        let word = word.as_str().unwrap_or_default();
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
