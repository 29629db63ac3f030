//! Turns in the form of Gemini's `generateContent`.

use serde_json::{Map, Value, json};

use crate::turn::{Block, Turn};
use crate::wire::event;

/// The events of a turn's content, and those that end it.
pub(crate) fn stream(turn: &Turn) -> (Vec<String>, Vec<String>) {
    let parts = parts(turn).into_iter();
    let events = parts.map(|part| response(&[part], None)).collect();
    (events, vec![event(None, &body(&[], Some(turn)).to_string())])
}

fn response(parts: &[Value], end: Option<&Turn>) -> String {
    event(None, &body(parts, end).to_string())
}

/// The same turn in one piece.
pub(crate) fn whole(turn: &Turn) -> String {
    body(&parts(turn), Some(turn)).to_string()
}

fn body(parts: &[Value], end: Option<&Turn>) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    let mut body = json!({});
    if let Some(turn) = end {
        candidate["finishReason"] = stop(turn).into();
        if let Some(tokens) = turn.usage {
            body["usageMetadata"] = json!({"promptTokenCount": tokens.input,
                "candidatesTokenCount": tokens.output, "cachedContentTokenCount": tokens.cached});
        }
    }
    body["candidates"] = json!([candidate]);
    body
}

/// The signature of a thought belongs to the call or text that follows.
fn parts(turn: &Turn) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut sealed: Option<&String> = None;
    for block in &turn.blocks {
        let mut part = match block {
            Block::Thinking { text, signature } => {
                sealed = signature.as_ref();
                if !text.is_empty() {
                    parts.push(json!({"text": text, "thought": true}));
                }
                continue;
            }
            Block::Redacted { .. } => continue,
            Block::Text { text } => json!({"text": text.concat()}),
            Block::Call { id, name, arguments } => {
                let args = serde_json::from_str(arguments).unwrap_or(Value::Object(Map::new()));
                json!({"functionCall": {"id": id, "name": name, "args": args}})
            }
        };
        if let Some(signature) = sealed.take() {
            part["thoughtSignature"] = signature.as_str().into();
        }
        parts.push(part);
    }
    parts
}

fn stop(turn: &Turn) -> &str {
    match turn.stop.as_deref() {
        Some("length") => "MAX_TOKENS",
        Some("content_filter") => "SAFETY",
        Some(stop) => stop,
        None => "STOP",
    }
}
