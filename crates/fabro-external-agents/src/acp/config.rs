use serde_json::{Map, Value};

use crate::BackendError;

/// Settings for an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Config {
    pub(super) mode: Option<String>,
    pub(super) model: Option<String>,
    /// The method to log in by.
    pub(super) auth: Option<String>,
    pub(super) env: Vec<(String, String)>,
    /// The agent's own options: a text or a truth value each.
    pub(super) options: Map<String, Value>,
}

impl Config {
    pub(super) fn read(config: &Value) -> Result<Self, BackendError> {
        let mut read = Self::default();
        let object = match config {
            Value::Null => return Ok(read),
            Value::Object(object) => object,
            _ => {
                return Err(wrong(
                    "acp.config is not a JSON object: write it as {\"mode\": \"…\"}",
                ));
            }
        };
        for (key, value) in object {
            match (key.as_str(), value) {
                ("mode", Value::String(mode)) => read.mode = Some(mode.clone()),
                ("model", Value::String(model)) => read.model = Some(model.clone()),
                ("auth", Value::String(auth)) => read.auth = Some(auth.clone()),
                ("env", Value::Object(env)) => read.env = variables(env)?,
                ("mode" | "model" | "auth", _) => {
                    return Err(wrong(format!(
                        "`{key}` in acp.config is not a text: write a text"
                    )));
                }
                ("env", _) => {
                    return Err(wrong(
                        "`env` in acp.config is not an object: write {\"NAME\": \"…\"}",
                    ));
                }
                (_, Value::String(_) | Value::Bool(_)) => {
                    read.options.insert(key.clone(), value.clone());
                }
                _ => {
                    let message = format!(
                        "`{key}` in acp.config has a value that agents do not accept: write a text, true or false"
                    );
                    return Err(wrong(message));
                }
            }
        }
        Ok(read)
    }
}

/// The program and the arguments of a command line.
pub(super) fn parse_command(command: &str) -> Result<(String, Vec<String>), BackendError> {
    let Some(words) = shlex::split(command) else {
        return Err(wrong("acp.command has an open quote: close it"));
    };
    let mut words = words.into_iter();
    match words.next() {
        Some(program) => Ok((program, words.collect())),
        None => Err(wrong("acp.command is empty: name the program that speaks ACP")),
    }
}

fn variables(env: &Map<String, Value>) -> Result<Vec<(String, String)>, BackendError> {
    let variable = |(name, value): (&String, &Value)| match value.as_str() {
        Some(value) => Ok((name.clone(), value.to_owned())),
        None => Err(wrong(format!("`env.{name}` in acp.config is not a text: write a text"))),
    };
    env.iter().map(variable).collect()
}

fn wrong(message: impl Into<String>) -> BackendError {
    BackendError::Config(message.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(command: &str, config: &Value, expect: &str) {
        let read = parse_command(command).and_then(|words| Ok((words, Config::read(config)?)));
        let shown = match read {
            Ok(((program, args), config)) => format!("{program} {args:?} {config:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expect);
    }

    #[test]
    fn commands_are_split_as_by_a_shell() {
        let rest = "Config { mode: None, model: None, auth: None, env: [], options: {} }";
        check("a 'b c' d\\ e $HOME", &Value::Null, &format!(r#"a ["b c", "d e", "$HOME"] {rest}"#));
        check("  ", &Value::Null, "acp.command is empty: name the program that speaks ACP");
        check("a 'b", &Value::Null, "acp.command has an open quote: close it");
    }

    #[test]
    fn settings_are_read_or_refused() {
        check(
            "a",
            &json!({"mode": "ask", "model": "m", "env": {"A": "1"}, "fast": true, "level": "high"}),
            r#"a [] Config { mode: Some("ask"), model: Some("m"), auth: None, env: [("A", "1")], options: {"fast": Bool(true), "level": String("high")} }"#,
        );
        check("a", &json!([]), r#"acp.config is not a JSON object: write it as {"mode": "…"}"#);
        check("a", &json!({"mode": 1}), "`mode` in acp.config is not a text: write a text");
        check(
            "a",
            &json!({"env": 1}),
            r#"`env` in acp.config is not an object: write {"NAME": "…"}"#,
        );
        check("a", &json!({"env": {"A": 1}}), "`env.A` in acp.config is not a text: write a text");
        check(
            "a",
            &json!({"level": 3}),
            "`level` in acp.config has a value that agents do not accept: write a text, true or false",
        );
    }
}
