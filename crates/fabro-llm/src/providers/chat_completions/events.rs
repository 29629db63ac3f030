//! Events of Chat Completions. Servers differ in nearly everything here.

use serde_json::{Map, Value, json};

use super::calls::PartialCalls;
use super::details::PartialDetails;
use super::thought::LeadingThought;
use crate::providers::event_reader::{EventReader, Progress};
use crate::providers::events::{Event, EventError, FinishReason, set_count};
use crate::providers::turn::Turn;

/// Reads one stream of events.
#[derive(Debug, Default)]
pub(in crate::providers) struct Reader {
    calls: PartialCalls,
    details: PartialDetails,
    text: LeadingThought,
    has_usage: bool,
}

impl EventReader for Reader {
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError> {
        if event.is_done() {
            self.end(turn)?;
            return Ok(Progress::Ended);
        }
        let chunk = match event.json() {
            Ok(chunk) => chunk,
            Err(error) if event.name.is_empty() => return Err(error),
            Err(_) if event.name == "error" => {
                return Err(EventError::Reported(event.data.as_str().into()));
            }
            Err(_) => return Ok(Progress::More),
        };
        if event.name == "error" || is_error(&chunk) {
            add_usage(&chunk["usage"], turn);
            return Err(EventError::Reported(chunk));
        }
        self.add_chunk(&chunk, turn);
        Ok(Progress::More)
    }

    /// Some servers leave `[DONE]` out: a reason to stop is an end, too.
    fn close(&mut self, turn: &mut Turn) -> Result<(), EventError> {
        if turn.finish.is_none() {
            return Err(EventError::ended_early());
        }
        self.end(turn)
    }

    fn read_whole(&mut self, body: &Value, turn: &mut Turn) -> Result<(), EventError> {
        if is_error(body) {
            return Err(EventError::Reported(body.clone()));
        }
        turn.set_model(&body["model"]);
        let choice = &body["choices"][0];
        if !choice["message"].is_object() {
            return Err(EventError::Incomplete("the answer has no message".to_owned()));
        }
        self.add_content(&choice["message"], turn);
        for call in list(&choice["message"]["tool_calls"]) {
            self.calls.add_whole(call);
        }
        add_finish(&choice["finish_reason"], turn);
        self.has_usage = add_all_usage(body, turn);
        // It is whole, whether or not it says why it stopped.
        turn.finish.get_or_insert(FinishReason::Complete);
        self.end(turn)
    }
}

impl Reader {
    /// Adds a chunk; one may have everything.
    fn add_chunk(&mut self, chunk: &Value, turn: &mut Turn) {
        turn.set_model(&chunk["model"]);
        let choice = &chunk["choices"][0];
        // Some servers send the whole message although they stream.
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        self.add_content(delta, turn);
        for piece in list(&delta["tool_calls"]) {
            self.calls.add(piece);
        }
        add_finish(&choice["finish_reason"], turn);
        self.has_usage |= add_all_usage(chunk, turn);
    }

    fn end(&mut self, turn: &mut Turn) -> Result<(), EventError> {
        self.text.end(turn);
        if let Some(details) = self.details.take() {
            turn.end_reasoning();
            turn.set_fields(json!({"reasoning_details": details}));
        }
        for call in std::mem::take(&mut self.calls).into_calls() {
            if !call.signature.is_empty() {
                turn.end_reasoning();
                turn.add_signature(&call.signature);
            }
            turn.add_call(&call.id, &call.name, call.arguments.into());
        }
        turn.lacks_usage = !self.has_usage;
        turn.end()
    }

    /// Adds what a delta or a message has besides calls.
    fn add_content(&mut self, delta: &Value, turn: &mut Turn) {
        for field in ["reasoning_content", "reasoning"] {
            let text = delta[field].as_str().unwrap_or_default();
            if !text.is_empty() {
                turn.add_reasoning(text);
                if field != "reasoning_content" {
                    turn.set_fields(field_of_text(field));
                }
                // Servers that send both send the same.
                break;
            }
        }
        self.details.add(&delta["reasoning_details"]);
        match &delta["content"] {
            Value::String(text) => self.text.add(text, turn),
            Value::Array(parts) => parts.iter().for_each(|part| self.add_part(part, turn)),
            _ => {}
        }
        turn.refusal.push_str(delta["refusal"].as_str().unwrap_or_default());
    }

    /// A part of content that is a list: text, or thinking of Mistral's models.
    fn add_part(&mut self, part: &Value, turn: &mut Turn) {
        let text = |part: &Value| part["text"].as_str().unwrap_or_default().to_owned();
        match &part["thinking"] {
            Value::String(thinking) => turn.add_reasoning(thinking),
            thinking => {
                for thinking in list(thinking) {
                    turn.add_reasoning(&text(thinking));
                }
            }
        }
        if part["type"] == "thinking" {
            turn.set_fields(field_of_text("thinking"));
        }
        self.text.add(&text(part), turn);
    }
}

/// The field in which the text of a thought goes back.
fn field_of_text(field: &str) -> Value {
    Value::Object(Map::from_iter([(field.to_owned(), Value::Null)]))
}

/// The items of a list; one that stands alone is one.
fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        Value::Object(_) => std::slice::from_ref(value),
        _ => &[],
    }
}

fn is_error(body: &Value) -> bool {
    let is_failure = |value: &Value| value == "error";
    !body["error"].is_null() || is_failure(&body["object"]) || is_failure(&body["type"])
}

fn add_finish(reason: &Value, turn: &mut Turn) {
    if let Some(reason) = reason.as_str().filter(|reason| !reason.is_empty()) {
        turn.finish = Some(match reason {
            "length" | "max_tokens" | "model_length" => FinishReason::MaxTokens,
            "model_context_window_exceeded" => FinishReason::WindowFull(reason.to_owned()),
            "content_filter" | "sensitive" => FinishReason::Filtered,
            "error" | "insufficient_system_resource" | "aborted" | "network_error" => {
                FinishReason::Failed(reason.to_owned())
            }
            _ => FinishReason::Complete,
        });
    }
}

/// Usage is in the chunk, in its choice (Moonshot), or in a field of the server's own (Groq). Returns
/// whether there is any.
fn add_all_usage(chunk: &Value, turn: &mut Turn) -> bool {
    let places = [&chunk["x_groq"]["usage"], &chunk["choices"][0]["usage"], &chunk["usage"]];
    for usage in places {
        add_usage(usage, turn);
    }
    turn.set_tier(&chunk["service_tier"]);
    places.iter().any(|usage| usage.is_object())
}

fn add_usage(usage: &Value, turn: &mut Turn) {
    let details = &usage["prompt_tokens_details"];
    set_count(&mut turn.tokens.input, &usage["prompt_tokens"]);
    set_count(&mut turn.tokens.output, &usage["completion_tokens"]);
    // Those of Moonshot, DeepSeek, and of all others.
    let cached =
        [&usage["cached_tokens"], &usage["prompt_cache_hit_tokens"], &details["cached_tokens"]];
    for count in cached {
        set_count(&mut turn.tokens.cached, count);
    }
    set_count(&mut turn.tokens.cache_written, &details["cache_write_tokens"]);
    let reasoning = &usage["completion_tokens_details"]["reasoning_tokens"];
    set_count(&mut turn.tokens.reasoning, reasoning);
}
