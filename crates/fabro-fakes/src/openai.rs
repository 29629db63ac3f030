//! Turns in the form of Chat Completions.

use serde_json::{Map, Value, json};

use crate::turn::{Block, Tokens, Turn};
use crate::wire::event;

/// The events of a turn's content, and those that end it.
pub(crate) fn stream(turn: &Turn) -> (Vec<String>, Vec<String>) {
    let mut events = vec![delta(&json!({"role": "assistant", "content": null}))];
    let mut calls = 0;
    for block in &turn.blocks {
        match block {
            Block::Text { text } => {
                events.extend(text.iter().map(|text| delta(&json!({"content": text}))));
            }
            Block::Thinking { text, signature } if !is_sealed(signature.as_deref()) => {
                events.push(delta(&json!({"reasoning_content": text})));
            }
            Block::Thinking { text, signature } => {
                for detail in [detail(text, None), detail("", signature.as_deref())] {
                    events.push(delta(&json!({"reasoning": text, "reasoning_details": [detail]})));
                }
            }
            Block::Redacted { .. } => {}
            Block::Call { id, name, arguments } => {
                events.extend(call(calls, id, name, arguments));
                calls += 1;
            }
        }
    }
    let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": stop(turn)}]});
    let mut end = vec![event(None, &chunk(&finish))];
    let tokens = turn.usage.unwrap_or_default();
    end.push(event(None, &chunk(&json!({"choices": [], "usage": usage(tokens)}))));
    end.push(event(None, "[DONE]"));
    (events, end)
}

/// Whether a strict server has made this signature.
fn is_sealed(signature: Option<&str>) -> bool {
    signature.is_some_and(|it| it.starts_with("sealed:"))
}

/// Reasoning with a signature, as `OpenRouter` sends it.
fn detail(text: &str, signature: Option<&str>) -> Value {
    json!({"type": "reasoning.text", "text": text, "signature": signature, "format": "anthropic-claude-v1",
        "index": 0})
}

/// A call comes with its name first and its arguments in two pieces.
fn call(index: usize, id: &str, name: &str, arguments: &str) -> Vec<String> {
    let mut middle = arguments.len() / 2;
    while !arguments.is_char_boundary(middle) {
        middle -= 1;
    }
    let (first, rest) = arguments.split_at(middle);
    let head = json!({"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": ""}});
    let piece = |text: &str| json!({"index": index, "function": {"arguments": text}});
    [head, piece(first), piece(rest)].map(|call| delta(&json!({"tool_calls": [call]}))).into()
}

fn delta(delta: &Value) -> String {
    let choices = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    event(None, &chunk(&choices))
}

fn chunk(rest: &Value) -> String {
    object("chat.completion.chunk", rest).to_string()
}

fn object(kind: &str, rest: &Value) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), "chatcmpl-1".into());
    object.insert("object".into(), kind.into());
    object.insert("created".into(), 1.into());
    object.insert("model".into(), "scripted-1".into());
    object.extend(rest.as_object().cloned().unwrap_or_default());
    object.into()
}

/// The same turn in one piece.
pub(crate) fn whole(turn: &Turn) -> String {
    let mut text = String::new();
    let mut thinking = String::new();
    let mut calls = Vec::new();
    for block in &turn.blocks {
        match block {
            Block::Text { text: pieces } => text.extend(pieces.iter().map(String::as_str)),
            Block::Thinking { text, .. } => thinking.push_str(text),
            Block::Redacted { .. } => {}
            Block::Call { id, name, arguments } => calls.push(json!({"id": id,
                "type": "function", "function": {"name": name, "arguments": arguments}})),
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !thinking.is_empty() {
        message["reasoning_content"] = thinking.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": stop(turn)});
    let rest = json!({"choices": [choice], "usage": usage(turn.usage.unwrap_or_default())});
    object("chat.completion", &rest).to_string()
}

fn stop(turn: &Turn) -> &str {
    match &turn.stop {
        Some(stop) => stop,
        None if turn.blocks.iter().any(|block| matches!(block, Block::Call { .. })) => "tool_calls",
        None => "stop",
    }
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input.saturating_add(tokens.output),
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    })
}
