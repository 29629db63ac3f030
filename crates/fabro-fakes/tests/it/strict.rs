//! What strict servers refuse, and how they say it.

use fabro_fakes::{Response, Server, Vendor, strict};
use serde_json::{Value, json};

use crate::post;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// The status, and the text or message of the answer.
async fn answer(vendor: Vendor, path: &str, body: &Value) -> String {
    let server = Server::answering(strict(vendor, |_| Response::text("ok"))).await.unwrap();
    let answer = post(&server, path, &body.to_string()).await;
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let message = ["/error/message", "/error", "/message/detail/0/type", "/message"];
    let message = message.iter().find_map(|place| body.pointer(place));
    match message.and_then(Value::as_str) {
        Some(message) if status != "200" => {
            format!("{status} {message:.110}").trim_end().to_owned()
        }
        _ => status,
    }
}

async fn lines(cases: &[(Vendor, &str, Value)]) -> String {
    let mut lines = Vec::new();
    for (vendor, path, body) in cases {
        lines.push(answer(*vendor, path, body).await);
    }
    lines.join("\n")
}

/// A body with other fields.
fn with(mut body: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key.as_str()] = value.clone();
    }
    body
}

#[tokio::test]
async fn openai_and_its_models() {
    let function = json!({"type": "function", "function": {"name": "f"}});
    let chat = |model: &str, more: Value| {
        let body = json!({"model": model, "messages": [], "tools": [function]});
        (Vendor::OpenAi, CHAT, with(body, &more))
    };
    let reasoning =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": ""});
    let responses = |input: Value, more: Value| {
        let body = json!({"model": "gpt-6.2-sol", "store": false, "input": input});
        (Vendor::OpenAi, RESPONSES, with(body, &more))
    };
    let none = || json!({});
    insta::assert_snapshot!(lines(&[
        chat("gpt-6.2-sol", none()),
        chat("gpt-6-sol", none()),
        chat("gpt-6-sol", json!({"reasoning_effort": "none"})),
        chat("gpt-5.4", json!({"reasoning_effort": "low"})),
        chat("gpt-5.3-codex", none()),
        chat("gpt-5.2", json!({"max_tokens": 1})),
        chat("gpt-5.2", json!({"temperature": 0})),
        chat("gpt-5.2", json!({"reasoning_effort": "max"})),
        chat("gpt-4.1", json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]})),
        chat("gpt-9", none()),
        responses(json!([call, output]), none()),
        responses(json!([call]), none()),
        responses(json!([output]), none()),
        responses(json!([reasoning]), none()),
        responses(json!([reasoning, call, output]), none()),
        responses(json!([{"type": "reasoning", "id": "rs_1", "summary": []}, call, output]), none()),
        responses(json!([]), json!({"reasoning": {"effort": "none"}})),
        responses(json!([]), json!({"tools": [{"type": "function", "name": "f"}]})),
        responses(json!([]), json!({"tools": [function]})),
        responses(json!([]), json!({"max_tokens": 1})),
        responses(json!([]), json!({"response_format": {"type": "json_object"}})),
        responses(json!([with(call.clone(), &json!({"id": "fc_1"})), output]), none()),
    ]).await, @r"
    400 Function tools with reasoning_effort are not supported for gpt-6.2-sol in /v1/chat/completions. Please use /v1
    400 Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions. Please use /v1/r
    200
    400 Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. Please use /v1/res
    404 This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use v1/re
    400 Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.
    400 Unsupported parameter: 'temperature' is not supported with this model.
    400 Unsupported value: 'max' is not supported with the 'gpt-5.2' model.
    400 An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. Th
    404 The model `gpt-9` does not exist or you do not have access to it.
    200
    400 No tool output found for function call c.
    400 No tool call found for function call output with call_id c.
    400 Item 'rs_1' of type 'reasoning' was provided without its required following item.
    400 The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted or
    404 Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with `store` se
    400 Unsupported value: 'none' is not supported with the 'gpt-6.2-sol' model.
    400 Invalid schema for function 'f': 'required' is required to be supplied and to be an array including every key
    400 Missing required parameter: 'tools[0].name'.
    400 Unknown parameter: 'max_tokens'.
    400 Unsupported parameter: 'response_format'. In the Responses API, this parameter has moved to 'text.format'.
    400 Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item.
    ");
}

#[tokio::test]
async fn anthropic_and_its_models() {
    let server = |model: &str, more: Value| {
        let body = json!({"model": model, "max_tokens": 2000, "messages": [{"role": "user", "content": "a"}]});
        (Vendor::Anthropic, MESSAGES, with(body, &more))
    };
    let tool = json!([{"name": "f", "input_schema": {}}]);
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": ""});
    let thought = json!({"type": "thinking", "thinking": "", "signature": "sealed:claude-fable-5-2:0:cbf29ce484222325"});
    let user = json!({"role": "user", "content": "a"});
    let text = json!({"type": "text", "text": "b"});
    let answer = |blocks: Value| json!({"role": "assistant", "content": blocks});
    let marked = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
    let with_format = |schema: Value| json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}});
    let named = |name: &str| json!({"tools": [{"name": name, "input_schema": {}}]});
    insta::assert_snapshot!(lines(&[
        server("claude-fable-5-2", json!({"thinking": {"type": "disabled"}})),
        server("claude-opus-5-5", json!({"thinking": {"type": "enabled", "budget_tokens": 1024}})),
        server("claude-sonnet-5-5", json!({"thinking": {"type": "between_tools"}})),
        server("claude-sonnet-4-5", json!({"thinking": {"type": "enabled", "budget_tokens": 4000}})),
        server("claude-sonnet-4-5", json!({"output_config": {"effort": "low"}})),
        server("claude-sonnet-4-6", json!({"output_config": {"effort": "xhigh"}})),
        server("claude-opus-5", json!({"temperature": 1})),
        server("claude-opus-5", json!({"messages": [user, call, {"role": "user", "content": [result]}]})),
        server("claude-opus-5", json!({"tools": tool, "messages": [user, call, user]})),
        server("claude-opus-5", json!({"tools": tool, "messages": [user, call, {"role": "user", "content": [text, result]}]})),
        server("claude-opus-5", json!({"messages": [user, answer(json!([text]))]})),
        server("claude-opus-5", json!({"messages": [{"role": "user", "content": " "}]})),
        server("claude-fable-5-2", json!({"messages": [user, answer(json!([thought, text])), user]})),
        server("claude-opus-5", json!({"messages": [user, answer(json!([thought, text])), user]})),
        server("claude-opus-5", json!({"messages": [user, answer(json!([text, thought])), user]})),
        server("claude-sonnet-4-5", json!({"tools": tool, "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [user, call, {"role": "user", "content": [result]}]})),
        server("claude-opus-5", json!({"max_tokens": 200_000})),
        server("claude-sonnet-4-5", json!({"max_tokens": 100_000})),
        server("claude-opus-5", json!({"anthropic_version": "vertex-2023-10-16"})),
        server("claude-opus-5", json!({"system": [marked, marked, marked, marked, marked]})),
        server("claude-opus-5", json!({"system": [marked, marked, marked, marked]})),
        server("claude-opus-5-5", json!({"tool_choice": {"type": "any"}})),
        server("claude-opus-5", named("a.b")),
        server("claude-opus-5", with_format(json!({"type": "object", "properties": {}}))),
        server("claude-opus-5", with_format(json!({"type": "integer", "minimum": 1}))),
        server("claude-opus-5", with_format(json!({"$ref": "#"}))),
        (Vendor::Anthropic, "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-5:rawPredict",
            json!({"max_tokens": 1, "messages": [user]})),
        (Vendor::Anthropic, "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-5:rawPredict",
            json!({"anthropic_version": "vertex-2023-10-16", "max_tokens": 1, "messages": [user]})),
    ]).await, @r#"
    400 thinking.type: "disabled" is not supported for this model.
    400 thinking.type: "enabled" is not supported for this model.
    200
    400 `max_tokens` must be greater than `thinking.budget_tokens`.
    400 output_config.effort: 'low' is not supported by this model
    400 output_config.effort: 'xhigh' is not supported by this model
    400 temperature: Extra inputs are not permitted
    400 Requests which include `tool_use` or `tool_result` blocks must define tools.
    400 messages: `tool_use` ids were found without `tool_result` blocks immediately after: c. Each `tool_use` block m
    400 messages: unexpected `tool_use_id` found in `tool_result` blocks: c. Each `tool_result` block must have a corr
    400 This model does not support assistant message prefill. The conversation must end with a user message.
    400 messages: text content blocks must be non-empty
    400 messages: Invalid `signature` in `thinking` block. The block is bound to a different conversation.
    200
    400 messages: The final block in an assistant message cannot be `thinking`.
    400 messages: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a fina
    400 max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-5
    400 max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5
    400 anthropic_version: Extra inputs are not permitted
    400 A maximum of 4 blocks with cache_control may be provided. Found 5.
    200
    400 tool_choice: type "tool" and "any" are not supported for this model.
    400 tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'
    400 output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false
    400 output_config.format.schema: For '"integer"' type, property 'minimum' is not supported
    400 output_config.format.schema: external and recursive references are not supported
    400 anthropic_version: Field required
    200
    "#);
}

#[tokio::test]
async fn gemini() {
    let gemini = |model: &str, body: Value| {
        let path = format!("/v1beta/models/{model}:generateContent");
        (Vendor::Gemini, path, body)
    };
    let user = json!({"role": "user", "parts": [{"text": "a"}]});
    let call =
        json!({"role": "model", "parts": [{"functionCall": {"name": "f", "id": "c", "args": {}}}]});
    let result = |id: &str| {
        let response = json!({"name": "f", "id": id, "response": {}});
        json!({"role": "user", "parts": [{"functionResponse": response}]})
    };
    let thinking = |key: &str, value: Value| json!({"contents": [user], "generationConfig": {"thinkingConfig": {key: value}}});
    let cases = [
        gemini("gemini-4-argon", thinking("thinkingBudget", json!(1000))),
        gemini("gemini-4-argon", thinking("thinkingLevel", json!("XHIGH"))),
        gemini("gemini-4-neon", thinking("thinkingLevel", json!("XHIGH"))),
        gemini("gemini-2.5-pro", thinking("thinkingLevel", json!("LOW"))),
        gemini("gemini-4-argon", json!({"contents": [user, call, result("c")]})),
        gemini("gemini-2.5-pro", json!({"contents": [user, call, result("c")]})),
        gemini("gemini-2.5-pro", json!({"contents": [user, call, result("d")]})),
        gemini("gemini-2.5-pro", json!({"contents": [user, call, user]})),
        gemini(
            "gemini-4-argon",
            json!({"contents": [user], "generationConfig": {"maxOutputTokens": 70_000}}),
        ),
        gemini(
            "gemini-4-argon",
            json!({"contents": [user], "generationConfig": {"presencePenalty": 1}}),
        ),
        gemini(
            "gemini-4-argon",
            json!({"contents": [user], "tools": [{"functionDeclarations": [{"name": "1"}]}]}),
        ),
        gemini(
            "gemini-4-argon",
            json!({"contents": [user, {"role": "model", "parts": [{"text": "a"}]}]}),
        ),
        gemini("gemini-2.5-pro", json!({"contents": [call, result("c")]})),
        gemini(
            "gemini-2.5-pro",
            json!({"contents": [user], "tools": [{}], "generationConfig": {"responseMimeType": "application/json"}}),
        ),
    ];
    let cases: Vec<_> =
        cases.iter().map(|(vendor, path, body)| (*vendor, path.as_str(), body.clone())).collect();
    insta::assert_snapshot!(lines(&cases).await, @r#"
    400 Thinking budget is not supported for this model.
    400 Thinking level xhigh is not supported for this model.
    200
    400 Thinking level is not supported for this model.
    400 Function call "f" in the 1. content block is missing a thought_signature in functionCall parts.
    200
    400 Function response "f" does not match its call.
    400 Please ensure that the number of function response parts is equal to the number of function call parts of the
    400 Unable to submit request because it has a maxOutputTokens value that is out of the supported range: from 1 (in
    400 presencePenalty is not supported for this model.
    400 Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), undersco
    400 The last content must not be of the role `model`.
    400 Please ensure that function call turn comes immediately after a user turn or after a function response turn.
    400 Function calling with a response mime type: 'application/json' is unsupported
    "#);
}

#[tokio::test]
async fn compatible_servers() {
    let chat = |vendor: Vendor, body: Value| (vendor, CHAT, body);
    let both = || json!({"tools": [{}], "response_format": {"type": "json_schema"}});
    let answer = |more: Value| json!({"tools": [{}], "messages": [with(json!({"role": "assistant"}), &more)]});
    let calls = json!([{"id": "call_1"}]);
    let compatible = [
        chat(Vendor::DeepSeek, answer(json!({"content": "a"}))),
        chat(Vendor::DeepSeek, both()),
        chat(Vendor::Groq, both()),
        chat(Vendor::Groq, answer(json!({"content": "a", "reasoning_content": "a"}))),
        chat(Vendor::Mistral, json!({"stream_options": {}})),
        chat(Vendor::Mistral, answer(json!({"tool_calls": calls}))),
        chat(Vendor::Cerebras, both()),
        chat(Vendor::LlamaCpp, both()),
        chat(Vendor::LmStudio, json!({"response_format": {"type": "json_object"}})),
        chat(Vendor::Ollama, both()),
        chat(Vendor::Qwen, json!({"stream": false})),
        chat(Vendor::Qwen, json!({"stream": true})),
        chat(Vendor::GeminiCompatible, answer(json!({"tool_calls": calls}))),
        chat(
            Vendor::OpenRouter,
            answer(
                json!({"content": "a", "reasoning_details": [{"text": "Hm", "signature": "x"}]}),
            ),
        ),
        chat(Vendor::Moonshot, answer(json!({"tool_calls": calls}))),
        chat(Vendor::XAi, json!({"reasoning_effort": "none"})),
    ];
    insta::assert_snapshot!(lines(&compatible).await, @r#"
    400 The `reasoning_content` in the thinking mode must be passed back to the API.
    400 This response_format type is unavailable now
    400 json mode cannot be combined with tool/function calling
    400 'messages.0' : for 'role:assistant' the following must be satisfied[('messages.0' : property 'reasoning_conten
    422 extra_forbidden
    400 Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.
    400 "tools" is incompatible with "response_format"
    400 Cannot use custom grammar constraints with tools.
    400 'response_format.type' must be 'json_schema' or 'text'
    200
    400 This model only support stream mode, please enable the stream parameter to access the model.
    200
    400 Function call null in the 0. content block is missing a thought_signature.
    400 Provider returned error
    400 thinking is enabled but reasoning_content is missing in assistant tool call message at index 0
    400 This model does not support `reasoning_effort` value `none`.
    "#);
}
