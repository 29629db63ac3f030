//! Findings about settings of upstream in a file: what is lost, and values that stay text.

use fabro_types::Diagnostic;
use toml::de::DeValue;

use crate::reader::{Key, Node, Reader, span};
use crate::upstream::Handling::{self, Lost, NoEffect, OtherSandbox, Refused, Same};
use crate::upstream::{RULE, SANDBOX_RULE};

impl Reader {
    /// A setting of upstream that is not read: what is lost is reported.
    pub(crate) fn upstream(&mut self, full: &str, key: &Key<'_>, node: &Node<'_>, how: Handling) {
        let at = span(key.span());
        match how {
            Same(_) => unreachable!("{full} is read as another setting"),
            NoEffect(why) => self.without_effect.push((full.to_owned(), at, why)),
            _ if is_off(node) => {
                self.without_effect.push((full.to_owned(), at, "it is off"));
            }
            Lost(lost, fix) => {
                let message = format!("`{full}` has no effect: {lost}");
                self.diagnostics.push(Diagnostic::warning(RULE, at, message).with_fix(fix));
            }
            Refused(why, fix) | OtherSandbox(why, fix) => {
                self.errors += 1;
                let rule = if matches!(how, Refused(..)) { RULE } else { SANDBOX_RULE };
                let message = format!("`{full}` is not supported: {why}");
                self.diagnostics.push(Diagnostic::error(rule, at, message).with_fix(fix));
            }
        }
    }

    /// Reports `{{ env.NAME }}` in a value where it stays text.
    pub(crate) fn interpolation(&mut self, name: &str, node: &Node<'_>, value: &serde_json::Value) {
        let Some(variable) = first_interpolation(value) else { return };
        let message =
            format!("`{name}` has `{{{{ env.{variable} }}}}` in it, which stays as it is");
        let fix = format!(
            "write the value, or `${variable}` in a script; environment variables are read in `run.sandbox.env` and headers"
        );
        let at = span(node.span());
        self.diagnostics.push(Diagnostic::warning(RULE, at, message).with_fix(fix));
    }
}

/// The variable of the first `{{ env.NAME }}` in the strings of a value.
fn first_interpolation(value: &serde_json::Value) -> Option<&str> {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            let mut starts = text.match_indices("{{").map(|(at, _)| at);
            starts.find_map(|at| Some(crate::variables::interpolation(&text[at..])?.0))
        }
        Value::Array(items) => items.iter().find_map(first_interpolation),
        Value::Object(entries) => entries.values().find_map(first_interpolation),
        _ => None,
    }
}

/// Whether the value turns a feature off.
fn is_off(node: &Node<'_>) -> bool {
    match node.get_ref() {
        DeValue::Boolean(is_on) => !is_on,
        DeValue::String(text) => {
            ["never", "none", "off", "verify", "", "."].contains(&text.as_ref())
        }
        DeValue::Array(items) => items.is_empty(),
        DeValue::Table(table) => {
            let enabled = table.get("enabled").and_then(|node| node.get_ref().as_bool());
            table.is_empty() || enabled == Some(false)
        }
        _ => false,
    }
}
