use serde_json::{Value, json};

use super::{Checked, Refusal, Vendor, list, openai, refused, seal, sealed, text};
use crate::Block;

/// The fields that any of these servers knows in a request.
const COMMON: [&str; 9] = [
    "model",
    "messages",
    "stream",
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "response_format",
];

pub(super) fn check(vendor: Vendor, body: &Value) -> Checked {
    let has_tools = !list(&body["tools"]).is_empty();
    let format = text(&body["response_format"], "type");
    for message in list(&body["messages"]) {
        if message["role"] == "developer" {
            return Err(refused("unknown role developer", "messages", None));
        }
        let is_empty = matches!(&message["content"], Value::Null) || message["content"] == "";
        if message["role"] == "assistant" && is_empty && list(&message["tool_calls"]).is_empty() {
            return Err(refused(
                "Assistant message must have either content or tool_calls, but not none.",
                "messages",
                None,
            ));
        }
    }
    match vendor {
        Vendor::DeepSeek => deepseek(body, has_tools, format)?,
        Vendor::Groq => {
            if has_tools && !format.is_empty() {
                return Err(refused(
                    "json mode cannot be combined with tool/function calling",
                    "response_format",
                    None,
                ));
            }
            unknown_field(body, "reasoning_content", |place, field| {
                let message = &format!(
                    "'messages.{place}' : for 'role:assistant' the following must be satisfied[('messages.{place}' : property '{field}' is unsupported)]"
                );
                refused(message, "messages", None)
            })?;
        }
        Vendor::Mistral => mistral(body)?,
        Vendor::Cerebras if has_tools && !format.is_empty() => {
            let body = json!({"message": "\"tools\" is incompatible with \"response_format\"",
                    "type": "invalid_request_error", "param": "validation_error", "code": "wrong_api_format"});
            return Err(Refusal { status: 400, body: body.to_string() });
        }
        Vendor::LlamaCpp => {
            let places = list(&body["messages"]).iter().enumerate();
            if places.skip(1).any(|(_, message)| message["role"] == "system") {
                return Err(refused("System message must be at the beginning.", "messages", None));
            }
            if has_tools && format == "json_schema" {
                return Err(refused(
                    "Cannot use custom grammar constraints with tools.",
                    "tools",
                    None,
                ));
            }
        }
        Vendor::LmStudio => {
            let message = if format == "json_object" {
                Some("'response_format.type' must be 'json_schema' or 'text'")
            } else if body["tool_choice"].is_object() {
                Some(
                    "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
                )
            } else {
                None
            };
            if let Some(message) = message {
                return Err(Refusal { status: 400, body: json!({"error": message}).to_string() });
            }
        }
        Vendor::Qwen if body["stream"] != true => {
            let message = "This model only support stream mode, please enable the stream parameter to access the model.";
            return Err(refused(message, "stream", None));
        }
        Vendor::GeminiCompatible => signed(list(&body["messages"]))?,
        Vendor::OpenRouter => details_fit(body)?,
        Vendor::Moonshot => moonshot(body)?,
        Vendor::XAi if body["reasoning_effort"] == "none" => {
            let message = "This model does not support `reasoning_effort` value `none`.";
            return Err(refused(message, "reasoning_effort", None));
        }
        _ => {}
    }
    openai::paired(body)?;
    if vendor == Vendor::OpenRouter {
        return Ok(vec![sealed("Hm", text(body, "model"), "")]);
    }
    let thought = Block::Thinking { text: "Hm".to_owned(), signature: None };
    let thinks = matches!(vendor, Vendor::DeepSeek | Vendor::LlamaCpp | Vendor::Moonshot);
    Ok(if thinks { vec![thought] } else { Vec::new() })
}

fn deepseek(body: &Value, has_tools: bool, format: &str) -> Result<(), Refusal> {
    if format == "json_schema" {
        return Err(refused(
            "This response_format type is unavailable now",
            "response_format",
            None,
        ));
    }
    let is_answer = |message: &&Value| message["role"] == "assistant";
    for message in list(&body["messages"]).iter().filter(is_answer) {
        if has_tools && !message["reasoning_content"].is_string() {
            let message =
                "The `reasoning_content` in the thinking mode must be passed back to the API.";
            return Err(refused(message, "messages", None));
        }
        if !list(&message["tool_calls"]).is_empty() && message["content"] == "" {
            return Err(refused("content must be null with tool calls", "messages", None));
        }
    }
    Ok(())
}

/// Details of reasoning come back as they were sent, in one piece.
fn details_fit(body: &Value) -> Result<(), Refusal> {
    for message in list(&body["messages"]) {
        for detail in list(&message["reasoning_details"]) {
            let expect = seal(text(detail, "text"), text(body, "model"), "");
            if text(detail, "signature") != expect {
                let raw = "messages.1.content.0: Invalid `signature` in `thinking` block";
                let error = json!({"message": "Provider returned error", "code": 400,
                    "metadata": {"raw": raw, "provider_name": "Anthropic"}});
                return Err(Refusal { status: 400, body: json!({"error": error}).to_string() });
            }
        }
    }
    Ok(())
}

fn moonshot(body: &Value) -> Result<(), Refusal> {
    if body["tool_choice"] == "required" {
        let message = "tool_choice 'required' is incompatible with thinking enabled";
        return Err(refused(message, "tool_choice", None));
    }
    for (place, message) in list(&body["messages"]).iter().enumerate() {
        let calls = !list(&message["tool_calls"]).is_empty();
        if calls && !message["reasoning_content"].is_string() {
            let message = &format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {place}"
            );
            return Err(refused(message, "messages", None));
        }
    }
    Ok(())
}

/// The first call of each answer of the current turn has a signature.
fn signed(messages: &[Value]) -> Result<(), Refusal> {
    let turn = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    for (place, message) in messages.iter().enumerate().skip(turn) {
        let Some(call) = list(&message["tool_calls"]).first() else { continue };
        if text(&call["extra_content"]["google"], "thought_signature").is_empty() {
            let name = &call["function"]["name"];
            let message = format!(
                "Function call {name} in the {place}. content block is missing a thought_signature."
            );
            let error = json!({"code": 400, "status": "INVALID_ARGUMENT", "message": message});
            return Err(Refusal { status: 400, body: json!({"error": error}).to_string() });
        }
    }
    Ok(())
}

fn mistral(body: &Value) -> Result<(), Refusal> {
    let forbidden = |field: &str| {
        let detail = json!([{"type": "extra_forbidden", "loc": ["body", field],
            "msg": "Extra inputs are not permitted"}]);
        let body = json!({"object": "error", "message": {"detail": detail}, "type": "invalid_request_error"});
        Refusal { status: 422, body: body.to_string() }
    };
    let own = ["random_seed", "reasoning_effort", "parallel_tool_calls"];
    let is_known = |key: &&String| COMMON.contains(&key.as_str()) || own.contains(&key.as_str());
    if let Some(field) = body.as_object().and_then(|body| body.keys().find(|key| !is_known(key))) {
        return Err(forbidden(field));
    }
    unknown_field(body, "reasoning_content", |_, field| forbidden(field))?;
    let mut pairs = list(&body["messages"]).windows(2);
    if pairs.any(|pair| pair[0]["role"] == "tool" && pair[1]["role"] == "user") {
        return Err(refused("Unexpected role 'user' after role 'tool'", "messages", Some("3230")));
    }
    for message in list(&body["messages"]) {
        for call in list(&message["tool_calls"]) {
            let id = text(call, "id");
            if id.len() != 9 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Err(refused(
                    &format!(
                        "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
                    ),
                    "messages",
                    Some("3280"),
                ));
            }
        }
    }
    Ok(())
}

fn unknown_field(
    body: &Value,
    field: &str,
    refusal: impl Fn(usize, &str) -> Refusal,
) -> Result<(), Refusal> {
    let place = list(&body["messages"]).iter().position(|message| !message[field].is_null());
    place.map_or(Ok(()), |place| Err(refusal(place, field)))
}
