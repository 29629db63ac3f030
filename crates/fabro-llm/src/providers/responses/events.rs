//! Events of the Responses API.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::providers::events::{Event, EventError, EventReader, FinishReason, Progress, set_count};
use crate::providers::turn::Turn;

/// Reads one stream of events.
#[derive(Debug, Default)]
pub(in crate::providers) struct Reader {
    /// The calls that are arriving, by their place in the output.
    calls: BTreeMap<u64, PartialCall>,
    /// A call was read.
    has_calls: bool,
}

#[derive(Debug)]
struct PartialCall {
    item: Value,
    arguments: String,
}

impl EventReader for Reader {
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError> {
        let data = event.json()?;
        let index = data["output_index"].as_u64().unwrap_or_default();
        let delta = data["delta"].as_str().unwrap_or_default();
        match data["type"].as_str().unwrap_or(&event.name) {
            "response.output_text.delta" => turn.add_text(delta),
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                turn.add_reasoning(delta);
            }
            "response.refusal.delta" => turn.refusal.push_str(delta),
            "response.output_item.added" if data["item"]["type"] == "function_call" => {
                let item = data["item"].clone();
                self.calls.insert(index, PartialCall { item, arguments: String::new() });
            }
            "response.function_call_arguments.delta" => {
                if let Some(call) = self.calls.get_mut(&index) {
                    call.arguments.push_str(delta);
                }
            }
            "response.output_item.done" => self.end_item(index, &data["item"], turn),
            "response.completed" | "response.incomplete" => {
                self.end(&data["response"], turn)?;
                return Ok(Progress::Ended);
            }
            "response.failed" => {
                return Err(EventError::Reported(data["response"]["error"].clone()));
            }
            "error" => return Err(EventError::Reported(data)),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn read_whole(&mut self, body: &Value, turn: &mut Turn) -> Result<(), EventError> {
        if !body["error"].is_null() {
            return Err(EventError::Reported(body.clone()));
        }
        let Some(items) = body["output"].as_array() else {
            return Err(EventError::Incomplete("the answer has no output".to_owned()));
        };
        for item in items {
            let texts = |key: &str| item[key].as_array().cloned().unwrap_or_default();
            for part in texts("summary").iter().chain(&texts("content")) {
                let text = |key: &str| part[key].as_str().unwrap_or_default();
                match text("type") {
                    "output_text" => turn.add_text(text("text")),
                    "summary_text" | "reasoning_text" => turn.add_reasoning(text("text")),
                    "refusal" => turn.refusal.push_str(text("refusal")),
                    _ => {}
                }
            }
            self.end_item(0, item, turn);
        }
        self.end(body, turn)
    }
}

impl Reader {
    fn end_item(&mut self, index: u64, item: &Value, turn: &mut Turn) {
        match item["type"].as_str() {
            Some("reasoning") => {
                turn.add_signature(item["encrypted_content"].as_str().unwrap_or_default());
                turn.end_reasoning();
            }
            Some("function_call") => {
                let streamed = self.calls.remove(&index).map(|call| call.arguments);
                self.add_call(item, streamed.unwrap_or_default(), turn);
            }
            _ => {}
        }
    }

    fn add_call(&mut self, item: &Value, streamed: String, turn: &mut Turn) {
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        let whole = text("arguments");
        let arguments = if whole.is_empty() { streamed } else { whole.to_owned() };
        turn.add_call(text("call_id"), text("name"), arguments.into());
        self.has_calls = true;
    }

    fn end(&mut self, response: &Value, turn: &mut Turn) -> Result<(), EventError> {
        let usage = &response["usage"];
        set_count(&mut turn.tokens.input, &usage["input_tokens"]);
        set_count(&mut turn.tokens.output, &usage["output_tokens"]);
        set_count(&mut turn.tokens.cached, &usage["input_tokens_details"]["cached_tokens"]);
        turn.finish = Some(finish_reason(response));
        turn.end_reasoning();
        for (_, call) in std::mem::take(&mut self.calls) {
            self.add_call(&call.item, call.arguments, turn);
        }
        if !self.has_calls {
            for item in response["output"].as_array().into_iter().flatten() {
                if item["type"] == "function_call" {
                    self.add_call(item, String::new(), turn);
                }
            }
        }
        turn.end()
    }
}

fn finish_reason(response: &Value) -> FinishReason {
    match response["status"].as_str() {
        Some("completed") => FinishReason::Complete,
        Some("incomplete") => match response["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => FinishReason::Filtered,
            _ => FinishReason::MaxTokens,
        },
        other => FinishReason::Failed(other.unwrap_or("it has no status").to_owned()),
    }
}
