//! Request bodies of Gemini's `generateContent` and `streamGenerateContent`. The model is in the URL.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{checks_signatures, takes_schema, unsent_id_name};
use crate::providers::conversation::{EMPTY, arguments_object, description, grouped, system_texts};
use crate::providers::wire::WireRequest;
use crate::{Content, Message, ReasoningEffort, Role, ThinkingMode, ToolSpec};

/// Stands for the signature of a call that was made elsewhere.
pub(in crate::providers) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The body of a request.
pub(in crate::providers) fn body(wire: &WireRequest<'_>) -> Value {
    let request = &*wire.request;
    let mut body = json!({});
    let config = generation_config(wire);
    if config.as_object().is_some_and(|config| !config.is_empty()) {
        body["generationConfig"] = config;
    }
    let system: Vec<_> = system_texts(&request.messages).collect();
    if !system.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": system.join("\n\n")}]});
    }
    if !request.tools.is_empty() {
        let tools: Vec<_> = request.tools.iter().map(declaration).collect();
        body["tools"] = json!([{"functionDeclarations": tools}]);
    }
    body["contents"] = contents(&request.messages, checks_signatures(wire.model));
    body
}

fn generation_config(wire: &WireRequest<'_>) -> Value {
    let mut config = json!({});
    match (wire.thinking, wire.effort) {
        (Some(ThinkingMode::Level), Some(effort)) => {
            let level = effort.as_str().to_ascii_uppercase();
            config["thinkingConfig"]["thinkingLevel"] = level.into();
        }
        (Some(ThinkingMode::Budget), Some(effort)) => {
            config["thinkingConfig"]["thinkingBudget"] = budget(effort, wire.model).into();
        }
        _ => {}
    }
    if wire.thinks() {
        config["thinkingConfig"]["includeThoughts"] = true.into();
    }
    let is_taken = takes_schema(wire.model, &wire.request.tools);
    if let Some(schema) = wire.output_schema().filter(|_| is_taken) {
        config["responseMimeType"] = "application/json".into();
        config["responseJsonSchema"] = schema.clone();
    }
    if let Some(max_tokens) = wire.max_tokens {
        config["maxOutputTokens"] = max_tokens.into();
    }
    config
}

/// Only the fast models can be told not to think.
fn budget(effort: ReasoningEffort, model: &str) -> u32 {
    match effort {
        ReasoningEffort::None if model.contains("flash") => 0,
        ReasoningEffort::None | ReasoningEffort::Minimal | ReasoningEffort::Low => 1000,
        ReasoningEffort::Medium => 8000,
        ReasoningEffort::High | ReasoningEffort::XHigh | ReasoningEffort::Max => 24_000,
    }
}

fn declaration(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "description": description(spec),
        "parametersJsonSchema": *spec.parameters,
    })
}

/// All messages but those of the system.
fn contents(messages: &[Arc<Message>], needs_signatures: bool) -> Value {
    let calls = messages.iter().flat_map(|message| message.tool_calls());
    let names: BTreeMap<&str, &str> = calls.map(|call| (&*call.id, &*call.name)).collect();
    let parts = |message: &Message| match message.role {
        Role::Assistant => model_parts(message, needs_signatures),
        _ => message.content.iter().filter_map(|content| user_part(content, &names)).collect(),
    };
    let contents = grouped(messages, parts).into_iter().map(|(role, parts)| {
        let role = if role == Role::Assistant { "model" } else { "user" };
        json!({"role": role, "parts": parts})
    });
    contents.collect()
}

/// A signature is a reasoning block before the call that it is sent with.
fn model_parts(message: &Message, needs_signatures: bool) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut signature = None;
    let mut is_first_call = true;
    for content in &message.content {
        match content {
            Content::Text { text } if !text.is_empty() => parts.push(json!({"text": text})),
            // One of a text has fields.
            Content::Reasoning(thought) if thought.fields.is_some() => {
                let sealed = thought.signature.as_ref();
                parts.extend(sealed.map(|it| json!({"text": "", "thoughtSignature": it})));
            }
            Content::Reasoning(thought) => signature.clone_from(&thought.signature),
            Content::ToolCall(call) => {
                let mut part = json!({"functionCall": with_id(&call.id, json!({
                    "name": call.name, "args": arguments_object(call),
                }))});
                let dummy = (needs_signatures && is_first_call).then(|| NO_SIGNATURE.to_owned());
                if let Some(signature) = signature.take().or(dummy) {
                    part["thoughtSignature"] = signature.into();
                }
                is_first_call = false;
                parts.push(part);
            }
            _ => {}
        }
    }
    parts
}

fn user_part(content: &Content, names: &BTreeMap<&str, &str>) -> Option<Value> {
    match content {
        Content::Text { text } if text.is_empty() => Some(json!({"text": EMPTY})),
        Content::Text { text } => Some(json!({"text": text})),
        Content::ToolResult { id, text, .. } => {
            let name = names.get(&**id).copied().or_else(|| unsent_id_name(id)).unwrap_or(id);
            let response = json!({"name": name, "content": text});
            let response = with_id(id, json!({"name": name, "response": response}));
            Some(json!({"functionResponse": response}))
        }
        _ => None,
    }
}

/// Ids that we made are not sent.
fn with_id(id: &str, mut object: Value) -> Value {
    if unsent_id_name(id).is_none() {
        object["id"] = id.into();
    }
    object
}
