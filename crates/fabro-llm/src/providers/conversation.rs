//! What the requests of all wires need from a conversation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ProviderKind;
use crate::{Content, Message, Reasoning, Role, ToolCall, ToolSpec};

/// Where the current turn begins: after the last message of the user.
pub(super) fn turn_start(messages: &[Arc<Message>]) -> usize {
    messages.iter().rposition(|message| message.role == Role::User).map_or(0, |last| last + 1)
}

/// Reasoning goes back only to the kind of provider that it came from.
pub(super) fn is_own(kind: ProviderKind, reasoning: &Reasoning) -> bool {
    reasoning.provider.as_deref().is_none_or(|provider| provider == kind.as_str())
}

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

/// The text blocks of a message as one string.
pub(super) fn text(message: &Message) -> String {
    let texts = message.content.iter().filter_map(|content| match content {
        Content::Text { text } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
