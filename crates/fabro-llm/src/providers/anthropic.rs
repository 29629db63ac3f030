//! Messages as Anthropic takes them. Written here because the client puts all thoughts of a message
//! before the rest of it, and Anthropic wants its blocks back in their order.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ProviderKind;
use super::outgoing::{input, is_own};
use crate::{Content, Message, Role};

/// All but those of the system.
pub(super) fn messages(messages: &[Arc<Message>]) -> Value {
    let mut out: Vec<(Role, Vec<Value>)> = Vec::new();
    for message in messages.iter().filter(|message| message.role != Role::System) {
        let blocks: Vec<_> = message.content.iter().filter_map(block).collect();
        if blocks.is_empty() && message.role != Role::User {
            continue;
        }
        // All results of a turn belong together.
        match out.last_mut() {
            Some((Role::Tool, earlier)) if message.role == Role::Tool => earlier.extend(blocks),
            _ => out.push((message.role, blocks)),
        }
    }
    cache(&mut out);
    let told = out.into_iter().map(|(role, blocks)| {
        let role = if role == Role::Assistant { "assistant" } else { "user" };
        json!({"role": role, "content": content(blocks)})
    });
    told.collect()
}

/// Marks that Anthropic may cache up to the end of what was said so far, which the next turn begins
/// with.
fn cache(messages: &mut [(Role, Vec<Value>)]) {
    let last = messages.last_mut().filter(|(role, _)| *role != Role::Assistant);
    if let Some(block) = last.and_then(|(_, blocks)| blocks.last_mut()) {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
}

/// A plain text stands for itself.
fn content(blocks: Vec<Value>) -> Value {
    match blocks.as_slice() {
        [] => "".into(),
        [one] if one["type"] == "text" && one["cache_control"].is_null() => one["text"].clone(),
        _ => blocks.into(),
    }
}

fn block(content: &Content) -> Option<Value> {
    match content {
        Content::Text { text } if text.is_empty() => None,
        Content::Text { text } => Some(json!({"type": "text", "text": text})),
        Content::Reasoning(thought) if !is_own(ProviderKind::Anthropic, thought) => None,
        Content::Reasoning(thought) => match (&thought.redacted, &thought.signature) {
            (Some(data), _) => Some(json!({"type": "redacted_thinking", "data": data})),
            (None, Some(signature)) => Some(json!({
                "type": "thinking", "thinking": thought.text, "signature": signature,
            })),
            (None, None) => None,
        },
        Content::ToolCall(call) => Some(json!({
            "type": "tool_use", "id": call.id, "name": call.name, "input": input(call),
        })),
        Content::ToolResult { id, text, is_error } => {
            let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
            if *is_error {
                block["is_error"] = true.into();
            }
            Some(block)
        }
    }
}
