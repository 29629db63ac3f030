//! Request bodies of Anthropic's Messages API.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::providers::conversation::{EMPTY, arguments_object, description, grouped, system_texts};
use crate::providers::schema;
use crate::providers::wire::WireRequest;
use crate::{Content, Message, ReasoningEffort, Role, ThinkingMode, ToolSpec};

/// Anthropic requires a limit; this one where the catalog does not know the model.
const DEFAULT_MAX_TOKENS: u32 = 64_000;

/// The version of the interface on Vertex AI.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// The body of a request.
pub(in crate::providers) fn body(wire: &WireRequest<'_>) -> Value {
    let request = &*wire.request;
    let max_tokens = wire.max_tokens.or(wire.max_output_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
    let mut body = if wire.provider.is_vertex() {
        json!({"anthropic_version": VERTEX_VERSION})
    } else {
        json!({"model": wire.model})
    };
    body["stream"] = request.streams.into();
    let mark = cache_mark(wire.provider.long_cache);
    if let Some(system) = system(&request.messages, &mark) {
        body["system"] = system;
    }
    body["messages"] = messages(&request.messages, &mark);
    let thinking = thinking(wire, max_tokens);
    if let Some(thinking) = thinking.thinking {
        body["thinking"] = thinking;
    }
    if let Some(effort) = thinking.effort {
        body["output_config"]["effort"] = json!(effort);
    }
    if let Some(schema) = wire.output_schema().and_then(schema::for_anthropic) {
        body["output_config"]["format"] = json!({"type": "json_schema", "schema": schema});
    }
    body["max_tokens"] = max_tokens.into();
    if !request.tools.is_empty() {
        body["tools"] = tools(&request.tools, &mark);
    }
    match wire.speed {
        Some("fast") => body["speed"] = "fast".into(),
        Some("standard") => body["service_tier"] = "standard_only".into(),
        Some(tier) => body["service_tier"] = tier.into(),
        None => {}
    }
    body
}

/// The system's messages, one block each. Everything up to the last one may be cached.
fn system(messages: &[Arc<Message>], mark: &Value) -> Option<Value> {
    let blocks = system_texts(messages).map(|text| json!({"type": "text", "text": text}));
    let mut blocks: Vec<_> = blocks.collect();
    mark_cacheable(blocks.last_mut()?, mark);
    Some(blocks.into())
}

/// All messages but those of the system. Their content is always a list, as the mark of the cache
/// needs one and nothing else may change from request to request.
fn messages(messages: &[Arc<Message>], mark: &Value) -> Value {
    let mut grouped = alternating(grouped(messages, blocks));
    // The next turn begins with everything up to the last message, and this one with everything up to the one
    // before it: with many calls in a turn that is further back than the provider looks for by itself.
    let of_user = grouped.iter_mut().rev().filter(|(role, _)| *role != Role::Assistant);
    for (_, blocks) in of_user.take(2) {
        blocks.last_mut().into_iter().for_each(|block| mark_cacheable(block, mark));
    }
    let messages = grouped.into_iter().map(|(role, blocks)| {
        let role = if role == Role::Assistant { "assistant" } else { "user" };
        json!({"role": role, "content": blocks})
    });
    messages.collect()
}

/// What the user says after results is in their message, behind them.
fn alternating(grouped: Vec<(Role, Vec<Value>)>) -> Vec<(Role, Vec<Value>)> {
    let mut joined: Vec<(Role, Vec<Value>)> = Vec::new();
    for (role, blocks) in grouped {
        let role = if role == Role::Assistant { role } else { Role::User };
        match joined.last_mut() {
            Some((last, earlier)) if *last == role => earlier.extend(blocks),
            _ => joined.push((role, blocks)),
        }
    }
    joined
}

/// The mark of what is to be cached, for an hour or for five minutes.
fn cache_mark(is_long: bool) -> Value {
    if is_long { json!({"type": "ephemeral", "ttl": "1h"}) } else { json!({"type": "ephemeral"}) }
}

fn mark_cacheable(block: &mut Value, mark: &Value) {
    block["cache_control"] = mark.clone();
}

/// The blocks of a message. A thought at its end is refused, and so is a message without any block.
fn blocks(message: &Message) -> Vec<Value> {
    let mut blocks: Vec<_> = message.content.iter().filter_map(block).collect();
    let is_thought =
        |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    let end = blocks.iter().rposition(|block| !is_thought(block)).map_or(0, |last| last + 1);
    blocks.truncate(end);
    if blocks.is_empty() && message.role == Role::User {
        blocks.push(json!({"type": "text", "text": EMPTY}));
    }
    blocks
}

fn block(content: &Content) -> Option<Value> {
    match content {
        Content::Text { text } if text.trim().is_empty() => None,
        Content::Text { text } => Some(json!({"type": "text", "text": text})),
        Content::Reasoning(thought) => match (&thought.redacted, &thought.signature) {
            (Some(data), _) => Some(json!({"type": "redacted_thinking", "data": data})),
            (None, Some(signature)) => Some(json!({
                "type": "thinking", "thinking": thought.text, "signature": signature,
            })),
            (None, None) => None,
        },
        Content::ToolCall(call) => Some(json!({
            "type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(call),
        })),
        Content::ToolResult { id, text, is_error } => {
            let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
            if *is_error {
                block["is_error"] = true.into();
            }
            Some(block)
        }
    }
}

fn tools(tools: &[ToolSpec], mark: &Value) -> Value {
    let tools = tools.iter().map(|spec| {
        json!({
            "name": spec.name,
            "description": description(spec),
            "input_schema": *spec.parameters,
        })
    });
    let mut tools: Vec<_> = tools.collect();
    tools.last_mut().into_iter().for_each(|tool| mark_cacheable(tool, mark));
    tools.into()
}

/// What the body says about thinking.
#[derive(Default)]
struct Thinking {
    thinking: Option<Value>,
    effort: Option<ReasoningEffort>,
}

/// By how the model thinks; models that are not known get no setting.
fn thinking(wire: &WireRequest<'_>, max_tokens: u32) -> Thinking {
    use ThinkingMode::{Adaptive, Always, BetweenTools, Budget, OnRequest};
    let is_off = wire.effort == Some(ReasoningEffort::None);
    let effort = wire.effort.filter(|effort| wire.efforts.contains(effort));
    let adaptive = Some(json!({"type": "adaptive", "display": "summarized"}));
    let thinking = match wire.thinking {
        Some(Adaptive) if is_off => Some(json!({"type": "disabled"})),
        Some(BetweenTools) if is_off => Some(json!({"type": "between_tools"})),
        Some(Always | Adaptive | BetweenTools) => adaptive,
        Some(OnRequest) if wire.effort.is_some() && !is_off => adaptive,
        Some(Budget) => {
            let budget = wire.effort.filter(|_| !is_off).and_then(|it| budget(it, max_tokens));
            // Thinking cannot be switched on in the middle of a turn.
            let budget = budget.filter(|_| !turn_began_without_thinking(&wire.request.messages));
            budget.map(|tokens| json!({"type": "enabled", "budget_tokens": tokens}))
        }
        _ => None,
    };
    Thinking { thinking, effort }
}

/// The most tokens of thinking that leave room for the answer; `None` where there is no room.
fn budget(effort: ReasoningEffort, max_tokens: u32) -> Option<u32> {
    let wanted = match effort {
        ReasoningEffort::None | ReasoningEffort::Minimal | ReasoningEffort::Low => 1024,
        ReasoningEffort::Medium => 8000,
        ReasoningEffort::High | ReasoningEffort::XHigh | ReasoningEffort::Max => 24_000,
    };
    [wanted, 8000, 1024].into_iter().find(|budget| *budget <= wanted && *budget < max_tokens)
}

/// Whether an answer of the current turn, which waits for the results of its calls, has no thought at
/// its beginning. A message of the user right behind results is in the turn.
fn turn_began_without_thinking(messages: &[Arc<Message>]) -> bool {
    let is_thought = |content: &Content| matches!(content, Content::Reasoning(thought) if thought.signature.is_some() || thought.redacted.is_some());
    let mut rest = messages.iter().rev().filter(|message| message.role != Role::System).peekable();
    while let Some(message) = rest.next() {
        let follows_results = rest.peek().is_some_and(|before| before.role == Role::Tool);
        match message.role {
            Role::User if !follows_results => return false,
            Role::Assistant if message.content.first().is_none_or(|it| !is_thought(it)) => {
                return true;
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_leave_room_for_the_answer() {
        assert_eq!(budget(ReasoningEffort::High, 64_000), Some(24_000));
        assert_eq!(budget(ReasoningEffort::High, 24_000), Some(8000));
        assert_eq!(budget(ReasoningEffort::Low, 64_000), Some(1024));
        assert_eq!(budget(ReasoningEffort::Low, 1024), None);
    }
}
