//! Request bodies of Chat Completions.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::providers::ProviderKind;
use crate::providers::conversation::{arguments_object, description, is_own, text, turn_start};
use crate::providers::schema;
use crate::providers::wire::WireRequest;
use crate::{Content, Message, Role, ToolSpec};

/// Models that refuse `max_tokens`. Compatible servers often know no other key.
const MAX_COMPLETION_TOKENS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

/// The body of a request.
pub(in crate::providers) fn body(wire: &WireRequest<'_>) -> Value {
    let request = &*wire.request;
    let mut body = json!({"model": wire.model, "stream": request.streams});
    if let Some(effort) = wire.effort {
        body["reasoning_effort"] = json!(effort);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages(wire.provider.kind, &request.messages).into();
    if request.streams {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some(max_tokens) = wire.max_tokens {
        let is_new = MAX_COMPLETION_TOKENS.iter().any(|name| wire.model.starts_with(name));
        let key = if is_new { "max_completion_tokens" } else { "max_tokens" };
        body[key] = max_tokens.into();
    }
    if let Some(key) = wire.openai_cache_key() {
        body["prompt_cache_key"] = key.into();
    }
    if let Some(schema) = wire.output_schema() {
        body["response_format"] =
            json!({"type": "json_schema", "json_schema": schema::for_openai(schema)});
    }
    if let Some(tier) = wire.openai_tier() {
        body["service_tier"] = tier.into();
    }
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({"type": "function", "function": {
        "name": spec.name,
        "description": description(spec),
        "parameters": *spec.parameters,
        "strict": false,
    }})
}

fn messages(kind: ProviderKind, messages: &[Arc<Message>]) -> Vec<Value> {
    let turn = turn_start(messages);
    let mut out: Vec<Value> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let text = text(message);
        match message.role {
            Role::System if text.is_empty() => {}
            Role::System => match out.last_mut().filter(|last| last["role"] == "system") {
                // Some servers accept one message of the system only.
                Some(last) => {
                    let earlier = last["content"].as_str().unwrap_or_default();
                    last["content"] = format!("{earlier}\n\n{text}").into();
                }
                None => out.push(json!({"role": "system", "content": text})),
            },
            Role::User => out.push(json!({"role": "user", "content": text})),
            Role::Assistant => out.extend(assistant(kind, message, &text, place >= turn)),
            Role::Tool => out.extend(message.content.iter().filter_map(result)),
        }
    }
    out
}

/// Reasoning goes back only within the turn that calls tools; an empty message is not sent.
fn assistant(kind: ProviderKind, message: &Message, text: &str, in_turn: bool) -> Option<Value> {
    let reasoning = message.content.iter().filter_map(|content| match content {
        Content::Reasoning(thought) if in_turn && is_own(kind, thought) => Some(&*thought.text),
        _ => None,
    });
    let reasoning: Vec<_> = reasoning.filter(|text| !text.is_empty()).collect();
    let calls: Vec<_> = message
        .tool_calls()
        .map(|call| {
            let arguments = arguments_object(call).to_string();
            let function = json!({"name": call.name, "arguments": arguments});
            json!({"type": "function", "id": call.id, "function": function})
        })
        .collect();
    if text.is_empty() && calls.is_empty() && reasoning.is_empty() {
        return None;
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.join("\n").into();
    }
    Some(message)
}

fn result(content: &Content) -> Option<Value> {
    match content {
        Content::ToolResult { id, text, .. } => {
            Some(json!({"role": "tool", "content": text, "tool_call_id": id}))
        }
        _ => None,
    }
}
