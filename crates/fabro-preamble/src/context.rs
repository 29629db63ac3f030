//! The context section.

use std::sync::Arc;

use crate::Shown;
use crate::fit::{Block, Field, Shape, Whole};
use crate::text::{Keep, one_line};

/// Whether preambles show a context key: not an internal one, nor one whose value is shown with its
/// stage. Rules: `docs/workflow-language.md`, "Preamble".
pub fn shows_key(key: &str) -> bool {
    const PREFIXES: [&str; 7] =
        ["internal.", "current", "graph.", "thread.", "response.", "command.", "failure_"];
    const KEYS: [&str; 7] = [
        "outcome",
        "last_stage",
        "last_response",
        "preferred_label",
        "parallel.outputs",
        "parallel.branch_count",
        "human.gate.question",
    ];
    let is_of_gate = || key.strip_prefix("human.gate.").is_some_and(|rest| rest.contains('.'));
    !KEYS.contains(&key) && !PREFIXES.iter().any(|prefix| key.starts_with(prefix)) && !is_of_gate()
}

/// The limit of counting omitted values, so that a large context costs little.
pub(crate) const MOST_COUNTED: usize = 1_000;

/// A value that preambles show, as a list item.
pub(crate) fn block(key: String, value: &Shown) -> Option<Block> {
    if !shows_key(&key) || is_blank(value) {
        return None;
    }
    let label = one_line(&key, 200);
    let mut block = Block::default().with_key(Some(key));
    match value {
        Shown::File(path) => block.fixed(format!("- {label}: See: {}\n", one_line(path, 1_024))),
        Shown::Value(value) => {
            let json;
            let (text, shape) = match value.as_str().map(str::trim) {
                Some(text) if text.contains('\n') => (text, Shape::Fence(Keep::First)),
                Some(text) => (text, Shape::Line),
                None => {
                    json = value.to_string();
                    (&*json, Shape::Line)
                }
            };
            block.field(Field::new(0, &label, shape, text, Whole::Value(Arc::clone(value))));
        }
    }
    Some(block)
}

fn is_blank(value: &Shown) -> bool {
    match value {
        Shown::File(_) => false,
        Shown::Value(value) => {
            value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
        }
    }
}
