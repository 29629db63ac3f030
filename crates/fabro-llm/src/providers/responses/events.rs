//! Events of the Responses API.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::providers::event_reader::{EventReader, Progress};
use crate::providers::events::{Event, EventError, FinishReason, set_count};
use crate::providers::turn::Turn;

use super::request::ARGUMENTS;

/// Reads one stream of events.
#[derive(Debug, Default)]
pub(in crate::providers) struct Reader {
    /// The items that are arriving, by their place in the output.
    items: BTreeMap<u64, PartialItem>,
    /// The call ids of the calls that were read.
    calls: BTreeSet<String>,
    /// An item was read.
    has_items: bool,
}

#[derive(Debug, Default)]
struct PartialItem {
    item: Value,
    arguments: String,
    /// It has a text, a refusal or reasoning that has been read.
    has_text: bool,
}

impl EventReader for Reader {
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError> {
        let data = match event.json() {
            Ok(data) => data,
            Err(error) if event.is_one_of(&[]) || event.name.starts_with("response.") => {
                return Err(error);
            }
            Err(_) => return Ok(Progress::More),
        };
        let index = data["output_index"].as_u64().unwrap_or_default();
        let delta = data["delta"].as_str().unwrap_or_default();
        match data["type"].as_str().unwrap_or(&event.name) {
            "response.output_text.delta" => {
                self.at(index).has_text = true;
                turn.add_text(delta);
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                self.at(index).has_text = true;
                turn.add_reasoning(delta);
            }
            "response.refusal.delta" => {
                self.at(index).has_text = true;
                turn.refusal.push_str(delta);
            }
            "response.output_item.added" => self.at(index).item = data["item"].clone(),
            "response.function_call_arguments.delta" => self.at(index).arguments.push_str(delta),
            "response.output_item.done" => self.end_item(index, &data["item"], turn),
            "response.completed" | "response.incomplete" => {
                self.end(&data["response"], turn)?;
                return Ok(Progress::Ended);
            }
            "response.failed" => {
                turn.set_model(&data["response"]["model"]);
                add_usage(&data["response"]["usage"], turn);
                turn.set_tier(&data["response"]["service_tier"]);
                return Err(EventError::Reported(data["response"]["error"].clone()));
            }
            "error" => return Err(EventError::Reported(data)),
            // Errors of servers that are only compatible.
            "" if !data["error"].is_null() => return Err(EventError::Reported(data)),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn read_whole(&mut self, body: &Value, turn: &mut Turn) -> Result<(), EventError> {
        if !body["error"].is_null() {
            return Err(EventError::Reported(body.clone()));
        }
        if !body["output"].is_array() {
            return Err(EventError::Incomplete("the answer has no output".to_owned()));
        }
        self.end(body, turn)
    }
}

impl Reader {
    fn at(&mut self, index: u64) -> &mut PartialItem {
        self.items.entry(index).or_default()
    }

    /// Reads a whole item; what has arrived in pieces is not read again.
    fn end_item(&mut self, index: u64, item: &Value, turn: &mut Turn) {
        let partial = self.items.remove(&index).unwrap_or_default();
        self.has_items = true;
        if !partial.has_text {
            add_texts(item, turn);
        }
        match item["type"].as_str() {
            Some("message") => {
                if let Some(phase) = item["phase"].as_str() {
                    turn.add_phase(phase);
                }
            }
            Some("reasoning") => {
                if let Some(sealed) = item["encrypted_content"].as_str() {
                    turn.add_signature(sealed);
                    turn.set_fields(reasoning_fields(item));
                }
                turn.end_reasoning();
            }
            Some("function_call") => self.add_call(item, partial.arguments, turn),
            _ => {}
        }
    }

    fn add_call(&mut self, item: &Value, streamed: String, turn: &mut Turn) {
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        let arguments = match &item["arguments"] {
            Value::String(whole) if !whole.is_empty() => whole.clone(),
            Value::Null | Value::String(_) => streamed,
            other => other.to_string(),
        };
        let compact = serde_json::from_str(&arguments).map(|value: Value| value.to_string());
        if compact.is_ok_and(|compact| compact != arguments) {
            turn.end_reasoning();
            turn.set_fields(json!({ARGUMENTS: arguments}));
        }
        turn.add_call(text("call_id"), text("name"), arguments.into());
        self.calls.insert(text("call_id").to_owned());
    }

    fn end(&mut self, response: &Value, turn: &mut Turn) -> Result<(), EventError> {
        turn.set_model(&response["model"]);
        add_usage(&response["usage"], turn);
        turn.set_tier(&response["service_tier"]);
        turn.finish = Some(finish_reason(response));
        turn.end_reasoning();
        // Some servers have no events for the ends of items.
        for (_, partial) in std::mem::take(&mut self.items) {
            if partial.item["type"] == "function_call" {
                self.add_call(&partial.item, partial.arguments, turn);
            }
            self.has_items |= partial.has_text || !partial.item.is_null();
        }
        // Some have all items at the end only.
        let had_items = self.has_items;
        for item in response["output"].as_array().into_iter().flatten() {
            let call = item["call_id"].as_str().unwrap_or_default();
            let is_new_call = item["type"] == "function_call" && !self.calls.contains(call);
            if !had_items || is_new_call {
                self.end_item(0, item, turn);
            }
        }
        turn.end()
    }
}

/// The texts of an item that arrived as a whole.
fn add_texts(item: &Value, turn: &mut Turn) {
    let texts = |key: &str| item[key].as_array().into_iter().flatten();
    for part in texts("summary").chain(texts("content")) {
        let text = |key: &str| part[key].as_str().unwrap_or_default();
        match text("type") {
            "output_text" => turn.add_text(text("text")),
            "summary_text" | "reasoning_text" => turn.add_reasoning(text("text")),
            "refusal" => turn.refusal.push_str(text("refusal")),
            _ => {}
        }
    }
}

/// What goes back of a reasoning item besides its encrypted content.
fn reasoning_fields(item: &Value) -> Value {
    let mut fields = json!({});
    for key in ["id", "summary", "content"] {
        let is_left_out = match &item[key] {
            Value::Null => true,
            Value::Array(list) => key == "content" && list.is_empty(),
            _ => false,
        };
        if !is_left_out {
            fields[key] = item[key].clone();
        }
    }
    fields
}

fn add_usage(usage: &Value, turn: &mut Turn) {
    set_count(&mut turn.tokens.input, &usage["input_tokens"]);
    set_count(&mut turn.tokens.output, &usage["output_tokens"]);
    let details = &usage["input_tokens_details"];
    set_count(&mut turn.tokens.cached, &details["cached_tokens"]);
    set_count(&mut turn.tokens.cache_written, &details["cache_write_tokens"]);
    let reasoning = &usage["output_tokens_details"]["reasoning_tokens"];
    set_count(&mut turn.tokens.reasoning, reasoning);
}

fn finish_reason(response: &Value) -> FinishReason {
    match response["status"].as_str() {
        Some("completed") | None => FinishReason::Complete,
        Some("incomplete") => match response["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => FinishReason::Filtered,
            Some("max_output_tokens") | None => FinishReason::MaxTokens,
            Some(_) => FinishReason::Complete,
        },
        Some(other) => FinishReason::Failed(other.to_owned()),
    }
}
