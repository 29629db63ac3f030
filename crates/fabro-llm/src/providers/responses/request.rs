//! Request bodies of the Responses API.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::providers::ProviderKind;
use crate::providers::conversation::{arguments_object, description, is_own, text};
use crate::providers::schema;
use crate::providers::wire::WireRequest;
use crate::{Content, Message, Role, ToolSpec};

/// The body of a request.
pub(in crate::providers) fn body(wire: &WireRequest<'_>) -> Value {
    let request = &*wire.request;
    let mut body = json!({"store": false, "model": wire.model, "stream": request.streams});
    if let Some(effort) = wire.effort {
        body["reasoning"]["effort"] = json!(effort);
    }
    // Refused for models that do not think.
    if wire.may_think() {
        body["reasoning"]["summary"] = "detailed".into();
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["input"] = input(&request.messages).into();
    if let Some(max_tokens) = wire.max_tokens {
        body["max_output_tokens"] = max_tokens.into();
    }
    if let Some(key) = wire.openai_cache_key() {
        body["prompt_cache_key"] = key.into();
    }
    if let Some(schema) = wire.output_schema() {
        let mut format = schema::for_openai(schema);
        format["type"] = "json_schema".into();
        body["text"] = json!({"format": format});
    }
    if let Some(tier) = wire.openai_tier() {
        body["service_tier"] = tier.into();
    }
    body
}

/// Without `strict: false`, schemas would be rewritten as strict ones.
fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": spec.name,
        "parameters": *spec.parameters,
        "description": description(spec),
        "strict": false,
    })
}

/// The conversation as items, reasoning at its place.
fn input(messages: &[Arc<Message>]) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for message in messages {
        match message.role {
            Role::System => match text(message) {
                text if text.is_empty() => {}
                text => items.push(json!({"role": "system", "content": text})),
            },
            Role::User => items.push(json!({"role": "user", "content": text(message)})),
            Role::Assistant | Role::Tool => items.extend(message.content.iter().filter_map(item)),
        }
    }
    items
}

fn item(content: &Content) -> Option<Value> {
    match content {
        Content::Text { text } if text.is_empty() => None,
        Content::Text { text } => Some(json!({"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text}]})),
        Content::Reasoning(thought) if is_own(ProviderKind::OpenAiResponses, thought) => {
            let signature = thought.signature.as_ref()?;
            Some(json!({"type": "reasoning", "encrypted_content": signature, "summary": []}))
        }
        Content::Reasoning(_) => None,
        Content::ToolCall(call) => Some(json!({
            "type": "function_call", "call_id": call.id, "name": call.name,
            "arguments": arguments_object(call).to_string(),
        })),
        Content::ToolResult { id, text, .. } => {
            Some(json!({"type": "function_call_output", "call_id": id, "output": text}))
        }
    }
}
