//! A request, from our terms to the provider's.

use std::sync::Arc;

use genai::adapter::AdapterKind;
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, JsonSpec, MessageContent,
    ReasoningEffort, Tool, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use serde_json::{Map, Value, json};

use std::time::Duration;

use super::address::{Address, headers};
use super::provider::chats;
use super::{Provider, ProviderKind, anthropic, invalid, names, schema};
use crate::{
    Content, Message, ModelError, ModelInfo, Reasoning, ReasoningStyle, Request, Role, ToolCall,
    ToolSpec,
};

pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
const STREAM_TIMEOUT: Duration = Duration::from_mins(5);

/// How long an event may take to be whole, and the beginning of an answer with the first one.
pub(super) fn longest_event(provider: &Provider) -> Duration {
    let begin = provider.request_timeout.unwrap_or(REQUEST_TIMEOUT);
    begin.saturating_add(provider.stream_timeout.unwrap_or(STREAM_TIMEOUT))
}

/// A request in the terms of the client.
pub(super) struct Call {
    pub(super) target: ServiceTarget,
    pub(super) messages: ChatRequest,
    pub(super) options: ChatOptions,
}

pub(super) fn call(
    provider: &Provider,
    address: &Address,
    model: &str,
    info: Option<&ModelInfo>,
    request: &Request,
) -> Result<Call, ModelError> {
    let kind = provider.kind;
    let request = &*names::fit(kind, request);
    let effort = effort(kind, info, request)?;
    let adapter = match kind {
        ProviderKind::Anthropic => AdapterKind::Anthropic,
        ProviderKind::OpenAi | ProviderKind::OpenAiCompatible => AdapterKind::OpenAI,
        ProviderKind::OpenAiResponses => AdapterKind::OpenAIResp,
        ProviderKind::Gemini => AdapterKind::Gemini,
    };
    let fast = request.speed.as_deref() == Some("fast");
    let url = address.url(kind, model);
    let target = ServiceTarget {
        endpoint: Endpoint::from_owned(url.clone()),
        // Own headers and the whole address: no key need be there, and nothing is guessed.
        auth: AuthData::RequestOverride { url, headers: headers(provider, fast) },
        model: ModelIden::new(adapter, unsuffixed(model, effort.is_some())),
    };
    let mut messages = ChatRequest::new(messages(kind, &request.messages));
    if kind != ProviderKind::Anthropic && !request.tools.is_empty() {
        messages = messages.with_tools(request.tools.iter().map(tool));
    }
    let options = options(provider, model, info, request, effort);
    Ok(Call { target, messages, options })
}

/// The client takes `-high` and the like off the end of a name, as a wish to think. Names are sent
/// as they are (see [`body`]); this keeps it from reading a wish into them.
fn unsuffixed(model: &str, explicit: bool) -> String {
    let suffix = model.rsplit('-').next().unwrap_or_default();
    let wish = !explicit && (ReasoningEffort::from_keyword(suffix).is_some() || suffix == "none");
    if wish { format!("{model}-") } else { model.to_owned() }
}

fn options(
    provider: &Provider,
    model: &str,
    info: Option<&ModelInfo>,
    request: &Request,
    effort: Option<ReasoningEffort>,
) -> ChatOptions {
    let kind = provider.kind;
    // The Responses API refuses to seal thoughts of models that have none.
    let thinks = info.and_then(|info| info.reasoning) != Some(ReasoningStyle::None);
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_reasoning_content(thinks)
        // Chat Completions' are taken from the wire, Anthropic's as they come.
        .with_capture_tool_calls(!chats(kind) && kind != ProviderKind::Anthropic)
        .with_stream_header_timeout(provider.request_timeout.unwrap_or(REQUEST_TIMEOUT))
        .with_stream_read_timeout(provider.stream_timeout.unwrap_or(STREAM_TIMEOUT))
        .with_extra_body(body(kind, model, info, request));
    options.reasoning_effort = effort;
    options.max_tokens = max_tokens(kind, info, request);
    if let Some(schema) = schema_in_options(kind, info, request) {
        options = options.with_response_format(JsonSpec::new("answer", schema));
    }
    if matches!(kind, ProviderKind::OpenAi | ProviderKind::OpenAiResponses)
        && provider.base_url.is_none()
    {
        // Requests of one conversation then meet where its beginning is cached.
        options = options.with_prompt_cache_key(format!("fabro-{}", request.origin.node));
    }
    options
}

fn max_tokens(kind: ProviderKind, info: Option<&ModelInfo>, request: &Request) -> Option<u32> {
    let most = info.and_then(|info| info.max_output_tokens);
    let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    match (request.max_tokens, most) {
        (Some(wanted), Some(most)) => Some(wanted.min(most)),
        // Anthropic has to be told one.
        (None, most) if kind == ProviderKind::Anthropic => most,
        (wanted, _) => wanted,
    }
}

/// How long to think; `None` where the model does not, or there is no room.
fn effort(
    kind: ProviderKind,
    info: Option<&ModelInfo>,
    request: &Request,
) -> Result<Option<ReasoningEffort>, ModelError> {
    let Some(word) = request.reasoning_effort.as_deref() else { return Ok(None) };
    let effort = ReasoningEffort::from_keyword(word).ok_or_else(|| {
        invalid(format!("reasoning effort `{word}` is not known: use `low`, `medium` or `high`"))
    })?;
    let style = info.and_then(|info| info.reasoning);
    if style == Some(ReasoningStyle::None) {
        return Ok(None);
    }
    if kind != ProviderKind::Anthropic || style == Some(ReasoningStyle::Effort) {
        return Ok(Some(effort));
    }
    // A budget of thinking: it has to be less than the whole answer, and it cannot be switched on
    // in the middle of a turn.
    if turn_began_without_thought(&request.messages) {
        return Ok(None);
    }
    let Some(most) = max_tokens(kind, info, request) else { return Ok(Some(effort)) };
    let fits = |effort: &ReasoningEffort| most > budget(effort);
    let lower = [effort, ReasoningEffort::Medium, ReasoningEffort::Low];
    Ok(lower.into_iter().find(fits))
}

/// What the client makes of an effort where the provider takes tokens.
fn budget(effort: &ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::Zero => 0,
        ReasoningEffort::Minimal | ReasoningEffort::Low => 1024,
        ReasoningEffort::Medium => 8000,
        ReasoningEffort::Budget(tokens) => *tokens,
        _ => 24_000,
    }
}

fn turn_began_without_thought(messages: &[Arc<Message>]) -> bool {
    let turn = &messages[turn_start(messages)..];
    let first = turn.iter().find(|message| message.role == Role::Assistant);
    first.is_some_and(|message| {
        !message.content.iter().any(|content| {
            matches!(content, Content::Reasoning(thought)
                if is_own(ProviderKind::Anthropic, thought)
                    && (thought.signature.is_some() || thought.redacted.is_some()))
        })
    })
}

/// Where the current turn begins: after the last message of the user.
fn turn_start(messages: &[Arc<Message>]) -> usize {
    messages.iter().rposition(|message| message.role == Role::User).map_or(0, |last| last + 1)
}

/// What the client has no option for, or gets wrong. It replaces what the client makes of it.
fn body(kind: ProviderKind, model: &str, info: Option<&ModelInfo>, request: &Request) -> Value {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| body.insert(key.to_owned(), value);
    if kind != ProviderKind::Gemini {
        put("model", model.into());
    }
    let schema = request.output_schema.as_deref().filter(|_| can_keep_to_schema(info));
    match kind {
        ProviderKind::Anthropic => {
            put("messages", anthropic::messages(&request.messages));
            if !request.tools.is_empty() {
                put("tools", anthropic_tools(&request.tools));
            }
            match request.speed.as_deref() {
                Some("fast") => drop(put("speed", "fast".into())),
                Some("standard") => drop(put("service_tier", "standard_only".into())),
                Some(tier) => drop(put("service_tier", tier.into())),
                None => {}
            }
        }
        ProviderKind::OpenAi | ProviderKind::OpenAiCompatible => {
            if let Some(schema) = schema {
                let format = json!({"type": "json_schema", "json_schema": schema::named(schema)});
                put("response_format", format);
            }
        }
        ProviderKind::OpenAiResponses => {
            if let Some(schema) = schema {
                let mut format = schema::named(schema);
                format["type"] = "json_schema".into();
                put("text", json!({"format": format}));
            }
        }
        ProviderKind::Gemini => {}
    }
    if chats(kind) || kind == ProviderKind::OpenAiResponses {
        let tier = match request.speed.as_deref() {
            Some("fast") => Some("priority"),
            Some("standard") => Some("default"),
            other => other,
        };
        tier.map(|tier| put("service_tier", tier.into()));
    }
    body.into()
}

fn can_keep_to_schema(info: Option<&ModelInfo>) -> bool {
    info.and_then(|info| info.output_schema) != Some(false)
}

/// The schema, where the client puts it into its place.
fn schema_in_options(
    kind: ProviderKind,
    info: Option<&ModelInfo>,
    request: &Request,
) -> Option<Value> {
    let schema = request.output_schema.as_deref().filter(|_| can_keep_to_schema(info))?;
    match kind {
        ProviderKind::Anthropic => schema::for_anthropic(schema),
        ProviderKind::Gemini if request.tools.is_empty() => Some(schema.clone()),
        _ => None,
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    Tool::new(spec.name.as_str())
        .with_description(description(spec))
        .with_schema((*spec.parameters).clone())
}

/// Some providers refuse a tool without one.
fn description(spec: &ToolSpec) -> &str {
    if spec.description.is_empty() { &spec.name } else { &spec.description }
}

/// Written here because the client takes some names for tools of Anthropic's own.
fn anthropic_tools(tools: &[ToolSpec]) -> Value {
    let last = tools.len() - 1;
    let tools = tools.iter().enumerate().map(|(index, spec)| {
        let mut tool = json!({
            "name": spec.name,
            "description": description(spec),
            "input_schema": *spec.parameters,
        });
        if index == last {
            tool["cache_control"] = json!({"type": "ephemeral"});
        }
        tool
    });
    tools.collect()
}

/// To Anthropic only those of the system: the others stand in the body.
fn messages(kind: ProviderKind, messages: &[Arc<Message>]) -> Vec<ChatMessage> {
    let anthropic = kind == ProviderKind::Anthropic;
    let turn = turn_start(messages);
    let mut out: Vec<(Role, Vec<ContentPart>)> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        if anthropic && message.role != Role::System {
            continue;
        }
        let parts = parts(kind, message, place >= turn);
        if parts.is_empty() && message.role != Role::User {
            continue;
        }
        // All results of a turn belong together; some servers take one message of the system only.
        let joins = message.role == Role::Tool || (message.role == Role::System && !anthropic);
        match out.last_mut().filter(|(role, _)| joins && *role == message.role) {
            Some((Role::System, earlier)) => {
                earlier.push(ContentPart::Text("\n\n".to_owned()));
                earlier.extend(parts);
            }
            Some((_, earlier)) => earlier.extend(parts),
            None => out.push((message.role, parts)),
        }
    }
    let mut out: Vec<_> = out.into_iter().map(|(role, parts)| chat_message(role, parts)).collect();
    // Anthropic may cache up to the end of what never changes.
    if let Some(last) = out.last_mut().filter(|_| anthropic) {
        last.options = Some(CacheControl::Ephemeral.into());
    }
    out
}

fn chat_message(role: Role, parts: Vec<ContentPart>) -> ChatMessage {
    match role {
        Role::System => {
            let texts = parts.iter().filter_map(ContentPart::as_text);
            ChatMessage::system(texts.collect::<String>())
        }
        Role::User => ChatMessage::user(MessageContent::from_parts(parts)),
        Role::Assistant => ChatMessage::assistant(MessageContent::from_parts(parts)),
        Role::Tool => ChatMessage::tool(MessageContent::from_parts(parts)),
    }
}

fn parts(kind: ProviderKind, message: &Message, in_turn: bool) -> Vec<ContentPart> {
    let mut parts = Vec::new();
    // Gemini's seals stand on the call that follows.
    let mut seal = None;
    for content in &message.content {
        match content {
            Content::Text { text } if text.is_empty() => {}
            Content::Text { text } => parts.push(ContentPart::Text(text.clone())),
            Content::Reasoning(thought) if is_own(kind, thought) => match kind {
                ProviderKind::Gemini => seal.clone_from(&thought.signature),
                _ => parts.extend(thought_part(kind, thought, in_turn)),
            },
            Content::Reasoning(_) => {}
            Content::ToolCall(call) => parts.push(call_part(call, seal.take())),
            Content::ToolResult { id, text, .. } => {
                parts.push(ContentPart::ToolResponse(ToolResponse::new(id, text)));
            }
        }
    }
    parts
}

pub(super) fn is_own(kind: ProviderKind, thought: &Reasoning) -> bool {
    thought.provider.as_deref().is_none_or(|provider| provider == kind.as_str())
}

fn thought_part(kind: ProviderKind, thought: &Reasoning, in_turn: bool) -> Option<ContentPart> {
    if kind == ProviderKind::OpenAiResponses {
        return thought.signature.clone().map(ContentPart::ThoughtSignature);
    }
    let said = in_turn && !thought.text.is_empty();
    said.then(|| ContentPart::ReasoningContent(thought.text.clone()))
}

fn call_part(call: &ToolCall, seal: Option<String>) -> ContentPart {
    ContentPart::ToolCall(genai::chat::ToolCall {
        call_id: call.id.clone(),
        fn_name: call.name.clone(),
        fn_arguments: input(call),
        thought_signatures: seal.map(|seal| vec![seal]),
    })
}

/// The arguments of a call. Providers take objects only; what the model wrote stays to be seen.
pub(super) fn input(call: &ToolCall) -> Value {
    if call.arguments.is_object() {
        call.arguments.clone()
    } else {
        json!({"invalid_arguments": call.arguments})
    }
}
