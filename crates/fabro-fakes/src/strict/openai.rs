use serde_json::Value;

use super::{Checked, Refusal, list, refused, seal, sealed, text};
use crate::Request;

/// When a model takes tools in Chat Completions.
#[derive(Clone, Copy, PartialEq)]
enum ChatTools {
    Always,
    WithoutEffort,
    EffortNone,
    Never,
    /// There is no Chat Completions.
    NoChat,
}

use ChatTools::{Always, EffortNone, Never, NoChat, WithoutEffort};

/// The beginnings of names, the most specific first: tools in Chat Completions, efforts.
const MODELS: [(&str, ChatTools, &str); 16] = [
    ("gpt-6.2-", Never, "low medium high xhigh max"),
    ("gpt-6.1-sol", Never, "low medium high xhigh max"),
    ("gpt-6-astra", Never, "low medium high xhigh max"),
    ("gpt-6", EffortNone, "none low medium high xhigh max"),
    ("gpt-5.6-", EffortNone, "none low medium high xhigh max"),
    ("gpt-5.5-pro", NoChat, "medium high xhigh"),
    ("gpt-5.5", EffortNone, "none low medium high xhigh"),
    ("gpt-5.4-pro", NoChat, "medium high xhigh"),
    ("gpt-5.4", WithoutEffort, "none low medium high xhigh"),
    ("gpt-5.3-codex", NoChat, "none low medium high xhigh"),
    ("gpt-5.2", Always, "none low medium high xhigh"),
    ("gpt-5.1-codex", NoChat, "low medium high"),
    ("gpt-5.1", Always, "none low medium high"),
    ("gpt-5", Always, "minimal low medium high"),
    ("o3", Always, "low medium high"),
    ("gpt-4", Always, ""),
];

const SAMPLING: [&str; 6] =
    ["temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "logit_bias"];

pub(super) fn check(request: &Request, body: &Value) -> Checked {
    let model = text(body, "model");
    let known = MODELS.iter().find(|(name, ..)| model.starts_with(name));
    let Some((_, chat_tools, efforts)) = known else {
        let message =
            &format!("The model `{model}` does not exist or you do not have access to it.");
        return Err(Refusal { status: 404, ..refused(message, "model", Some("model_not_found")) });
    };
    let is_reasoning = !efforts.is_empty();
    if let Some(key) = SAMPLING.iter().find(|key| is_reasoning && !body[**key].is_null()) {
        let message = &format!("Unsupported parameter: '{key}' is not supported with this model.");
        return Err(refused(message, key, Some("unsupported_parameter")));
    }
    if request.path.ends_with("/responses") {
        return responses(body, model, efforts);
    }
    chat(body, model, *chat_tools, efforts)?;
    Ok(Vec::new())
}

fn takes(efforts: &str, effort: &Value, model: &str, param: &str) -> Result<(), Refusal> {
    let Some(effort) = effort.as_str() else { return Ok(()) };
    if efforts.split(' ').any(|it| it == effort) {
        return Ok(());
    }
    let message =
        &format!("Unsupported value: '{effort}' is not supported with the '{model}' model.");
    Err(refused(message, param, Some("unsupported_value")))
}

fn chat(body: &Value, model: &str, tools: ChatTools, efforts: &str) -> Result<(), Refusal> {
    let effort = &body["reasoning_effort"];
    if tools == NoChat {
        let message = "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use v1/responses?";
        return Err(Refusal { status: 404, ..refused(message, "model", None) });
    }
    let is_refused = match tools {
        Always => false,
        WithoutEffort => !effort.is_null(),
        EffortNone => effort != "none",
        Never | NoChat => true,
    };
    if is_refused && !list(&body["tools"]).is_empty() {
        let message = &format!(
            "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. Please use /v1/responses instead."
        );
        return Err(refused(message, "reasoning_effort", None));
    }
    takes(efforts, effort, model, "reasoning_effort")?;
    if !efforts.is_empty() && !body["max_tokens"].is_null() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        return Err(refused(message, "max_tokens", Some("unsupported_parameter")));
    }
    paired(body)
}

/// Every call has its result right behind its message.
pub(super) fn paired(body: &Value) -> Result<(), Refusal> {
    let mut open: Vec<&str> = Vec::new();
    for message in list(&body["messages"]) {
        if message["role"] == "tool" {
            let id = text(message, "tool_call_id");
            let Some(place) = open.iter().position(|it| *it == id) else {
                let message = "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.";
                return Err(refused(message, "messages", None));
            };
            open.remove(place);
            continue;
        }
        if !open.is_empty() {
            break;
        }
        open.extend(list(&message["tool_calls"]).iter().map(|call| text(call, "id")));
    }
    if open.is_empty() {
        return Ok(());
    }
    let message = &format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    );
    Err(refused(message, "messages", None))
}

/// The fields of a request to Responses.
const FIELDS: [&str; 13] = [
    "model",
    "input",
    "instructions",
    "stream",
    "store",
    "include",
    "reasoning",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "prompt_cache_key",
    "text",
    "service_tier",
];

fn fields_fit(body: &Value) -> Result<(), Refusal> {
    if !body["response_format"].is_null() {
        let message = "Unsupported parameter: 'response_format'. In the Responses API, this parameter has moved to 'text.format'.";
        return Err(refused(message, "response_format", Some("unsupported_parameter")));
    }
    let keys = || body.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    if let Some(key) = keys().find(|key| !FIELDS.contains(key)) {
        let message = &format!("Unknown parameter: '{key}'.");
        return Err(refused(message, key, Some("unknown_parameter")));
    }
    if list(&body["tools"]).iter().any(|tool| !tool["name"].is_string()) {
        let message = "Missing required parameter: 'tools[0].name'.";
        return Err(refused(message, "tools[0].name", Some("missing_required_parameter")));
    }
    let mut before = &Value::Null;
    for item in list(&body["input"]) {
        let kind = text(item, "type");
        let is_of_model =
            kind == "function_call" || kind == "message" && item["role"] == "assistant";
        if is_of_model && item["id"].is_string() && before["type"] != "reasoning" {
            let message = &format!(
                "Item '{}' of type '{kind}' was provided without its required 'reasoning' item.",
                text(item, "id")
            );
            return Err(refused(message, "input", None));
        }
        before = item;
    }
    Ok(())
}

fn responses(body: &Value, model: &str, efforts: &str) -> Checked {
    fields_fit(body)?;
    takes(efforts, &body["reasoning"]["effort"], model, "reasoning.effort")?;
    let is_reasoning = !efforts.is_empty();
    if !is_reasoning && !body["reasoning"]["summary"].is_null() {
        let message =
            "Unsupported parameter: 'reasoning.summary' is not supported with this model.";
        return Err(refused(message, "reasoning.summary", Some("unsupported_parameter")));
    }
    if body["store"] != false {
        return Err(refused("this fake stores nothing", "store", None));
    }
    if let Some(tool) = list(&body["tools"]).iter().find(|tool| tool["strict"] != false) {
        let message = &format!(
            "Invalid schema for function '{}': 'required' is required to be supplied and to be an array including every key in properties.",
            text(tool, "name")
        );
        return Err(refused(message, "tools[0].parameters", Some("invalid_function_parameters")));
    }
    let mut prefix = format!("{}{}", body["tools"], body["instructions"]);
    let mut calls: Vec<&str> = Vec::new();
    let items = list(&body["input"]);
    for (place, item) in items.iter().enumerate() {
        match item["type"].as_str() {
            Some("reasoning") => reasoning(item, items.get(place + 1), model, &prefix)?,
            Some("function_call") => {
                calls.push(text(item, "call_id"));
                if !item["arguments"].is_string() {
                    let message =
                        &format!("Invalid type for 'input[{place}].arguments': expected a string.");
                    return Err(refused(message, "input", Some("invalid_type")));
                }
            }
            Some("function_call_output") => {
                let id = text(item, "call_id");
                let Some(place) = calls.iter().position(|call| *call == id) else {
                    let message =
                        &format!("No tool call found for function call output with call_id {id}.");
                    return Err(refused(message, "input", None));
                };
                calls.remove(place);
            }
            _ => {}
        }
        if item["type"] != "reasoning" {
            prefix.push_str(&shape(item));
        }
    }
    if let Some(id) = calls.first() {
        let message = &format!("No tool output found for function call {id}.");
        return Err(refused(message, "input", None));
    }
    let thinks = is_reasoning && body["reasoning"]["effort"] != "none";
    Ok(if thinks { vec![sealed("Hm", model, &prefix)] } else { Vec::new() })
}

/// What counts of an item for the signatures behind it.
fn shape(item: &Value) -> String {
    let keys = ["role", "content", "call_id", "name", "arguments", "output"];
    let mut shape: Vec<_> = keys.map(|key| item[key].to_string()).into();
    if let Some(part) = list(&item["content"]).first() {
        shape[1] = part["text"].to_string();
    }
    shape.concat()
}

fn reasoning(item: &Value, next: Option<&Value>, model: &str, prefix: &str) -> Result<(), Refusal> {
    let id = text(item, "id");
    let Some(encrypted) = item["encrypted_content"].as_str() else {
        let message = &format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
        );
        return Err(Refusal { status: 404, ..refused(message, "input", None) });
    };
    let follows = next.and_then(|next| next["type"].as_str());
    if !matches!(follows, Some("function_call" | "message" | "reasoning")) {
        let message = &format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        );
        return Err(refused(message, "input", None));
    }
    let summary = list(&item["summary"]).iter().map(|part| text(part, "text")).collect::<String>();
    // Later models drop it in silence where the conversation has changed: here that is a mistake.
    if encrypted != seal(&summary, model, prefix) || !id.starts_with("rs_") {
        let message = &format!(
            "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted or parsed."
        );
        return Err(refused(message, "input", Some("invalid_encrypted_content")));
    }
    Ok(())
}
