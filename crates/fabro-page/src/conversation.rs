//! The conversation of a stage with a model.

use askama::Template;
use fabro_inspect::{ModelInputs, TranscriptMessage};
use fabro_llm::Content;
use fabro_types::one_line;
use serde_json::Value;

use crate::texts::{Texts, counted, render};

/// The longest line about a call, in characters.
const LINE: usize = 140;

/// A part of a message.
struct Part {
    kind: &'static str,
    /// The name of a call; empty for texts.
    head: String,
    /// The beginning of its arguments or of its result.
    line: String,
    html: String,
}

#[derive(Template)]
#[template(path = "message.html")]
struct Message<'a> {
    id: String,
    role: &'a str,
    name: String,
    note: String,
    session: Option<&'a str>,
    parts: Vec<Part>,
}

#[derive(Template)]
#[template(path = "given.html")]
struct Given {
    system: Option<String>,
    tools: Option<(String, String)>,
    opening: Option<String>,
}

/// What the model received before the first message.
pub(crate) fn given(given: &ModelInputs, texts: &mut Texts) -> String {
    let system = given.system.as_ref().map(|system| texts.value(system));
    let tools = given.tools.as_ref().map(|tools| {
        let list = tools.as_array();
        let names = list.into_iter().flatten().filter_map(|tool| tool.get("name")?.as_str());
        let names = one_line(&names.collect::<Vec<_>>().join(", "), LINE);
        let count = counted(list.map_or(1, Vec::len), "tool");
        (format!("{count}: {names}"), texts.value(tools))
    });
    let opening = given.opening.as_ref().map(|opening| texts.value(opening));
    if system.is_none() && tools.is_none() && opening.is_none() {
        return String::new();
    }
    render(&Given { system, tools, opening })
}

/// The messages of a conversation. `stage` is the name of the stage, for the addresses of its messages.
pub(crate) fn messages(stage: &str, list: &[TranscriptMessage], texts: &mut Texts) -> String {
    let mut html = String::new();
    for (at, message) in list.iter().enumerate() {
        if message.given != ModelInputs::default() {
            html.push_str(&given(&message.given, texts));
        }
        let note = match message.replaces {
            Some(count) => format!("a summary of {count} earlier messages"),
            None => String::new(),
        };
        html.push_str(&render(&Message {
            id: format!("{stage}:{}", at + 1),
            role: &message.role,
            name: message.tool.clone().unwrap_or_default(),
            note,
            session: message.session_id.as_deref(),
            parts: parts(message, texts),
        }));
    }
    html
}

fn parts(message: &TranscriptMessage, texts: &mut Texts) -> Vec<Part> {
    if message.role == "tool" {
        let kind = if message.is_error { "error" } else { "result" };
        let line = match &message.content {
            Value::String(text) => one_line(text, LINE),
            other => one_line(&other.to_string(), LINE),
        };
        let html = texts.value(&message.content);
        return vec![Part { kind, head: String::new(), line, html }];
    }
    let plain = |html| Part { kind: "text", head: String::new(), line: String::new(), html };
    let list = match &message.content {
        Value::Array(list) => list,
        Value::String(text) => return vec![plain(texts.prose(text))],
        other => return vec![plain(texts.value(other))],
    };
    let part = |value: &Value| {
        Some(match serde_json::from_value::<Content>(value.clone()) {
            Ok(Content::Text { text }) if text.trim().is_empty() => return None,
            Ok(Content::Text { text }) => plain(texts.prose(&text)),
            Ok(Content::Reasoning(reasoning)) if reasoning.text.trim().is_empty() => return None,
            Ok(Content::Reasoning(reasoning)) => Part {
                kind: "reasoning",
                head: "reasoning".to_owned(),
                line: one_line(&reasoning.text, LINE),
                html: texts.prose(&reasoning.text),
            },
            Ok(Content::ToolCall(call)) => Part {
                kind: "call",
                line: one_line(&call.arguments.to_string(), LINE),
                html: texts.value(&call.arguments),
                head: call.name,
            },
            Ok(Content::ToolResult { text, is_error, .. }) => Part {
                kind: if is_error { "error" } else { "result" },
                head: String::new(),
                line: one_line(&text, LINE),
                html: texts.block(&text),
            },
            _ => plain(texts.value(value)),
        })
    };
    list.iter().filter_map(part).collect()
}
