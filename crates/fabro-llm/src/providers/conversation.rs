//! What the requests of all wires need from a conversation.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Content, Message, Role, ToolCall, ToolSpec};

/// The arguments of a call. Providers accept objects only; what the model wrote stays visible.
pub(super) fn arguments_object(call: &ToolCall) -> Value {
    if call.arguments.is_object() {
        call.arguments.clone()
    } else {
        json!({"invalid_arguments": call.arguments})
    }
}

/// Some providers refuse a tool without a description.
pub(super) fn description(spec: &ToolSpec) -> &str {
    if spec.description.is_empty() { &spec.name } else { &spec.description }
}

/// All messages but those of the system, each with the parts that `parts` makes of it. All results of
/// a turn are in one message; messages without parts are left out.
pub(super) fn grouped(
    messages: &[Arc<Message>],
    parts: impl Fn(&Message) -> Vec<Value>,
) -> Vec<(Role, Vec<Value>)> {
    let mut grouped: Vec<(Role, Vec<Value>)> = Vec::new();
    for message in messages.iter().filter(|message| message.role != Role::System) {
        let parts = parts(message);
        match grouped.last_mut() {
            _ if parts.is_empty() => {}
            Some((Role::Tool, earlier)) if message.role == Role::Tool => earlier.extend(parts),
            _ => grouped.push((message.role, parts)),
        }
    }
    grouped
}

/// Stands for a message of the user without text, which some providers refuse.
pub(super) const EMPTY: &str = "(empty)";

/// The texts of the system's messages.
pub(super) fn system_texts(messages: &[Arc<Message>]) -> impl Iterator<Item = String> {
    let system = messages.iter().filter(|message| message.role == Role::System);
    system.map(|message| text(message)).filter(|text| !text.is_empty())
}

/// The text blocks of a message as one string.
pub(super) fn text(message: &Message) -> String {
    let texts = message.content.iter().filter_map(|content| match content {
        Content::Text { text } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
