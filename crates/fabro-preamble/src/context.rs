//! The context section.

use std::fmt::Write as _;
use std::io;

use serde_json::Value;

use crate::Shown;
use crate::budget::Budget;
use crate::text::{Keep, cut_line, cut_lines, fence, one_line};

/// Whether preambles show a context key: not an internal one, nor one whose value is shown with its
/// stage. Rules: `docs/workflow-language.md`, "Preamble".
pub fn shows_key(key: &str) -> bool {
    const PREFIXES: [&str; 7] =
        ["internal.", "current", "graph.", "thread.", "response.", "command.", "failure_"];
    const KEYS: [&str; 4] = ["outcome", "last_stage", "last_response", "preferred_label"];
    !KEYS.contains(&key) && !PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// The part of a context that fits.
#[derive(Default)]
pub(crate) struct ContextSection {
    pub(crate) lines: Vec<ContextLine>,
    /// How many values are omitted.
    pub(crate) omitted: usize,
}

/// A key and its value as a list item, with its line end.
pub(crate) struct ContextLine {
    pub(crate) key: String,
    pub(crate) text: String,
}

/// The limit of counting omitted values, so that a large context costs little.
pub(crate) const MOST_COUNTED: usize = 1_000;

const VALUE_CHARS: usize = 400;
const VALUE_LINES: usize = 10;

/// Collects values while the section of the budget has room.
pub(crate) fn collect(
    context: impl Iterator<Item = (String, Shown)>,
    budget: &mut Budget<'_>,
) -> ContextSection {
    let mut section = ContextSection::default();
    let shown = context.filter(|(key, value)| shows_key(key) && !is_blank(value));
    for (key, value) in shown {
        if section.omitted > 0 {
            section.omitted += 1;
            if section.omitted > MOST_COUNTED {
                break;
            }
            continue;
        }
        let fitting = [VALUE_CHARS, VALUE_CHARS / 5]
            .into_iter()
            .map(|chars| item(&key, &value, chars))
            .find(|text| budget.take(text, usize::MAX));
        match fitting {
            Some(text) => section.lines.push(ContextLine { key, text }),
            None => section.omitted = 1,
        }
    }
    section
}

fn is_blank(value: &Shown) -> bool {
    match value {
        Shown::File(_) => false,
        Shown::Value(value) => {
            value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
        }
    }
}

fn item(key: &str, value: &Shown, chars: usize) -> String {
    let mut out = format!("- {}:", one_line(key, 200));
    match value {
        Shown::File(path) => {
            let _ = write!(out, " See: {}", one_line(path, 1_024));
        }
        Shown::Value(value) => match value.as_str() {
            Some(text) if chars == VALUE_CHARS && text.trim().contains('\n') => {
                out.push('\n');
                let lines = cut_lines(text, Keep::First, VALUE_LINES, chars);
                fence(&lines, "  ", &mut out);
                return out;
            }
            Some(text) => {
                let _ = write!(out, " {}", one_line(text, chars));
            }
            None => {
                let _ = write!(out, " {}", compact_json(value, chars));
            }
        },
    }
    out.push('\n');
    out
}

/// The start of a value's JSON; writing stops early, however large the value is.
fn compact_json(value: &Value, chars: usize) -> String {
    let mut writer = Bounded { bytes: Vec::new(), most: chars * 4 };
    let whole = serde_json::to_writer(&mut writer, value).is_ok();
    let text = String::from_utf8_lossy(&writer.bytes);
    if whole {
        return cut_line(&text, chars);
    }
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    format!("{}… (cut)", text[..end].trim_end_matches('\u{FFFD}'))
}

struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.most.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(io::ErrorKind::WriteZero.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
