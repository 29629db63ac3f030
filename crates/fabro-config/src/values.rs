//! Checks the value of a setting, by its [`Kind`].

use std::time::Duration;

use fabro_redact::is_secret_name;
use fabro_types::{Date, Diagnostic, nearest, one_of};
use serde_json::{Map, Number, Value, json};
use toml::de::DeValue;

use crate::reader::{Node, Reader, entries, integer, join, span};
use crate::sandbox::SandboxProvider;
use crate::schema::{Kind, PROVIDER_KINDS};
use crate::upstream::SANDBOX_RULE;
use crate::variables::{has_variable, is_variable};

/// Half of what a JSON reader takes, so that an input may be put inside other values.
const MAX_DEPTH: usize = 64;

/// Why a value is refused.
pub(crate) enum Problem {
    /// What is expected instead, with its article.
    WrongType(&'static str),
    /// The rest of a sentence that begins with the name of the setting.
    Invalid { message: String, fix: String },
    /// The same, of a sandbox that only upstream has.
    OtherSandbox { message: String, fix: String },
}

fn invalid<T>(message: impl Into<String>, fix: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Invalid { message: message.into(), fix: fix.into() })
}

impl Reader {
    /// The value of a setting as JSON; `None` after an error.
    pub(crate) fn value(&mut self, name: &str, kind: Kind, node: &Node<'_>) -> Option<Value> {
        let value = self.value_of_kind(name, kind, node);
        if let Some(value) = &value
            && !matches!(kind, Kind::Env | Kind::OpenEnv | Kind::Headers)
        {
            self.interpolation(name, node, value);
        }
        value
    }

    fn value_of_kind(&mut self, name: &str, kind: Kind, node: &Node<'_>) -> Option<Value> {
        match kind {
            Kind::Version => None,
            Kind::Command if node.get_ref().is_array() => Some(self.items(name, node, any_string)),
            Kind::Strings => Some(self.items(name, node, string)),
            Kind::Arguments => Some(self.items(name, node, any_string)),
            Kind::Hosts => Some(self.items(name, node, host)),
            Kind::Patterns => Some(self.items(name, node, pattern)),
            Kind::Headers => Some(self.pairs(name, node, header)),
            Kind::Env => Some(self.pairs(name, node, variable_of_script)),
            Kind::OpenEnv => Some(self.pairs(name, node, variable_of_server)),
            Kind::JsonSchema if node.get_ref().is_str() => self.checked(name, node, schema_file),
            Kind::JsonSchema | Kind::Inputs => Some(self.json_table(name, node)),
            Kind::Words(words) => {
                let items = self.array(name, node).iter();
                let word = |item| self.checked(name, item, |item| word(item, words));
                Some(items.filter_map(word).collect())
            }
            Kind::Hours => {
                let items = self.array(name, node).iter();
                Some(items.filter_map(|item| self.checked(name, item, hours)).collect())
            }
            _ => self.checked(name, node, |node| scalar(kind, node)),
        }
    }

    /// Reports why `read` refuses a value.
    fn checked<'t, 'i, T>(
        &mut self,
        name: &str,
        node: &'t Node<'i>,
        read: impl FnOnce(&'t Node<'i>) -> Result<T, Problem>,
    ) -> Option<Value>
    where
        T: Into<Value>,
    {
        match read(node) {
            Ok(value) => Some(value.into()),
            Err(Problem::WrongType(expected)) => {
                self.wrong_type(name, node, expected);
                None
            }
            Err(Problem::Invalid { message, fix }) => {
                self.error(node, format!("`{name}` {message}"), &fix);
                None
            }
            Err(Problem::OtherSandbox { message, fix }) => {
                self.errors += 1;
                let at = span(node.span());
                let message = format!("`{name}` {message}");
                self.diagnostics.push(Diagnostic::error(SANDBOX_RULE, at, message).with_fix(fix));
                None
            }
        }
    }

    /// An array whose items `read` reads.
    fn items(
        &mut self,
        name: &str,
        node: &Node<'_>,
        read: for<'t> fn(&'t Node<'_>) -> Result<&'t str, Problem>,
    ) -> Value {
        let items = self.array(name, node).iter();
        items.filter_map(|item| self.checked(name, item, read)).collect()
    }

    /// A table whose keys the user chooses and whose values are strings.
    fn pairs(
        &mut self,
        name: &str,
        node: &Node<'_>,
        read: for<'t> fn(&str, &'t Node<'_>) -> Result<&'t str, Problem>,
    ) -> Value {
        let mut map = Map::new();
        for (key, value) in self.as_table(name, node).map(entries).unwrap_or_default() {
            let key = key.get_ref().as_ref();
            let value = self.checked(&join(name, key), value, |value| read(key, value));
            map.extend(value.map(|value| (key.to_owned(), value)));
        }
        Value::Object(map)
    }

    /// A table of any values, as JSON in the order of the file. Dates become strings.
    fn json_table(&mut self, name: &str, node: &Node<'_>) -> Value {
        let mut map = Map::new();
        for (key, value) in self.as_table(name, node).map(entries).unwrap_or_default() {
            let value = self.json(&join(name, key.get_ref()), value, 1);
            map.extend(value.map(|value| (key.get_ref().to_string(), value)));
        }
        Value::Object(map)
    }

    fn json(&mut self, name: &str, node: &Node<'_>, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            self.error(node, format!("`{name}` nests deeper than {MAX_DEPTH}"), "flatten it");
            return None;
        }
        match node.get_ref() {
            DeValue::Array(items) => {
                Some(items.iter().filter_map(|item| self.json(name, item, depth + 1)).collect())
            }
            DeValue::Table(table) => {
                let items = entries(table).into_iter().filter_map(|(key, value)| {
                    Some((key.get_ref().to_string(), self.json(name, value, depth + 1)?))
                });
                Some(items.collect())
            }
            _ => self.checked(name, node, json_scalar),
        }
    }
}

fn json_scalar(node: &Node<'_>) -> Result<Value, Problem> {
    let value = match node.get_ref() {
        DeValue::Boolean(value) => return Ok(Value::Bool(*value)),
        DeValue::Integer(value) => integer(value).map(Value::from),
        DeValue::Float(value) => {
            value.as_str().parse().ok().and_then(Number::from_f64).map(Value::Number)
        }
        DeValue::Datetime(value) => return Ok(Value::String(value.to_string())),
        other => return Ok(other.as_str().unwrap_or_default().into()),
    };
    let message = match node.get_ref() {
        DeValue::Integer(_) => "does not fit into 64 bits",
        _ => "is not a finite number",
    };
    value.map_or_else(|| invalid(message, "write it in quotes"), Ok)
}

fn scalar(kind: Kind, node: &Node<'_>) -> Result<Value, Problem> {
    Ok(match kind {
        Kind::String | Kind::Command => string(node)?.into(),
        Kind::Goal => goal(node)?.into(),
        Kind::Provider => sandbox(node)?.into(),
        Kind::Bool => node.get_ref().as_bool().ok_or(Problem::WrongType("a boolean"))?.into(),
        Kind::Count(least) => count(node, least)?.into(),
        Kind::SmallCount(least) => match u32::try_from(count(node, least)?) {
            Ok(count) => count.into(),
            Err(_) => return invalid(format!("is {}", digits(node)), "use a smaller number"),
        },
        Kind::Price => price(node)?,
        Kind::Positive(what) => positive(node, what)?,
        Kind::Duration => duration(node)?,
        Kind::Size => size(node)?.into(),
        Kind::Url => url(node)?.into(),
        Kind::Variable => variable(node)?.into(),
        Kind::Word(words) => word(node, words)?.into(),
        Kind::ToolName => tool_name(node)?.into(),
        Kind::Date => date(node)?.into(),
        _ => unreachable!("the value of this kind is an array or a table"),
    })
}

/// The text, if it is valid. The message follows the name of the setting.
fn valid<'t>(
    text: &'t str,
    is_valid: bool,
    message: impl Into<String>,
    fix: &str,
) -> Result<&'t str, Problem> {
    if is_valid { Ok(text) } else { invalid(message, fix) }
}

fn string<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let text = node.get_ref().as_str().ok_or(Problem::WrongType("a string"))?;
    valid(text, !text.trim().is_empty(), "is empty", "give it a value, or leave it out")?;
    valid(text, !text.contains('\0'), "contains a NUL character", "remove it")
}

/// `{ file = "…" }` is how upstream writes `@…`.
fn goal(node: &Node<'_>) -> Result<String, Problem> {
    let Some(table) = node.get_ref().as_table() else { return Ok(string(node)?.to_owned()) };
    match table.get("file") {
        Some(file) if table.len() == 1 => Ok(format!("@{}", string(file)?)),
        _ => invalid("is a table without a `file`", "write the text, or `@file`"),
    }
}

/// A run that asks for isolation must not get none.
fn sandbox<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let name = string(node)?;
    if SandboxProvider::parse(name).is_some() {
        return Ok(name);
    }
    let message = format!(
        "is `{name}`, a sandbox that this version does not have: scripts would run on this machine"
    );
    if let Some(near) = nearest(name, SandboxProvider::NAMES) {
        return invalid(message, format!("did you mean `{near}`?"));
    }
    let fix = "use `docker`, `bwrap`, `ssh`, `local` if they may run there, or start fabro inside such a sandbox";
    Err(Problem::OtherSandbox { message, fix: fix.to_owned() })
}

fn any_string<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    if node.get_ref().as_str() == Some("") { Ok("") } else { string(node) }
}

/// Programs that serve models, which people name as the kind of a provider.
const MODEL_SERVERS: [&str; 8] =
    ["llama-cpp", "llama.cpp", "llamacpp", "lm-studio", "lmstudio", "localai", "ollama", "vllm"];

/// Upstream has underscores in some words.
fn word(node: &Node<'_>, words: &[&'static str]) -> Result<&'static str, Problem> {
    let word = string(node)?;
    let with_hyphens = word.replace('_', "-");
    if let Some(same) = words.iter().find(|known| **known == word || **known == with_hyphens) {
        return Ok(same);
    }
    let fix = match nearest(word, words.iter().copied()) {
        _ if words == PROVIDER_KINDS && MODEL_SERVERS.contains(&&*word.to_lowercase()) => {
            format!("use `openai-compatible`, the interface of {word}")
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "use {}",
            one_of(&words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>())
        ),
    };
    invalid(format!("is `{word}`"), fix)
}

fn digits<'t>(node: &'t Node<'_>) -> &'t str {
    node.get_ref().as_integer().map_or("", |value| value.as_str())
}

fn count(node: &Node<'_>, least: u64) -> Result<u64, Problem> {
    let value = node.get_ref().as_integer().ok_or(Problem::WrongType("an integer"))?;
    let number = integer(value).and_then(|it| u64::try_from(it).ok());
    match number.filter(|number| *number >= least) {
        Some(number) => Ok(number),
        None => invalid(
            format!("is {}", value.as_str()),
            format!("use a whole number of at least {least}"),
        ),
    }
}

fn number(node: &Node<'_>) -> Result<Option<f64>, Problem> {
    match node.get_ref() {
        DeValue::Float(value) => Ok(value.as_str().parse::<f64>().ok()),
        DeValue::Integer(value) => Ok(integer(value).map(|whole| whole as f64)),
        _ => Err(Problem::WrongType("a number")),
    }
}

fn positive(node: &Node<'_>, what: &str) -> Result<Value, Problem> {
    match number(node)?.filter(|count| *count > 0.0).and_then(Number::from_f64) {
        Some(count) => Ok(Value::Number(count)),
        None => invalid(format!("is not {what}"), "use one such as 2 or 0.5"),
    }
}

fn price(node: &Node<'_>) -> Result<Value, Problem> {
    match number(node)?.filter(|price| *price >= 0.0).and_then(Number::from_f64) {
        Some(price) => Ok(Value::Number(price)),
        None => invalid("is not a price", "use US dollars for a million tokens, 0 or more"),
    }
}

fn duration(node: &Node<'_>) -> Result<Value, Problem> {
    let text = match node.get_ref() {
        DeValue::String(text) => text.to_string(),
        // One that does not fit is not a duration, as is 0.
        DeValue::Integer(value) => integer(value).unwrap_or(0).to_string(),
        DeValue::Float(value) => value.as_str().to_owned(),
        _ => return Err(Problem::WrongType("a duration")),
    };
    let duration = parse_duration(&text).filter(|duration| !duration.is_zero());
    match duration {
        Some(duration) => {
            Ok(json!({ "secs": duration.as_secs(), "nanos": duration.subsec_nanos() }))
        }
        None => invalid("is not a duration", "write it as `500ms`, `30s`, `10m` or `2h`"),
    }
}

/// A number of bytes; units are powers of 1,024.
fn size(node: &Node<'_>) -> Result<u64, Problem> {
    const UNITS: [(&str, u64); 4] = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("B", 1)];
    let text = match node.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(value) => value.as_str().to_owned(),
        _ => return Err(Problem::WrongType("a size")),
    };
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((&text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match bytes.filter(|bytes| *bytes > 0 && i64::try_from(*bytes).is_ok()) {
        Some(bytes) => Ok(bytes),
        None => invalid("is not a size", "write it as `512MB` or `2GB`"),
    }
}

/// A day: a string, or a date of TOML.
fn date(node: &Node<'_>) -> Result<String, Problem> {
    let text = match node.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        _ => return Err(Problem::WrongType("a date")),
    };
    match text.parse::<Date>() {
        Ok(date) => Ok(date.to_string()),
        Err(_) => invalid("is not a date", "write it as `2026-12-31`"),
    }
}

/// Two hours of the day.
fn hours(node: &Node<'_>) -> Result<Value, Problem> {
    let hours = node.get_ref().as_array().ok_or(Problem::WrongType("an array"))?;
    let hour = |node: &Node<'_>| node.get_ref().as_integer().and_then(integer);
    let hours: Option<Vec<i64>> = hours.iter().map(hour).collect();
    match hours.as_deref() {
        Some([first, end]) if 0 <= *first && first < end && *end <= 24 => Ok(json!([first, end])),
        _ => invalid(
            "has no valid hours",
            "write the first hour and the one after the last: `[[6, 10]]`",
        ),
    }
}

fn url<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let url = string(node)?;
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let fix = "remove it, and put it into a header as `$NAME`";
    valid(url, !host.contains('@'), "contains a user name or a password", fix)?;
    let is_url = !host.is_empty() && !url.contains(|c: char| c.is_whitespace() || c.is_control());
    let fix = "write it as `http://HOST:PORT/PATH` or `https://HOST/PATH`";
    valid(url, is_url, "is not a URL", fix)
}

/// An invalid value is not shown: it may be the secret itself.
fn variable<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let text = string(node)?;
    let variable = text.strip_prefix('$').unwrap_or(text);
    let fix = "write the name of the variable that holds the key";
    valid(variable, is_variable(variable), "is not the name of an environment variable", fix)
}

fn header<'t>(name: &str, node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_part);
    valid(name, is_name, "is not the name of a header", "correct the name")?;
    let text = not_secret(name, string(node)?)?;
    valid(text, !text.contains(char::is_control), "contains a line break", "remove it")
}

/// A variable that is set but empty differs from one that is not set.
fn variable_of_script<'t>(name: &str, node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let is_name = !name.is_empty() && !name.contains(['=', '\0']);
    valid(name, is_name, "is not the name of an environment variable", "correct the name")?;
    any_string(node)
}

fn variable_of_server<'t>(name: &str, node: &'t Node<'_>) -> Result<&'t str, Problem> {
    not_secret(name, variable_of_script(name, node)?)
}

/// Refuses a literal value with a secret name. Settings are stored with each run, and so would be the
/// secret.
fn not_secret<'t>(name: &str, text: &'t str) -> Result<&'t str, Problem> {
    let is_valid = text.is_empty() || !is_secret_name(name) || has_variable(text);
    let fix = "put it into an environment variable, and write `$NAME`";
    valid(text, is_valid, "contains a secret, and settings are stored with each run", fix)
}

fn host<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let host = string(node)?;
    let fix = "write HOST or HOST:PORT, such as `127.0.0.1:8080`";
    valid(host, is_host(host), format!("names `{host}`, which is not a host"), fix)
}

fn pattern<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let pattern = string(node)?;
    let is_inside =
        !pattern.starts_with(['/', '~']) && pattern.split(['/', '\\']).all(|part| part != "..");
    let fix = "write patterns relative to the working directory";
    valid(pattern, is_inside, format!("names `{pattern}`, outside the working directory"), fix)
}

fn tool_name<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let tool = string(node)?;
    let fix = "use at most 64 letters, digits, `_` and `-`";
    valid(tool, is_tool_name(tool), format!("is `{tool}`, which is not a valid tool name"), fix)
}

fn schema_file<'t>(node: &'t Node<'_>) -> Result<&'t str, Problem> {
    let text = string(node)?;
    let names_file = text.strip_prefix('@').is_some_and(|file| !file.trim().is_empty());
    let fix = "make it a table, or write `@file.json`";
    valid(text, names_file, "is a string that does not name a file", fix)
}

/// What every provider accepts as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_part)
}

fn is_host(text: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|number| number > 0);
    if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else { return false };
        let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return host.parse::<std::net::Ipv6Addr>().is_ok() && has_port;
    }
    let is_host_char = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let (host, port) = text.split_once(':').unwrap_or((text, "1"));
    !host.is_empty() && host.chars().all(is_host_char) && is_port(port)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let millis = match text.get(digits..)? {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Duration::try_from_secs_f64(text.parse().ok()?).ok(),
    };
    let amount: u64 = text.get(..digits)?.parse().ok()?;
    amount.checked_mul(millis).map(Duration::from_millis)
}
