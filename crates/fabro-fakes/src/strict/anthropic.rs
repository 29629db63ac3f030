use serde_json::{Value, json};

use super::{Checked, Refusal, list, seal, sealed, text};
use crate::Request;
use crate::wire::is_vertex;

/// How a model thinks.
#[derive(Clone, Copy, PartialEq)]
enum Thinking {
    AlwaysOn,
    /// `between_tools` in the place of `disabled`.
    BetweenTools,
    Adaptive,
    OnRequest,
    OnRequestOrBudget,
    Budget,
    Never,
}

use Thinking::{Adaptive, AlwaysOn, BetweenTools, Budget, Never, OnRequest, OnRequestOrBudget};

const ALL: &str = "low medium high xhigh max";

/// Parts of names, the most specific first: thinking, efforts, whether signatures are bound to what
/// comes before them.
const MODELS: [(&str, Thinking, &str, bool); 14] = [
    ("fable-5-", AlwaysOn, ALL, true),
    ("mythos-5-", AlwaysOn, ALL, true),
    ("fable-5", AlwaysOn, ALL, false),
    ("opus-5-5", AlwaysOn, ALL, true),
    ("sonnet-5-5", BetweenTools, ALL, true),
    ("haiku-5-5", Adaptive, ALL, false),
    ("opus-5", Adaptive, ALL, false),
    ("sonnet-5", Adaptive, ALL, false),
    ("opus-4-8", OnRequest, ALL, false),
    ("opus-4-7", OnRequest, ALL, false),
    ("4-6", OnRequestOrBudget, "low medium high max", false),
    ("opus-4-5", Budget, "low medium high", false),
    ("4-5", Budget, "", false),
    ("claude-3", Never, "", false),
];

/// The fields of a request.
const FIELDS: [&str; 15] = [
    "anthropic_version",
    "model",
    "messages",
    "max_tokens",
    "stream",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "speed",
    "service_tier",
    "stop_sequences",
    "metadata",
    "cache_control",
];

/// How many properties of a schema need not be there.
const MOST_OPTIONAL: usize = 24;

/// How many marks of the cache a request may have.
const MOST_MARKS: usize = 4;

pub(super) fn check(request: &Request, body: &Value) -> Checked {
    let is_vertex = is_vertex(&request.path);
    let path = request.path.rsplit('/').next().unwrap_or_default();
    let of_path = path.split(':').next().unwrap_or_default();
    let model = if is_vertex { of_path } else { text(body, "model") };
    let known = MODELS.iter().find(|(name, ..)| model.contains(name));
    let Some((_, mode, efforts, is_bound)) = known else {
        return Err(refused(404, "not_found_error", &format!("model: {model}")));
    };
    if is_vertex && body["anthropic_version"] != "vertex-2023-10-16" {
        return Err(invalid("anthropic_version: Field required"));
    }
    if request.header("anthropic-version").is_none() {
        return Err(invalid("anthropic-version: header is required"));
    }
    let keys = || body.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let place = if is_vertex { "model" } else { "anthropic_version" };
    if let Some(key) = keys().find(|key| !FIELDS.contains(key) || *key == place) {
        return Err(invalid(format!("{key}: Extra inputs are not permitted")));
    }
    speed_fits(body, model)?;
    let Some(max_tokens) = body["max_tokens"].as_u64() else {
        return Err(invalid("max_tokens: Field required"));
    };
    let most = if model.contains("4-5") { 64_000 } else { 128_000 };
    if max_tokens > most {
        return Err(invalid(format!(
            "max_tokens: {max_tokens} > {most}, which is the maximum allowed number of output tokens for {model}"
        )));
    }
    tools_fit(body, *mode, *is_bound)?;
    format_fits(&body["output_config"]["format"])?;
    marks_fit(body)?;
    thinking_fits(body, *mode, max_tokens)?;
    if let Some(effort) = body["output_config"]["effort"].as_str()
        && !efforts.split(' ').any(|it| it == effort)
    {
        return Err(invalid(format!(
            "output_config.effort: '{effort}' is not supported by this model"
        )));
    }
    let prefix = messages_fit(body, model, *is_bound)?;
    let thinking = text(&body["thinking"], "type");
    let thinks = match mode {
        AlwaysOn | BetweenTools | Adaptive => thinking != "disabled",
        OnRequest | OnRequestOrBudget | Budget => matches!(thinking, "adaptive" | "enabled"),
        Never => false,
    };
    let shown = if body["thinking"]["display"] == "summarized" { "Hm" } else { "" };
    Ok(if thinks { vec![sealed(shown, model, &prefix)] } else { Vec::new() })
}

fn speed_fits(body: &Value, model: &str) -> Result<(), Refusal> {
    if !body["speed"].is_null() && !model.contains("opus-5-5") {
        return Err(invalid("speed: \"fast\" is not supported for this model"));
    }
    let tier = body["service_tier"].as_str().unwrap_or("auto");
    if !matches!(tier, "auto" | "standard_only") {
        return Err(invalid("service_tier: Input should be 'auto' or 'standard_only'"));
    }
    Ok(())
}

fn tools_fit(body: &Value, mode: Thinking, is_bound: bool) -> Result<(), Refusal> {
    for (place, tool) in list(&body["tools"]).iter().enumerate() {
        if !is_name(text(tool, "name"), 64) {
            return Err(invalid(format!(
                "tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
            )));
        }
    }
    let choice = text(&body["tool_choice"], "type");
    if !matches!(choice, "any" | "tool") {
        return Ok(());
    }
    if is_bound {
        return Err(invalid(
            "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
        ));
    }
    if mode == Budget && body["thinking"]["type"] == "enabled" {
        return Err(invalid("Thinking may not be enabled when tool_choice forces tool use."));
    }
    Ok(())
}

/// Letters, digits, `_` and `-`.
fn is_name(name: &str, most: usize) -> bool {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    (1..=most).contains(&name.len()) && name.chars().all(is_allowed)
}

/// What the schema of an answer may not have.
fn format_fits(format: &Value) -> Result<(), Refusal> {
    const REFUSED: [&str; 9] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
    ];
    let refused = |what: &str| Err(invalid(format!("output_config.format.schema: {what}")));
    if format.is_null() {
        return Ok(());
    }
    let mut open = vec![&format["schema"]];
    let mut optional = 0;
    while let Some(schema) = open.pop() {
        if let Some(map) = schema.as_object() {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let required = list(&schema["required"]);
            optional += properties.filter(|(name, _)| !required.contains(&json!(name))).count();
            if optional > MOST_OPTIONAL {
                return refused(&format!("{optional} optional parameters, at most 24"));
            }
            if let Some(key) = REFUSED.iter().find(|key| map.contains_key(**key)) {
                return refused(&format!(
                    "For '{}' type, property '{key}' is not supported",
                    schema["type"]
                ));
            }
            if schema["type"] == "object" && schema["additionalProperties"] != false {
                return refused(
                    "For 'object' type, 'additionalProperties' must be explicitly set to false",
                );
            }
            if !schema["$ref"].is_null() {
                return refused("external and recursive references are not supported");
            }
            open.extend(map.values().filter(|value| value.is_object()));
            open.extend(map.values().filter_map(Value::as_array).flatten());
        }
    }
    Ok(())
}

fn marks_fit(body: &Value) -> Result<(), Refusal> {
    let marks = body.to_string().matches("\"cache_control\":{").count();
    if marks > MOST_MARKS {
        return Err(invalid(format!(
            "A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {marks}."
        )));
    }
    Ok(())
}

fn refused(status: u16, kind: &str, message: &str) -> Refusal {
    let error = json!({"type": kind, "message": message});
    Refusal { status, body: json!({"type": "error", "error": error}).to_string() }
}

fn invalid(message: impl Into<String>) -> Refusal {
    refused(400, "invalid_request_error", &message.into())
}

fn thinking_fits(body: &Value, mode: Thinking, max_tokens: u64) -> Result<(), Refusal> {
    let Some(thinking) = body["thinking"]["type"].as_str() else { return Ok(()) };
    let fits = match thinking {
        "adaptive" => !matches!(mode, Budget | Never),
        "disabled" => !matches!(mode, AlwaysOn | BetweenTools),
        "between_tools" => mode == BetweenTools,
        "enabled" => matches!(mode, Budget | OnRequestOrBudget),
        _ => false,
    };
    if !fits {
        return Err(invalid(format!(
            "thinking.type: \"{thinking}\" is not supported for this model."
        )));
    }
    let effort = text(&body["output_config"], "effort");
    if matches!(thinking, "disabled" | "between_tools") && matches!(effort, "xhigh" | "max") {
        return Err(invalid(format!(
            "thinking.type: \"{thinking}\" is not supported at effort {effort}"
        )));
    }
    if thinking == "enabled" {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
        if budget < 1024 {
            return Err(invalid(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
            ));
        }
        if budget >= max_tokens {
            return Err(invalid("`max_tokens` must be greater than `thinking.budget_tokens`."));
        }
        return thoughts_begin(body);
    }
    Ok(())
}

/// With a budget, the messages of the current turn begin with their thoughts.
fn thoughts_begin(body: &Value) -> Result<(), Refusal> {
    let messages = list(&body["messages"]);
    let is_turn = |message: &&Value| {
        message["role"] == "assistant"
            || list(&message["content"]).iter().any(|block| block["type"] == "tool_result")
    };
    let turn = messages.iter().rev().take_while(is_turn);
    for message in turn.filter(|message| message["role"] == "assistant") {
        let first = list(&message["content"]).first();
        if first.is_some_and(|first| first["type"] == "tool_use") {
            return Err(invalid(
                "messages: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.",
            ));
        }
    }
    Ok(())
}

/// The conversation as far as signatures are bound to it.
fn messages_fit(body: &Value, model: &str, is_bound: bool) -> Result<String, Refusal> {
    let mut prefix = format!("{}{}", plain(&body["system"]), plain(&body["tools"]));
    let mut open: Vec<&str> = Vec::new();
    let has_tools = !list(&body["tools"]).is_empty();
    for message in list(&body["messages"]) {
        let string = [json!({"type": "text", "text": message["content"]})];
        let blocks =
            if message["content"].is_string() { &string } else { list(&message["content"]) };
        prefix.push_str(text(message, "role"));
        let is_user = message["role"] == "user";
        let mut results = 0;
        for (place, block) in blocks.iter().enumerate() {
            match text(block, "type") {
                "text" if text(block, "text").trim().is_empty() => {
                    return Err(invalid("messages: text content blocks must be non-empty"));
                }
                "tool_use" | "tool_result" if !has_tools => {
                    return Err(invalid(
                        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
                    ));
                }
                "tool_use" if !is_name(text(block, "id"), usize::MAX) => {
                    return Err(invalid(
                        "messages: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
                    ));
                }
                "document" if !is_user => {
                    return Err(invalid(
                        "messages: document blocks are not permitted in assistant messages",
                    ));
                }
                "tool_result" => {
                    let id = text(block, "tool_use_id");
                    if place != results || !open.contains(&id) {
                        return Err(invalid(format!(
                            "messages: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                        )));
                    }
                    open.retain(|it| *it != id);
                    results += 1;
                }
                "thinking" => thought_fits(block, model, is_bound, &prefix)?,
                _ => {}
            }
            if !text(block, "type").ends_with("thinking") {
                prefix.push_str(&plain(block).to_string());
            }
        }
        if let (true, Some(id)) = (is_user, open.first()) {
            return Err(invalid(format!(
                "messages: `tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )));
        }
        // The message is of the request, or made here: its ids live as long as the body.
        if !is_user {
            let calls =
                list(&message["content"]).iter().filter(|block| block["type"] == "tool_use");
            open.extend(calls.map(|call| text(call, "id")));
            if blocks.last().is_some_and(|last| text(last, "type").ends_with("thinking")) {
                return Err(invalid(
                    "messages: The final block in an assistant message cannot be `thinking`.",
                ));
            }
        }
    }
    if list(&body["messages"]).last().is_some_and(|last| last["role"] == "assistant") {
        return Err(invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ));
    }
    Ok(prefix + "assistant")
}

fn thought_fits(block: &Value, model: &str, is_bound: bool, prefix: &str) -> Result<(), Refusal> {
    let signature = text(block, "signature");
    let is_own =
        signature.strip_prefix("sealed:").and_then(|it| it.split(':').next()) == Some(model);
    let expect = seal(text(block, "thinking"), model, prefix);
    let end = |text: &str| text.rsplit(':').next().map(str::to_owned);
    if !is_own {
        // A model drops what it cannot read.
        return Ok(());
    }
    if end(signature) != end(&expect) {
        return Err(invalid(
            "messages: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
        ));
    }
    if is_bound && signature != expect {
        return Err(invalid(
            "messages: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
        ));
    }
    Ok(())
}

/// Without the marks of the cache, which may move.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "cache_control");
            Value::Object(kept.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        // One text is the same as a list of it.
        other => other.clone(),
    }
}
