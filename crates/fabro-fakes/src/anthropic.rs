//! Turns in the form of the Messages API.

use serde_json::{Map, Value, json};

use crate::turn::{Block, Tokens, Turn};
use crate::wire::event;

/// The events of a turn's content, and those that end it.
pub(crate) fn stream(turn: &Turn) -> (Vec<String>, Vec<String>) {
    let tokens = turn.usage.unwrap_or_default();
    let mut message = message();
    message["content"] = json!([]);
    message["usage"] = input(tokens);
    message["usage"]["output_tokens"] = 1.into();
    let start = json!({"type": "message_start", "message": message});
    let mut events = vec![named(&start), named(&json!({"type": "ping"}))];
    for (index, block) in turn.blocks.iter().enumerate() {
        events.extend(of_block(index, block));
    }
    let delta = json!({"type": "message_delta",
        "delta": {"stop_reason": stop(turn), "stop_sequence": null},
        "usage": {"output_tokens": tokens.output}});
    (events, vec![named(&delta), named(&json!({"type": "message_stop"}))])
}

fn of_block(index: usize, block: &Block) -> Vec<String> {
    let empty = match block {
        Block::Text { .. } => json!({"type": "text", "text": ""}),
        Block::Thinking { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Block::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
        Block::Call { id, name, .. } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": {}})
        }
    };
    let deltas = match block {
        Block::Text { text } => {
            text.iter().map(|text| json!({"type": "text_delta", "text": text})).collect()
        }
        Block::Thinking { text, signature } => {
            let mut deltas = vec![json!({"type": "thinking_delta", "thinking": text})];
            let seal = signature.as_ref();
            deltas.extend(seal.map(|it| json!({"type": "signature_delta", "signature": it})));
            deltas
        }
        Block::Redacted { .. } => Vec::new(),
        Block::Call { arguments, .. } => {
            vec![json!({"type": "input_json_delta", "partial_json": arguments})]
        }
    };
    let start = json!({"type": "content_block_start", "index": index, "content_block": empty});
    let deltas = deltas
        .into_iter()
        .map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta}));
    let stop = json!({"type": "content_block_stop", "index": index});
    [start].into_iter().chain(deltas).chain([stop]).map(|data| named(&data)).collect()
}

pub(crate) fn named(data: &Value) -> String {
    event(data["type"].as_str(), &data.to_string())
}

/// The same turn in one piece.
pub(crate) fn whole(turn: &Turn) -> String {
    let content = turn.blocks.iter().map(|block| match block {
        Block::Text { text } => json!({"type": "text", "text": text.concat()}),
        Block::Thinking { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Block::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
        Block::Call { id, name, arguments } => {
            let input = serde_json::from_str(arguments).unwrap_or(Value::Object(Map::new()));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    });
    let mut message = message();
    message["content"] = content.collect();
    message["stop_reason"] = stop(turn).into();
    let tokens = turn.usage.unwrap_or_default();
    message["usage"] = input(tokens);
    message["usage"]["output_tokens"] = tokens.output.into();
    message.to_string()
}

fn message() -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted-1",
        "content": null, "stop_reason": null, "stop_sequence": null, "usage": null})
}

/// Anthropic counts cached tokens separately.
fn input(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input.saturating_sub(tokens.cached),
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": 0,
    })
}

fn stop(turn: &Turn) -> &str {
    match turn.stop.as_deref() {
        // The other protocol's words, so that one script serves both.
        Some("length") => "max_tokens",
        Some("content_filter") => "refusal",
        Some(stop) => stop,
        None if turn.blocks.iter().any(|block| matches!(block, Block::Call { .. })) => "tool_use",
        None => "end_turn",
    }
}
