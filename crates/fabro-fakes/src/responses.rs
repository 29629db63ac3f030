//! Turns in the form of the Responses API.

use serde_json::{Value, json};

use crate::turn::{Block, Tokens, Turn};
use crate::wire::event;

/// The events of a turn's content, and those that end it.
pub(crate) fn stream(turn: &Turn) -> (Vec<String>, Vec<String>) {
    let response = json!({"id": "resp_1", "object": "response", "status": "in_progress"});
    let mut events = vec![named(&json!({"type": "response.created", "response": response}))];
    for (index, block) in turn.blocks.iter().enumerate() {
        let mut send = |mut data: Value| {
            data["output_index"] = index.into();
            events.push(named(&data));
        };
        let mut begun = item(index, block, turn);
        clear(&mut begun);
        send(json!({"type": "response.output_item.added", "item": begun}));
        match block {
            Block::Text { text } => {
                for piece in text {
                    send(json!({"type": "response.output_text.delta", "delta": piece}));
                }
            }
            Block::Thinking { text, .. } if !text.is_empty() => {
                send(json!({"type": "response.reasoning_summary_text.delta", "delta": text}));
            }
            Block::Thinking { .. } | Block::Redacted { .. } => {}
            Block::Call { arguments, .. } => {
                send(json!({"type": "response.function_call_arguments.delta", "delta": arguments}));
            }
        }
        send(json!({"type": "response.output_item.done", "item": item(index, block, turn)}));
    }
    let body = body(turn);
    let kind = if body["status"] == "completed" { "completed" } else { "incomplete" };
    let end = json!({"type": format!("response.{kind}"), "response": body});
    (events, vec![named(&end)])
}

pub(crate) fn named(data: &Value) -> String {
    event(data["type"].as_str(), &data.to_string())
}

/// The same turn in one piece.
pub(crate) fn whole(turn: &Turn) -> String {
    body(turn).to_string()
}

fn body(turn: &Turn) -> Value {
    let items = turn.blocks.iter().enumerate().map(|(index, block)| item(index, block, turn));
    let output: Value = items.collect();
    let mut body = json!({"id": "resp_1", "object": "response", "output": output});
    let reason = match turn.stop.as_deref() {
        Some("length") => Some("max_output_tokens"),
        Some("content_filter") => Some("content_filter"),
        _ => None,
    };
    body["status"] = if reason.is_some() { "incomplete" } else { "completed" }.into();
    if let Some(reason) = reason {
        body["incomplete_details"] = json!({"reason": reason});
    }
    body["usage"] = turn.usage.map(usage).into();
    body
}

fn item(index: usize, block: &Block, turn: &Turn) -> Value {
    match block {
        Block::Text { text } => {
            let has_later = |block: &Block| !matches!(block, Block::Thinking { .. });
            let is_last = !turn.blocks[index + 1..].iter().any(has_later);
            let phase = if is_last { "final_answer" } else { "commentary" };
            let content =
                json!([{"type": "output_text", "text": text.concat(), "annotations": []}]);
            json!({"type": "message", "id": format!("msg_{index}"), "role": "assistant",
                "status": "completed", "phase": phase, "content": content})
        }
        Block::Thinking { text, signature } => {
            let summary = json!([{"type": "summary_text", "text": text}]);
            json!({"type": "reasoning", "id": format!("rs_{index}"), "status": null,
                "summary": if text.is_empty() { json!([]) } else { summary },
                "encrypted_content": signature})
        }
        Block::Redacted { data } => json!({"type": "reasoning", "id": format!("rs_{index}"),
            "summary": [], "encrypted_content": data}),
        Block::Call { id, name, arguments } => json!({"type": "function_call",
            "id": format!("fc_{index}"), "call_id": id, "name": name, "arguments": arguments}),
    }
}

/// What an item has when it begins.
fn clear(item: &mut Value) {
    match item["type"].as_str() {
        Some("message") => item["content"] = json!([]),
        Some("reasoning") => {
            item["summary"] = json!([]);
            item["encrypted_content"] = "not the whole of it".into();
        }
        _ => item["arguments"] = "".into(),
    }
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "total_tokens": tokens.input.saturating_add(tokens.output),
    })
}
