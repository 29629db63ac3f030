//! Request bodies of the Responses API.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::providers::conversation::{arguments_object, description, text};
use crate::providers::schema;
use crate::providers::wire::WireRequest;
use crate::{Content, Message, Reasoning, Role, ToolCall, ToolSpec};

/// The field of a reasoning block with the arguments of the call that follows.
pub(super) const ARGUMENTS: &str = "arguments";

/// The body of a request.
pub(in crate::providers) fn body(wire: &WireRequest<'_>) -> Value {
    let request = &*wire.request;
    let mut body = json!({"store": false, "model": wire.model, "stream": request.streams});
    if let Some(effort) = wire.effort {
        body["reasoning"]["effort"] = json!(effort);
    }
    // Refused by models that do not think.
    if wire.thinks() {
        body["reasoning"]["summary"] = "auto".into();
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
            Role::Assistant | Role::Tool => add_items(&message.content, &mut items),
        }
    }
    items
}

fn add_items(contents: &[Content], items: &mut Vec<Value>) {
    let first = items.len();
    // The arguments of the next call, as the model wrote them.
    let mut written = None;
    for content in contents {
        match content {
            Content::Text { text } if text.is_empty() => {}
            Content::Text { text } => items.push(json!({"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": text}]})),
            Content::Reasoning(thought) => {
                if let (Some(phase), Some(last)) = (&thought.phase, items[first..].last_mut())
                    && last["type"] == "message"
                {
                    last["phase"] = phase.as_str().into();
                }
                items.extend(reasoning(thought));
                written = thought.fields.as_ref().and_then(|fields| fields[ARGUMENTS].as_str());
            }
            Content::ToolCall(call) => items.push(json!({
                "type": "function_call", "call_id": call.id, "name": call.name,
                "arguments": arguments(call, written.take()),
            })),
            Content::ToolResult { id, text, .. } => {
                let output = json!({"type": "function_call_output", "call_id": id, "output": text});
                items.push(output);
            }
        }
    }
    // Reasoning is refused without the item that it led to.
    let has_end = |item: &Value| item["type"] != "reasoning";
    let end = items[first..].iter().rposition(has_end).map_or(first, |last| first + last + 1);
    items.truncate(end);
}

/// Without its encrypted content a block cannot be read, as nothing is stored.
fn reasoning(thought: &Reasoning) -> Option<Value> {
    let sealed = thought.signature.as_ref()?;
    let mut item = json!({"type": "reasoning", "summary": [], "encrypted_content": sealed});
    for (key, value) in thought.fields.iter().filter_map(Value::as_object).flatten() {
        item[key] = value.clone();
    }
    Some(item)
}

/// The text that the model wrote, unless the arguments have changed since.
fn arguments(call: &ToolCall, written: Option<&str>) -> String {
    let is_same = |text: &&str| {
        serde_json::from_str::<Value>(text).is_ok_and(|value| value == call.arguments)
    };
    match written.filter(is_same) {
        Some(text) => text.to_owned(),
        None => arguments_object(call).to_string(),
    }
}
