//! Events of Anthropic's Messages API.

use serde_json::Value;

use crate::providers::event_reader::{EventReader, Progress};
use crate::providers::events::{Event, EventError, FinishReason, set_count};
use crate::providers::turn::{Tokens, Turn};

/// The events that matter.
const KNOWN: [&str; 7] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

/// Reads one stream of events.
#[derive(Debug, Default)]
pub(in crate::providers) struct Reader {
    /// The call whose input is arriving.
    call: Option<PartialCall>,
    usage: CountedTokens,
}

#[derive(Debug)]
struct PartialCall {
    id: String,
    name: String,
    input: String,
    /// Some servers send the whole input at the start.
    input_at_start: Value,
}

/// Tokens as Anthropic counts them: apart from each other.
#[derive(Debug, Default)]
struct CountedTokens {
    uncached: u64,
    cache_read: u64,
    cache_written: u64,
    cache_written_1h: u64,
    output: u64,
}

impl EventReader for Reader {
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError> {
        let data = match event.json() {
            Ok(data) => data,
            // Pings and unknown events may be anything.
            Err(error) if event.is_one_of(&KNOWN) => return Err(error),
            Err(_) => return Ok(Progress::More),
        };
        // Some servers leave the name to the data.
        let name = if event.name.is_empty() { data["type"].as_str() } else { Some(&*event.name) };
        match name.unwrap_or_default() {
            "message_start" => {
                turn.set_model(&data["message"]["model"]);
                self.add_usage(&data["message"]["usage"], turn);
            }
            "content_block_start" => self.start_block(&data["content_block"], turn),
            "content_block_delta" => self.add_delta(&data["delta"], turn),
            "content_block_stop" => self.end_block(turn),
            "message_delta" => {
                self.add_usage(&data["usage"], turn);
                if let Some(reason) = data["delta"]["stop_reason"].as_str() {
                    set_finish(reason, turn);
                }
            }
            "message_stop" => {
                // A call that was cut off has no end of its own.
                self.end_block(turn);
                turn.end()?;
                return Ok(Progress::Ended);
            }
            "error" => return Err(EventError::Reported(data)),
            "" if !data["error"].is_null() => return Err(EventError::Reported(data)),
            _ => {}
        }
        Ok(Progress::More)
    }

    /// Some servers leave `message_stop` out: a reason to stop is an end, too.
    fn close(&mut self, turn: &mut Turn) -> Result<(), EventError> {
        if turn.finish.is_none() {
            return Err(EventError::ended_early());
        }
        self.end_block(turn);
        turn.end()
    }

    fn read_whole(&mut self, body: &Value, turn: &mut Turn) -> Result<(), EventError> {
        if body["type"] == "error" || !body["error"].is_null() {
            return Err(EventError::Reported(body.clone()));
        }
        let Some(blocks) = body["content"].as_array() else {
            return Err(EventError::Incomplete("the answer has no content".to_owned()));
        };
        turn.set_model(&body["model"]);
        for block in blocks {
            self.start_block(block, turn);
            self.end_block(turn);
        }
        self.add_usage(&body["usage"], turn);
        set_finish(body["stop_reason"].as_str().unwrap_or_default(), turn);
        turn.end()
    }
}

impl Reader {
    fn start_block(&mut self, block: &Value, turn: &mut Turn) {
        self.end_block(turn);
        let text = |key: &str| block[key].as_str().unwrap_or_default();
        match text("type") {
            "text" => turn.add_text(text("text")),
            "thinking" => {
                turn.add_reasoning(text("thinking"));
                turn.add_signature(text("signature"));
            }
            "redacted_thinking" => turn.add_redacted(text("data")),
            "tool_use" => {
                self.call = Some(PartialCall {
                    id: text("id").to_owned(),
                    name: text("name").to_owned(),
                    input: String::new(),
                    input_at_start: block["input"].clone(),
                });
            }
            _ => {}
        }
    }

    fn add_delta(&mut self, delta: &Value, turn: &mut Turn) {
        let text = |key: &str| delta[key].as_str().unwrap_or_default();
        match text("type") {
            "text_delta" => turn.add_text(text("text")),
            "thinking_delta" => turn.add_reasoning(text("thinking")),
            "signature_delta" => turn.add_signature(text("signature")),
            "input_json_delta" => {
                if let Some(call) = &mut self.call {
                    call.input.push_str(text("partial_json"));
                }
            }
            _ => {}
        }
    }

    fn end_block(&mut self, turn: &mut Turn) {
        turn.end_reasoning();
        if let Some(call) = self.call.take() {
            let is_streamed = !call.input.is_empty();
            let input = if is_streamed { call.input.into() } else { call.input_at_start };
            turn.add_call(&call.id, &call.name, input);
        }
    }

    /// Counts are cumulative; a later one replaces an earlier one.
    fn add_usage(&mut self, usage: &Value, turn: &mut Turn) {
        let counted = &mut self.usage;
        set_count(&mut counted.uncached, &usage["input_tokens"]);
        set_count(&mut counted.cache_read, &usage["cache_read_input_tokens"]);
        set_count(&mut counted.cache_written, &usage["cache_creation_input_tokens"]);
        let written_1h = &usage["cache_creation"]["ephemeral_1h_input_tokens"];
        set_count(&mut counted.cache_written_1h, written_1h);
        set_count(&mut counted.output, &usage["output_tokens"]);
        let input = counted.uncached.saturating_add(counted.cache_read);
        turn.tokens = Tokens {
            input: input.saturating_add(counted.cache_written),
            output: counted.output,
            cached: counted.cache_read,
            cache_written: counted.cache_written,
            long_cache_written: counted.cache_written_1h,
            ..Tokens::default()
        };
    }
}

fn set_finish(reason: &str, turn: &mut Turn) {
    turn.finish = Some(match reason {
        // A paused turn continues when its content is sent back.
        "max_tokens" | "pause_turn" => FinishReason::MaxTokens,
        "model_context_window_exceeded" => FinishReason::WindowFull(reason.to_owned()),
        "refusal" => return turn.refuse(),
        _ => FinishReason::Complete,
    });
}
