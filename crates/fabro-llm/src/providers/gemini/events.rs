//! Events of Gemini's `streamGenerateContent`: each is a response with more parts.

use serde_json::{Value, json};

use super::unsent_id;
use crate::providers::event_reader::{EventReader, Progress};
use crate::providers::events::{Event, EventError, FinishReason, MAX_TOKENS, set_count};
use crate::providers::turn::Turn;

/// Reads one stream of events.
#[derive(Debug, Default)]
pub(in crate::providers) struct Reader;

impl EventReader for Reader {
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError> {
        if !event.is_done() {
            read_response(&event.json()?, turn)?;
        }
        Ok(Progress::More)
    }

    /// Some models give a reason to stop with every event, so that the last one is the end.
    fn close(&mut self, turn: &mut Turn) -> Result<(), EventError> {
        if turn.finish.is_none() {
            return Err(EventError::ended_early());
        }
        turn.end()
    }

    /// A server that ignores `alt=sse` sends a list of all events.
    fn read_whole(&mut self, body: &Value, turn: &mut Turn) -> Result<(), EventError> {
        match body.as_array() {
            Some(events) => events.iter().try_for_each(|event| read_response(event, turn))?,
            None => read_response(body, turn)?,
        }
        self.close(turn)
    }
}

/// Reads a response: all of an answer, or the next piece of it.
fn read_response(response: &Value, turn: &mut Turn) -> Result<(), EventError> {
    if !response["error"].is_null() {
        return Err(EventError::Reported(response.clone()));
    }
    turn.set_model(&response["modelVersion"]);
    add_usage(&response["usageMetadata"], turn);
    if let Some(reason) = response["promptFeedback"]["blockReason"].as_str() {
        return Err(EventError::Refused(reason.to_owned()));
    }
    let candidate = &response["candidates"][0];
    for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
        add_part(part, turn);
    }
    if let Some(reason) = candidate["finishReason"].as_str() {
        turn.finish = Some(finish_reason(reason));
    }
    Ok(())
}

fn add_part(part: &Value, turn: &mut Turn) {
    let call = &part["functionCall"];
    if call.is_object() {
        turn.end_reasoning();
        // The signature belongs to the call.
        turn.add_signature(part["thoughtSignature"].as_str().unwrap_or_default());
        let name = call["name"].as_str().unwrap_or_default();
        let id = match call["id"].as_str() {
            Some(id) => id.to_owned(),
            None => turn.unused_id(|number| unsent_id(name, number)),
        };
        turn.add_call(&id, name, call["args"].clone());
    } else if let Some(text) = part["text"].as_str() {
        match part["thought"].as_bool() {
            Some(true) => turn.add_reasoning(text),
            _ => turn.add_text(text),
        }
        if let Some(signature) = part["thoughtSignature"].as_str() {
            // It belongs to the text before.
            turn.end_reasoning();
            turn.add_signature(signature);
            turn.set_fields(json!({"text": ""}));
            turn.end_reasoning();
        }
    }
}

fn add_usage(usage: &Value, turn: &mut Turn) {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0).min(MAX_TOKENS);
    if usage.is_object() {
        turn.tokens.input =
            count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount"));
        turn.tokens.reasoning = count("thoughtsTokenCount");
        turn.tokens.output = count("candidatesTokenCount").saturating_add(turn.tokens.reasoning);
    }
    set_count(&mut turn.tokens.cached, &usage["cachedContentTokenCount"]);
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "MAX_TOKENS" => FinishReason::MaxTokens,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::Filtered,
        // The answer is of no use; another one may be.
        "OTHER"
        | "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE" => FinishReason::Failed(reason.to_owned()),
        _ => FinishReason::Complete,
    }
}
