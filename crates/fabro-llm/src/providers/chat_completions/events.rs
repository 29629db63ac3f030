//! Events of Chat Completions. Servers differ in nearly everything here.

use serde_json::Value;

use super::calls::PartialCalls;
use crate::providers::events::{Event, EventError, EventReader, FinishReason, Progress, set_count};
use crate::providers::turn::Turn;

/// Reads one stream of events.
#[derive(Debug, Default)]
pub(in crate::providers) struct Reader {
    calls: PartialCalls,
}

impl EventReader for Reader {
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError> {
        if event.data.trim() == "[DONE]" {
            self.end(turn)?;
            return Ok(Progress::Ended);
        }
        let chunk = event.json()?;
        if event.name == "error" || !chunk["error"].is_null() {
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
        if !body["error"].is_null() {
            return Err(EventError::Reported(body.clone()));
        }
        let choice = &body["choices"][0];
        if !choice["message"].is_object() {
            return Err(EventError::Incomplete("the answer has no message".to_owned()));
        }
        add_content(&choice["message"], turn);
        for call in choice["message"]["tool_calls"].as_array().into_iter().flatten() {
            self.calls.add_whole(call);
        }
        add_finish(&choice["finish_reason"], turn);
        add_usage(&body["usage"], turn);
        // It is whole, whether or not it says why it stopped.
        turn.finish.get_or_insert(FinishReason::Complete);
        self.end(turn)
    }
}

impl Reader {
    /// Adds a chunk; one may have everything.
    fn add_chunk(&mut self, chunk: &Value, turn: &mut Turn) {
        let choice = &chunk["choices"][0];
        add_content(&choice["delta"], turn);
        for piece in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            self.calls.add(piece);
        }
        add_finish(&choice["finish_reason"], turn);
        add_usage(&chunk["usage"], turn);
    }

    fn end(&mut self, turn: &mut Turn) -> Result<(), EventError> {
        for call in std::mem::take(&mut self.calls).into_calls() {
            turn.add_call(&call.id, &call.name, call.arguments.into());
        }
        turn.end()
    }
}

/// Adds what a delta or a message has besides calls.
fn add_content(delta: &Value, turn: &mut Turn) {
    let reasoning = [&delta["reasoning_content"], &delta["reasoning"]];
    let mut reasoning = reasoning.into_iter().filter_map(Value::as_str);
    if let Some(reasoning) = reasoning.find(|text| !text.is_empty()) {
        turn.add_reasoning(reasoning);
    }
    match &delta["content"] {
        Value::String(text) => turn.add_text(text),
        Value::Array(parts) => parts.iter().for_each(|part| add_part(part, turn)),
        _ => {}
    }
    turn.refusal.push_str(delta["refusal"].as_str().unwrap_or_default());
}

/// A part of content that is a list: text, or thinking of Mistral's models.
fn add_part(part: &Value, turn: &mut Turn) {
    let text = |part: &Value| part["text"].as_str().unwrap_or_default().to_owned();
    for thinking in part["thinking"].as_array().into_iter().flatten() {
        turn.add_reasoning(&text(thinking));
    }
    turn.add_text(&text(part));
}

fn add_finish(reason: &Value, turn: &mut Turn) {
    if let Some(reason) = reason.as_str() {
        turn.finish = Some(match reason {
            "length" | "model_length" | "model_context_window_exceeded" => FinishReason::MaxTokens,
            "content_filter" => FinishReason::Filtered,
            _ => FinishReason::Complete,
        });
    }
}

fn add_usage(usage: &Value, turn: &mut Turn) {
    set_count(&mut turn.tokens.input, &usage["prompt_tokens"]);
    set_count(&mut turn.tokens.output, &usage["completion_tokens"]);
    set_count(&mut turn.tokens.cached, &usage["prompt_tokens_details"]["cached_tokens"]);
}
