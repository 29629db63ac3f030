//! The answer that a stream of events builds up, in our own types.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fabro_types::{Costs, Usage};
use serde_json::{Map, Value};

use super::events::{EventError, FinishReason};
use super::prefix::PrefixHash;
use crate::{Catalog, Message, ModelInfo, Part, Reasoning, StopReason, ToolCall};

/// How much of a model's name is kept, in characters: a server may send anything.
const LONGEST_NAME: usize = 128;

/// The warning when an answer does not say what it used.
pub(super) const NO_USAGE: &str =
    "the provider does not report tokens: limits of tokens and of costs do not count them";

/// One turn of a model while its events arrive. Readers add to it; its parts are handed out as soon
/// as they are whole.
#[derive(Default)]
pub(super) struct Turn {
    /// The interface, for reasoning.
    provider: &'static str,
    /// Who serves the model, for its usage.
    pub(super) vendor: Option<String>,
    model: String,
    /// The model that answers, where the server names another one.
    response_model: Option<String>,
    pricing: Pricing,
    /// The hash of the request, and of the parts so far.
    prefix: PrefixHash,
    /// The conversation so far, for the ids of calls that it uses.
    messages: Arc<Vec<Arc<Message>>>,
    /// Parts that are not handed out yet.
    parts: VecDeque<Part>,
    /// There was a part.
    has_parts: bool,
    /// The reasoning that is arriving.
    reasoning: Reasoning,
    /// There was a part with reasoning.
    has_reasoning: bool,
    /// The ids of all calls of the conversation; filled at the first call.
    used_ids: Option<BTreeSet<String>>,
    /// How many calls this turn has made.
    calls: usize,
    /// Tokens so far, as the provider counts them.
    pub(super) tokens: Tokens,
    /// Those that were handed out.
    reported: Tokens,
    /// The provider says nothing of tokens.
    pub(super) lacks_usage: bool,
    /// Why the model stopped, once it says so.
    pub(super) finish: Option<FinishReason>,
    /// Why the model refuses to answer; empty when it does not.
    pub(super) refusal: String,
}

/// Tokens of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// The whole input, cached parts included.
    pub(super) input: u64,
    /// The whole output, thinking included.
    pub(super) output: u64,
    /// Input that was read from the provider's cache.
    pub(super) cached: u64,
    /// Input that was written into the provider's cache.
    pub(super) cache_written: u64,
    /// That part of it which is kept for an hour or longer.
    pub(super) long_cache_written: u64,
    /// Output that is thinking.
    pub(super) reasoning: u64,
}

/// What decides on the price of a turn.
#[derive(Debug, Default)]
pub(super) struct Pricing {
    /// The model whose prices count; `None` when they are not known.
    pub(super) model: Option<ModelInfo>,
    /// The prices of the model that answers, where that is another one.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// When the request was sent, in milliseconds since 1970.
    pub(super) sent_ms: i64,
    /// The speed that was asked for, then the one that the provider says it had.
    pub(super) speed: Option<String>,
    /// How many times the list prices the provider costs; they are its prices when absent.
    pub(super) provider_factor: Option<f64>,
}

impl Pricing {
    fn costs(&self, usage: &Usage) -> Option<Costs> {
        let model = self.model.as_ref()?;
        let factor = self.speed.as_deref().map_or(Some(1.0), |speed| model.speed_factor(speed))?;
        Some(model.costs(usage, self.sent_ms)?.times(factor * self.provider_factor.unwrap_or(1.0)))
    }

    /// Whether the model is known to cost nothing.
    fn is_free(&self) -> bool {
        let used = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
        self.costs(&used).is_some_and(|costs| costs.total() == 0.0)
    }
}

impl Turn {
    pub(super) fn new(
        provider: &'static str,
        model: String,
        pricing: Pricing,
        messages: Arc<Vec<Arc<Message>>>,
        prefix: PrefixHash,
    ) -> Self {
        Self { provider, model, pricing, prefix, messages, ..Self::default() }
    }

    /// The next part that was not handed out yet.
    pub(super) fn pop_part(&mut self) -> Option<Part> {
        self.parts.pop_front()
    }

    /// What the user is to know of the request.
    pub(super) fn warn(&mut self, message: String) {
        self.parts.push_back(Part::Warning(message));
    }

    fn push(&mut self, part: Part) {
        self.has_parts = true;
        self.parts.push_back(part);
    }

    pub(super) fn add_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.end_reasoning();
            self.prefix.add_piece(text);
            self.push(Part::Text(text.to_owned()));
        }
    }

    pub(super) fn add_reasoning(&mut self, text: &str) {
        self.reasoning.text.push_str(text);
    }

    /// Adds to the signature of the reasoning that is arriving.
    pub(super) fn add_signature(&mut self, signature: &str) {
        if !signature.is_empty() {
            self.reasoning.signature.get_or_insert_default().push_str(signature);
        }
    }

    /// The model that answers, as the server names it.
    pub(super) fn set_model(&mut self, name: &Value) {
        let is_new = |name: &&str| {
            !name.is_empty() && *name != self.model && self.response_model.as_deref() != Some(*name)
        };
        let Some(name) = name.as_str().filter(is_new) else { return };
        self.response_model = Some(name.chars().take(LONGEST_NAME).collect());
        let catalog = self.pricing.catalog.as_ref();
        if let Some(served) = catalog.and_then(|catalog| catalog.served_as(&self.model, name)) {
            self.pricing.model = Some(served.clone());
        }
    }

    /// The service tier that the request was given, which need not be the one it asked for. Servers have tiers
    /// of their own, at the usual prices.
    pub(super) fn set_tier(&mut self, tier: &Value) {
        let model = self.pricing.model.as_ref();
        let is_priced = |tier: &&str| model.is_some_and(|it| it.speed_factor(tier).is_some());
        if let Some(tier) = tier.as_str().filter(is_priced) {
            self.pricing.speed = Some(tier.to_owned());
        }
    }

    /// A block of reasoning that only the provider can read.
    pub(super) fn add_redacted(&mut self, data: &str) {
        self.end_reasoning();
        self.reasoning.redacted = Some(data.to_owned());
        self.end_reasoning();
    }

    /// The provider refuses to answer, and bills nothing where it does so before any output.
    pub(super) fn refuse(&mut self) {
        if !self.has_parts && !self.has_reasoning() {
            self.tokens = Tokens::default();
        }
        self.finish = Some(FinishReason::Filtered);
    }

    /// Fields that go back with the reasoning that is arriving.
    pub(super) fn set_fields(&mut self, fields: Value) {
        self.reasoning.fields = Some(fields);
    }

    /// The phase of the text before.
    pub(super) fn add_phase(&mut self, phase: &str) {
        self.end_reasoning();
        self.reasoning.phase = Some(phase.to_owned());
        self.end_reasoning();
    }

    /// Whether reasoning has arrived, or is arriving.
    pub(super) fn has_reasoning(&self) -> bool {
        self.has_reasoning || self.reasoning != Reasoning::default()
    }

    /// The block of reasoning is whole, if there is one.
    pub(super) fn end_reasoning(&mut self) {
        let mut reasoning = std::mem::take(&mut self.reasoning);
        if reasoning != Reasoning::default() {
            reasoning.provider = Some(self.provider.to_owned());
            reasoning.model = Some(self.model.clone());
            reasoning.prefix = reasoning.is_bound().then(|| self.prefix.digest());
            self.has_reasoning = true;
            self.push(Part::Reasoning(reasoning));
        }
    }

    /// A whole call. Some servers count ids anew in every answer, or give none: an id that is empty or
    /// used in the conversation is replaced.
    pub(super) fn add_call(&mut self, id: &str, name: &str, arguments: Value) {
        self.end_reasoning();
        let id = if id.is_empty() || self.used_ids().contains(id) {
            let count = self.messages.len();
            self.unused_id(|number| format!("call_{count}_{number}"))
        } else {
            id.to_owned()
        };
        self.used_ids().insert(id.clone());
        self.calls += 1;
        let name = name.to_owned();
        let call = ToolCall { id, name, arguments: parse_arguments(arguments) };
        self.prefix.add_call(&call);
        self.push(Part::ToolCall(call));
    }

    /// An id that no call of the conversation has; `make` gets a number from the place of the call on.
    pub(super) fn unused_id(&mut self, make: impl Fn(usize) -> String) -> String {
        let mut number = self.calls;
        loop {
            let id = make(number);
            if !self.used_ids().contains(&id) {
                return id;
            }
            number += 1;
        }
    }

    fn used_ids(&mut self) -> &mut BTreeSet<String> {
        let messages = &self.messages;
        self.used_ids.get_or_insert_with(|| {
            let calls = messages.iter().flat_map(|message| message.tool_calls());
            calls.map(|call| call.id.clone()).collect()
        })
    }

    /// The provider ended the turn: adds the end, or returns why the turn cannot be used.
    pub(super) fn end(&mut self) -> Result<(), EventError> {
        if !self.refusal.is_empty() {
            return Err(EventError::Refused(std::mem::take(&mut self.refusal)));
        }
        self.end_reasoning();
        let stop = match self.finish.take() {
            Some(FinishReason::Filtered) => {
                return Err(EventError::Refused("the answer was filtered".to_owned()));
            }
            Some(FinishReason::Failed(reason)) => return Err(EventError::Incomplete(reason)),
            Some(FinishReason::WindowFull(reason)) => return Err(EventError::WindowFull(reason)),
            // Without content and without a reason there is no answer.
            None if !self.has_parts => return Err(EventError::ended_early()),
            Some(FinishReason::MaxTokens) => StopReason::MaxTokens,
            _ if self.calls == 0 => StopReason::Complete,
            _ => StopReason::ToolCalls,
        };
        let mut usage = self.usage();
        if self.lacks_usage && !self.pricing.is_free() {
            usage.unpriced_requests = 1;
            self.warn(NO_USAGE.to_owned());
        }
        self.push(Part::End { usage, stop });
        Ok(())
    }

    /// What is known to be spent so far, if that is more than was handed out.
    pub(super) fn new_usage(&mut self) -> Option<Usage> {
        let is_new = std::mem::replace(&mut self.reported, self.tokens) != self.tokens;
        is_new.then(|| self.usage())
    }

    /// What is known to be spent so far.
    pub(super) fn usage(&self) -> Usage {
        let Tokens { input, output, cached, cache_written, long_cache_written, reasoning } =
            self.tokens;
        let mut usage = Usage {
            model: Some(self.model.clone()),
            response_model: self.response_model.clone(),
            provider: self.vendor.clone(),
            input_tokens: input,
            output_tokens: output,
            cached_tokens: cached,
            cache_write_tokens: cache_written,
            long_cache_write_tokens: long_cache_written,
            reasoning_tokens: reasoning,
            ..Usage::default()
        };
        let costs = self.pricing.costs(&usage);
        usage.set_costs(costs);
        usage
    }
}

/// Arguments as they arrive: text that may be JSON. What is not JSON stays text.
fn parse_arguments(value: Value) -> Value {
    match value {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        value => value,
    }
}
