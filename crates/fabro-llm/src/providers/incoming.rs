//! An answer, from the provider's terms to ours.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fabro_types::Usage;
use futures_util::StreamExt;
use futures_util::stream::{self, Stream};
use genai::chat::{
    ChatStream, ChatStreamEvent, ContentPart, MessageContent, StopReason as Stop, StreamEnd,
};

use super::address::Address;
use super::body::Told;
use super::calls::arguments;
use super::frames::{Frames, Mark};
use super::outgoing::longest_event;
use super::provider::chats;
use super::whole::Whole;
use super::{Provider, ProviderKind, failure};
use crate::{ErrorKind, Message, ModelError, ModelInfo, Part, Reasoning, StopReason, ToolCall};

/// How large an answer may be, in bytes of its events: no model says as much in one turn.
const LARGEST: usize = 64 << 20;

/// What is known of a request while its answer comes in.
pub(super) struct Asked {
    pub(super) provider: Provider,
    pub(super) address: Address,
    pub(super) model: String,
    pub(super) info: Option<ModelInfo>,
    /// The conversation, for the ids that are taken.
    pub(super) messages: Arc<Vec<Arc<Message>>>,
}

pub(super) struct Incoming {
    asked: Asked,
    /// None where the provider does not stream.
    events: Option<ChatStream>,
    frames: Arc<Frames>,
    /// How to ask without a stream, as long as that was not done.
    whole: Option<Whole>,
    /// Parts to be told before the next event is looked at.
    ready: VecDeque<Part>,
    /// The thought that is being told.
    thought: Reasoning,
    /// The call that Anthropic is making.
    call: Option<genai::chat::ToolCall>,
    /// The ids of calls that the conversation has, from the first call on.
    taken: Option<BTreeSet<String>>,
    /// How many calls this answer has made.
    calls: usize,
    /// Something has been told.
    begun: bool,
    over: bool,
}

impl Incoming {
    pub(super) fn new(
        asked: Asked,
        events: Option<ChatStream>,
        frames: Arc<Frames>,
        whole: Option<Whole>,
    ) -> Self {
        Self {
            asked,
            events,
            frames,
            whole,
            ready: VecDeque::new(),
            thought: Reasoning::default(),
            call: None,
            taken: None,
            calls: 0,
            begun: false,
            over: false,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Part, ModelError>> + Send {
        stream::unfold(self, |mut incoming| async move {
            let part = incoming.next().await?;
            Some((part, incoming))
        })
    }

    async fn next(&mut self) -> Option<Result<Part, ModelError>> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                self.begun = true;
                return Some(Ok(part));
            }
            if self.over {
                return None;
            }
            let failed = match self.event().await {
                Ok(Some(Ok(_))) if self.frames.seen().size > LARGEST => Some(self.too_large()),
                Ok(Some(Ok(event))) => self.take(event).err(),
                Ok(Some(Err(error))) => Some(self.failure(&error)),
                Ok(None) => self.finish_unsaid().await.err(),
                Err(timeout) => Some(timeout),
            };
            if let Some(error) = failed {
                self.over = true;
                return Some(Err(self.with_usage(error)));
            }
        }
    }

    /// The client limits pauses only: bytes that come and come and make no event would never end.
    async fn event(&mut self) -> Result<Option<genai::Result<ChatStreamEvent>>, ModelError> {
        let Some(events) = &mut self.events else { return Ok(None) };
        let most = longest_event(&self.asked.provider);
        loop {
            let seen = self.frames.seen().count;
            if let Ok(event) = tokio::time::timeout(most, events.next()).await {
                return Ok(event);
            }
            // Signs of life are none of the client's events.
            if self.frames.seen().count == seen {
                let what = "what it sends has no end";
                return Err(failure::ours(ErrorKind::Timeout, &self.asked.provider, what));
            }
        }
    }

    fn take(&mut self, event: ChatStreamEvent) -> Result<(), ModelError> {
        self.take_marks();
        match event {
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => {}
            ChatStreamEvent::Chunk(chunk) => {
                self.end_thought();
                if !chunk.content.is_empty() {
                    self.ready.push_back(Part::Text(chunk.content));
                }
            }
            ChatStreamEvent::ReasoningChunk(chunk) => self.thought.text.push_str(&chunk.content),
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                // Elsewhere the seals come with the calls, or at the end.
                if self.asked.provider.kind == ProviderKind::Anthropic {
                    self.thought.signature.get_or_insert_default().push_str(&chunk.content);
                }
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                self.end_thought();
                // It has all that is known of the call. Others' calls are told at the end.
                if self.asked.provider.kind == ProviderKind::Anthropic {
                    self.call = Some(chunk.tool_call);
                }
            }
            ChatStreamEvent::End(end) => {
                self.end_thought();
                self.finish(end)?;
                self.over = true;
            }
        }
        Ok(())
    }

    /// What the wire said before this event, and the client kept to itself.
    fn take_marks(&mut self) {
        let marks = std::mem::take(&mut self.frames.seen().marks);
        for mark in marks {
            self.end_thought();
            self.end_call();
            if let Mark::Redacted(data) = mark {
                self.thought.redacted = Some(data);
                self.end_thought();
            }
        }
    }

    fn end_thought(&mut self) {
        let mut thought = std::mem::take(&mut self.thought);
        if thought != Reasoning::default() {
            thought.provider = Some(self.asked.provider.kind.as_str().to_owned());
            self.ready.push_back(Part::Reasoning(thought));
        }
    }

    fn end_call(&mut self) {
        if let Some(call) = self.call.take() {
            let (id, name) = (call.call_id, call.fn_name);
            self.tell(ToolCall { id, name, arguments: arguments(call.fn_arguments) });
        }
    }

    /// No call has an id that another one of the conversation has: some servers count anew in every
    /// answer, or give none.
    fn tell(&mut self, mut call: ToolCall) {
        let messages = &self.asked.messages;
        let taken = self.taken.get_or_insert_with(|| {
            let earlier = messages.iter().flat_map(|message| message.tool_calls());
            earlier.map(|call| call.id.clone()).collect()
        });
        let mut place = self.calls;
        while call.id.is_empty() || taken.contains(&call.id) {
            call.id = format!("call_{}_{place}", messages.len());
            place += 1;
        }
        taken.insert(call.id.clone());
        self.calls += 1;
        self.ready.push_back(Part::ToolCall(call));
    }

    /// The stream is over without an event that says so. However cleanly the connection was closed,
    /// the turn is not whole, unless it gave a reason to stop: some servers leave `[DONE]` out.
    async fn finish_unsaid(&mut self) -> Result<(), ModelError> {
        if let Some(whole) = self.take_whole() {
            let said = whole.ask(&self.frames).await?;
            self.thought.text = said.thought;
            self.end_thought();
            if !said.text.is_empty() {
                self.ready.push_back(Part::Text(said.text));
            }
        }
        let finish = self.frames.seen().finish.take();
        let Some(finish) = finish else {
            return Err(self.broken("it ended before it was whole"));
        };
        self.take_marks();
        self.end_thought();
        self.over = true;
        let stop = Some(Stop::from(finish));
        self.finish(StreamEnd { captured_stop_reason: stop, ..StreamEnd::default() })
    }

    /// Where there was an answer, but no stream.
    fn take_whole(&mut self) -> Option<Whole> {
        let seen = self.frames.seen();
        let is_other = self.events.is_none() || (seen.is_blank && !seen.is_event);
        drop(seen);
        self.whole.take().filter(|_| is_other)
    }

    fn finish(&mut self, end: StreamEnd) -> Result<(), ModelError> {
        let (calls, refusal) = {
            let mut seen = self.frames.seen();
            (std::mem::take(&mut seen.calls), std::mem::take(&mut seen.refusal))
        };
        let filtered = matches!(end.captured_stop_reason, Some(Stop::ContentFilter(_)));
        if filtered || !refusal.is_empty() {
            return Err(self.refused(&refusal));
        }
        let usage = self.usage(&end);
        let stop = end.captured_stop_reason.clone();
        let parts = end.captured_content.map(MessageContent::into_parts).unwrap_or_default();
        match self.asked.provider.kind {
            // Cut off in the middle.
            ProviderKind::Anthropic => self.end_call(),
            kind if chats(kind) => calls.into_calls().into_iter().for_each(|call| self.tell(call)),
            _ => self.take_captured(parts),
        }
        if !self.is_whole(stop.as_ref()) {
            let reason =
                stop.map_or("it ended before it was whole".to_owned(), |it| it.to_string());
            return Err(self.broken(&reason));
        }
        let stop = match stop {
            Some(Stop::MaxTokens(_)) => StopReason::MaxTokens,
            _ if self.calls == 0 => StopReason::Complete,
            _ => StopReason::ToolCalls,
        };
        self.ready.push_back(Part::End { usage, stop });
        Ok(())
    }

    fn is_whole(&self, stop: Option<&Stop>) -> bool {
        match self.asked.provider.kind {
            // Their streams have no event of their own for the end, so a missing reason tells.
            ProviderKind::Gemini | ProviderKind::OpenAiResponses => {
                stop.is_some_and(|stop| !matches!(stop, Stop::Other(_)))
            }
            _ => stop.is_some() || self.begun || !self.ready.is_empty(),
        }
    }

    /// The calls that the client kept, and seals that only come at the end.
    fn take_captured(&mut self, parts: Vec<ContentPart>) {
        for part in parts {
            match part {
                ContentPart::ToolCall(call) => {
                    if self.asked.provider.kind == ProviderKind::Gemini {
                        let seals = call.thought_signatures.into_iter().flatten();
                        self.seal(seals.collect::<Vec<_>>().pop());
                    }
                    let (id, name) = (call.call_id, call.fn_name);
                    self.tell(ToolCall { id, name, arguments: arguments(call.fn_arguments) });
                }
                ContentPart::ThoughtSignature(seal)
                    if self.asked.provider.kind == ProviderKind::OpenAiResponses =>
                {
                    self.seal(Some(seal));
                }
                _ => {}
            }
        }
    }

    fn seal(&mut self, signature: Option<String>) {
        self.thought.signature = signature;
        self.end_thought();
    }

    fn usage(&self, end: &StreamEnd) -> Usage {
        let count = |count: Option<i32>| count.and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
        let told = end.captured_usage.clone().unwrap_or_default();
        let details = told.prompt_tokens_details.unwrap_or_default();
        let model = Some(self.asked.model.clone());
        let mut usage = Usage { model, turns: 1, ..self.frames.seen().usage.clone() };
        if end.captured_usage.is_some() {
            usage.input_tokens = count(told.prompt_tokens);
            usage.output_tokens = count(told.completion_tokens);
            usage.cached_tokens = count(details.cached_tokens);
        }
        if let Some(info) = &self.asked.info {
            usage.cost_usd = info.cost(&usage).unwrap_or(0.0);
            if self.asked.provider.kind == ProviderKind::Anthropic {
                // What is put into its cache costs a quarter more.
                let written = count(details.cache_creation_tokens) as f64;
                usage.cost_usd += written * info.input_cost.unwrap_or(0.0) * 0.25 / 1e6;
            }
        }
        usage
    }

    fn failure(&self, error: &genai::Error) -> ModelError {
        let (told, refusal) = {
            let mut seen = self.frames.seen();
            (seen.failure.take(), std::mem::take(&mut seen.refusal))
        };
        match told {
            Some(value) => failure::told(&self.asked.provider, Told::from_value(&value)),
            None if !refusal.is_empty() => self.refused(&refusal),
            None => failure::failure(error, &self.asked.provider, &self.asked.address),
        }
    }

    fn refused(&self, why: &str) -> ModelError {
        let why = if why.is_empty() { "the answer was filtered" } else { why };
        failure::ours(ErrorKind::ContentFilter, &self.asked.provider, why)
    }

    fn too_large(&self) -> ModelError {
        let what = format!("it is larger than {} MB", LARGEST >> 20);
        failure::ours(ErrorKind::TooLarge, &self.asked.provider, &what)
    }

    fn broken(&self, what: &str) -> ModelError {
        failure::ours(ErrorKind::BrokenStream, &self.asked.provider, what)
    }

    /// What is known to be spent on a turn that failed.
    fn with_usage(&self, mut error: ModelError) -> ModelError {
        let model = Some(self.asked.model.clone());
        error.usage = Usage { model, turns: 1, ..self.frames.seen().usage.clone() };
        if let Some(info) = &self.asked.info {
            error.usage.cost_usd = info.cost(&error.usage).unwrap_or(0.0);
        }
        error
    }
}
