//! Request bodies of Chat Completions.

use serde_json::{Value, json};

use crate::providers::concessions::Server;
use crate::providers::conversation::{arguments_object, description, system_texts, text};
use crate::providers::gemini::request::NO_SIGNATURE;
use crate::providers::schema;
use crate::providers::wire::WireRequest;
use crate::{Content, Message, Reasoning, ReasoningEffort, Role, ThinkingMode, ToolCall, ToolSpec};

/// Models that refuse `max_tokens`. Compatible servers often know no other key.
const MAX_COMPLETION_TOKENS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

/// The body of a request.
pub(in crate::providers) fn body(wire: &WireRequest<'_>) -> Value {
    let request = &*wire.request;
    let mut body = json!({"model": wire.model, "stream": request.streams});
    add_thinking(wire, &mut body);
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages(wire).into();
    if wire.has_stream_options() {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some(max_tokens) = wire.max_tokens {
        let is_new = MAX_COMPLETION_TOKENS.iter().any(|name| wire.model.starts_with(name));
        let key = if is_new || wire.concessions.max_completion_tokens {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
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

/// Some models have a switch besides the effort, or in its place.
fn add_thinking(wire: &WireRequest<'_>, body: &mut Value) {
    let Some(effort) = wire.effort else { return };
    if wire.thinking != Some(ThinkingMode::Switch) {
        body["reasoning_effort"] = json!(effort);
        return;
    }
    let is_on = effort != ReasoningEffort::None;
    let family = wire.model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if !family.starts_with("qwen") {
        body["thinking"] = json!({"type": if is_on { "enabled" } else { "disabled" }});
    } else if wire.server == Some(Server::Groq) {
        body["reasoning_effort"] = if is_on { "default" } else { "none" }.into();
    } else {
        body["enable_thinking"] = is_on.into();
    }
    if is_on && wire.efforts.contains(&effort) {
        body["reasoning_effort"] = json!(effort);
    }
}

fn tool(spec: &ToolSpec) -> Value {
    json!({"type": "function", "function": {
        "name": spec.name,
        "description": description(spec),
        "parameters": *spec.parameters,
    }})
}

fn messages(wire: &WireRequest<'_>) -> Vec<Value> {
    let messages = &wire.request.messages;
    let mut out: Vec<Value> = Vec::new();
    // Some servers accept one message of the system only, at the beginning.
    let system: Vec<_> = system_texts(messages).collect();
    if !system.is_empty() {
        out.push(json!({"role": "system", "content": system.join("\n\n")}));
    }
    for message in &**messages {
        match message.role {
            Role::System => {}
            Role::User => {
                let follows_results = out.last().is_some_and(|last| last["role"] == "tool");
                if follows_results && wire.server == Some(Server::Mistral) {
                    // It refuses a message of the user there.
                    out.push(json!({"role": "assistant", "content": "OK."}));
                }
                out.push(json!({"role": "user", "content": text(message)}));
            }
            Role::Assistant => out.extend(assistant(message, wire)),
            Role::Tool => out.extend(message.content.iter().filter_map(result)),
        }
    }
    out
}

/// A message without text and calls is not sent, as many servers refuse it; be there reasoning in it.
fn assistant(message: &Message, wire: &WireRequest<'_>) -> Option<Value> {
    let mut out = json!({"role": "assistant", "content": text(message)});
    let mut calls: Vec<Value> = Vec::new();
    let mut signature: Option<&str> = None;
    for content in &message.content {
        match content {
            Content::Reasoning(_) if wire.refuses_reasoning() => {}
            Content::Reasoning(thought) => {
                signature = thought.signature.as_deref();
                add_reasoning(thought, &mut out);
            }
            Content::ToolCall(it) => {
                let needs_one = calls.is_empty() && wire.needs_signatures();
                let signature = signature.take().or(needs_one.then_some(NO_SIGNATURE));
                calls.push(call(it, signature));
            }
            _ => {}
        }
    }
    if !out["reasoning_details"].is_null() {
        // They have the text, too.
        out.as_object_mut()?.retain(|key, _| key != "reasoning");
    }
    let is_empty = |text: &Value| text.as_str().is_some_and(str::is_empty);
    if calls.is_empty() && text(message).is_empty() {
        return None;
    }
    if wire.needs_reasoning() && out["reasoning_content"].is_null() {
        out["reasoning_content"] = "".into();
    }
    if !calls.is_empty() {
        if is_empty(&out["content"]) {
            out["content"] = Value::Null;
        }
        out["tool_calls"] = calls.into();
    }
    Some(out)
}

/// Adds a thought in the fields in which it came; `reasoning_content` where that is not recorded.
fn add_reasoning(thought: &Reasoning, out: &mut Value) {
    let usual = json!({"reasoning_content": null});
    let fields = thought.fields.as_ref().unwrap_or(&usual).as_object();
    for (field, value) in fields.into_iter().flatten() {
        let earlier = out[field.as_str()].as_str();
        match (field.as_str(), value) {
            (_, Value::Null) if thought.text.is_empty() => {}
            ("thinking", Value::Null) => {
                let text = json!([{"type": "text", "text": thought.text}]);
                let mut parts = vec![json!({"type": "thinking", "thinking": text})];
                if let Some(text) = out["content"].as_str().filter(|text| !text.is_empty()) {
                    parts.push(json!({"type": "text", "text": text}));
                }
                out["content"] = parts.into();
            }
            (field, Value::Null) => {
                let before = earlier.map(|text| format!("{text}\n")).unwrap_or_default();
                out[field] = format!("{before}{}", thought.text).into();
            }
            (field, value) => out[field] = value.clone(),
        }
    }
}

fn call(call: &ToolCall, signature: Option<&str>) -> Value {
    let arguments = arguments_object(call).to_string();
    let function = json!({"name": call.name, "arguments": arguments});
    let mut out = json!({"type": "function", "id": call.id, "function": function});
    if let Some(signature) = signature {
        out["extra_content"] = json!({"google": {"thought_signature": signature}});
    }
    out
}

fn result(content: &Content) -> Option<Value> {
    match content {
        Content::ToolResult { id, text, .. } => {
            Some(json!({"role": "tool", "content": text, "tool_call_id": id}))
        }
        _ => None,
    }
}
