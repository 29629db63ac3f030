//! What the client of the providers does not hand on, taken from the events on the wire.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabro_types::Usage;
use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use serde_json::Value;

use super::ProviderKind;
use super::calls::Calls;
use super::provider::chats;

/// Sees each event just before the client tells what it makes of it.
#[derive(Debug)]
pub(super) struct Frames {
    kind: ProviderKind,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Since it was last looked at.
    pub(super) marks: VecDeque<Mark>,
    /// What is known before the end: Anthropic tells at the start what it was sent.
    pub(super) usage: Usage,
    /// The bytes of all events so far.
    pub(super) size: usize,
    /// How many events there were, those that say nothing included.
    pub(super) count: usize,
    /// Tool calls of Chat Completions.
    pub(super) calls: Calls,
    /// Something came that is no event.
    pub(super) is_blank: bool,
    /// An event came.
    pub(super) is_event: bool,
    /// Why an answer of Chat Completions is over, as soon as it says so.
    pub(super) finish: Option<String>,
    /// Why the model will not answer.
    pub(super) refusal: String,
    /// The error that a Responses stream ends with.
    pub(super) failure: Option<Value>,
}

/// A place in a stream of Anthropic's.
#[derive(Debug, PartialEq)]
pub(super) enum Mark {
    /// A block is over.
    BlockEnd,
    /// A thought that only the provider can read.
    Redacted(String),
}

impl Frames {
    pub(super) fn new(kind: ProviderKind) -> Self {
        Self { kind, seen: Mutex::default() }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatFrameSink for Frames {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        let mut seen = self.seen();
        seen.size = seen.size.saturating_add(frame.data.len());
        seen.count += 1;
        if chats(self.kind) {
            let is_event = !frame.data.is_empty() || frame.event.is_some();
            (seen.is_event, seen.is_blank) =
                (seen.is_event || is_event, seen.is_blank || !is_event);
        }
        drop(seen);
        // Most events are plain text: they are not parsed twice.
        let has = |word: &str| frame.data.contains(word);
        match (self.kind, frame.event) {
            (ProviderKind::Anthropic, Some("content_block_start")) if has("redacted_thinking") => {
                let block = frame.json().unwrap_or_default();
                if let Some(data) = block["content_block"]["data"].as_str() {
                    self.seen().marks.push_back(Mark::Redacted(data.to_owned()));
                }
            }
            (ProviderKind::Anthropic, Some("content_block_stop")) => {
                self.seen().marks.push_back(Mark::BlockEnd);
            }
            (ProviderKind::Anthropic, Some("message_start")) => {
                let usage = &frame.json().unwrap_or_default()["message"]["usage"];
                let count = |key: &str| usage[key].as_u64().unwrap_or(0);
                let cached = count("cache_read_input_tokens");
                let sent =
                    count("input_tokens").saturating_add(count("cache_creation_input_tokens"));
                let mut seen = self.seen();
                seen.usage.input_tokens = sent.saturating_add(cached);
                seen.usage.cached_tokens = cached;
            }
            (kind, _) if chats(kind) && speaks(frame.data) => {
                self.seen().add_chunk(&frame.json().unwrap_or_default());
            }
            (ProviderKind::OpenAiResponses, _) if has("\"response.refusal.delta\"") => {
                let event = frame.json().unwrap_or_default();
                self.seen().refusal.push_str(event["delta"].as_str().unwrap_or_default());
            }
            (ProviderKind::OpenAiResponses, _) if has("\"response.failed\"") => {
                let mut event = frame.json().unwrap_or_default();
                self.seen().failure = Some(event["response"]["error"].take());
            }
            (ProviderKind::OpenAiResponses, _) if has("\"response.incomplete\"") => {
                let event = frame.json().unwrap_or_default();
                if event["response"]["incomplete_details"]["reason"] == "content_filter" {
                    self.seen().refusal.push_str("the answer was filtered");
                }
            }
            (ProviderKind::Gemini, _) if has("\"blockReason\"") => {
                let event = frame.json().unwrap_or_default();
                let reason = event["promptFeedback"]["blockReason"].as_str();
                self.seen().refusal.push_str(reason.unwrap_or_default());
            }
            _ => {}
        }
    }
}

impl Seen {
    /// Adds a chunk of Chat Completions. One chunk may have all of it.
    pub(super) fn add_chunk(&mut self, chunk: &Value) {
        self.calls.add(chunk);
        let choice = &chunk["choices"][0];
        self.refusal.push_str(choice["delta"]["refusal"].as_str().unwrap_or_default());
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(reason.to_owned());
        }
        let usage = &chunk["usage"];
        if usage.is_object() {
            let count = |value: &Value| value.as_u64().unwrap_or(0);
            self.usage.input_tokens = count(&usage["prompt_tokens"]);
            self.usage.output_tokens = count(&usage["completion_tokens"]);
            self.usage.cached_tokens = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        }
    }
}

/// Whether a chunk of Chat Completions may say more than text. Ordinary ones have the names of what
/// they do not say, too.
fn speaks(data: &str) -> bool {
    ["tool_calls", "refusal", "finish_reason", "usage"].iter().any(|name| {
        let rest = data.split_once(name).and_then(|(_, rest)| rest.strip_prefix('"'));
        let value = rest.and_then(|rest| rest.trim_start().strip_prefix(':'));
        value.is_some_and(|value| !value.trim_start().starts_with("null"))
    })
}
