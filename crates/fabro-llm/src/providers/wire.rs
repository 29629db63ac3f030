//! The HTTP interfaces that providers speak, and what a request body is made from on each of them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::events::EventReader;
use super::history::{self, ReasoningSource};
use super::prefix::PrefixHash;
use super::turn::{Pricing, Turn};
use super::{Provider, ProviderKind, anthropic, chat_completions, gemini, names, responses};
use crate::{ErrorKind, Message, ModelError, ModelInfo, ReasoningEffort, Request, ThinkingMode};

/// An HTTP interface. Each has a module with its requests and its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Chat Completions: `OpenAI` and compatible servers.
    ChatCompletions,
    /// The Responses API of `OpenAI`.
    Responses,
    /// The Messages API of Anthropic.
    Anthropic,
    /// `streamGenerateContent` of Gemini.
    Gemini,
}

impl Wire {
    pub(super) fn of(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::OpenAi | ProviderKind::OpenAiCompatible => Self::ChatCompletions,
            ProviderKind::OpenAiResponses => Self::Responses,
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
        }
    }

    /// A reader for one stream of events.
    pub(super) fn event_reader(self) -> Box<dyn EventReader> {
        match self {
            Self::ChatCompletions => Box::<chat_completions::events::Reader>::default(),
            Self::Responses => Box::<responses::events::Reader>::default(),
            Self::Anthropic => Box::<anthropic::events::Reader>::default(),
            Self::Gemini => Box::<gemini::events::Reader>::default(),
        }
    }
}

/// Models that require the reasoning of every answer back.
const REASONING_REQUIRED: [&str; 3] = ["deepseek-v", "deepseek-flash", "kimi-"];

/// Models that refuse reasoning in a request.
const REASONING_REFUSED: [&str; 2] = ["deepseek-reasoner", "deepseek-r1"];

/// The effort that a request names.
fn effort(word: &str) -> Result<ReasoningEffort, ModelError> {
    // Older workflows say `zero`.
    if word == "zero" {
        return Ok(ReasoningEffort::None);
    }
    word.parse().map_err(|_| {
        let known: Vec<_> = ReasoningEffort::ALL.iter().map(|it| format!("`{it}`")).collect();
        let known = fabro_types::one_of(&known);
        invalid(format!("reasoning effort `{word}` is not known: use {known}"))
    })
}

/// What a request body is made from: decisions that do not depend on the wire.
pub(super) struct WireRequest<'a> {
    pub(super) provider: &'a Provider,
    /// As the provider knows it.
    pub(super) model: &'a str,
    /// With names and ids that this provider accepts.
    pub(super) request: Cow<'a, Request>,
    /// How the model thinks, where that is known.
    pub(super) thinking: Option<ThinkingMode>,
    /// `None` where nothing was asked for, or the model does not think.
    pub(super) effort: Option<ReasoningEffort>,
    /// The requested limit, at most what the model can do.
    pub(super) max_tokens: Option<u32>,
    /// The longest answer of the model, where that is known.
    pub(super) max_output_tokens: Option<u32>,
    accepts_schema: bool,
    /// The hash of the request.
    prefix: PrefixHash,
}

impl<'a> WireRequest<'a> {
    pub(super) fn new(
        provider: &'a Provider,
        model: &'a str,
        info: Option<&ModelInfo>,
        request: &'a Request,
    ) -> Result<Self, ModelError> {
        let effort = request.reasoning_effort.as_deref().map(effort).transpose()?;
        let thinking = info.and_then(|info| info.thinking);
        let most = info.and_then(|info| info.max_output_tokens);
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let source = ReasoningSource { provider: reasoning_provider(provider.kind), model };
        let (request, prefix) = history::fit(names::fit(provider.kind, request), source);
        Ok(Self {
            provider,
            model,
            thinking,
            effort: effort.filter(|_| thinking != Some(ThinkingMode::Never)),
            max_tokens: request.max_tokens.map(|wanted| wanted.min(most.unwrap_or(u32::MAX))),
            max_output_tokens: most,
            accepts_schema: info.and_then(|info| info.output_schema) != Some(false),
            request,
            prefix,
        })
    }

    /// The turn that answers it; `messages` are those of the request.
    pub(super) fn into_turn(self, pricing: Pricing, messages: Arc<Vec<Arc<Message>>>) -> Turn {
        let provider = reasoning_provider(self.provider.kind);
        Turn::new(provider, self.model.to_owned(), pricing, messages, self.prefix)
    }

    /// The body to send.
    pub(super) fn body(&self) -> Value {
        match Wire::of(self.provider.kind) {
            Wire::ChatCompletions => chat_completions::request::body(self),
            Wire::Responses => responses::request::body(self),
            Wire::Anthropic => anthropic::request::body(self),
            Wire::Gemini => gemini::request::body(self),
        }
    }

    /// The JSON Schema of the answer, unless the model is known not to accept one.
    pub(super) fn output_schema(&self) -> Option<&Value> {
        self.request.output_schema.as_deref().filter(|_| self.accepts_schema)
    }

    /// Whether every answer of the model has to come back with its reasoning, be it empty.
    pub(super) fn needs_reasoning(&self) -> bool {
        self.is_of(&REASONING_REQUIRED)
    }

    /// Whether the model refuses its own reasoning.
    pub(super) fn refuses_reasoning(&self) -> bool {
        self.is_of(&REASONING_REFUSED)
    }

    fn is_of(&self, families: &[&str]) -> bool {
        let name = self.model.rsplit('/').next().unwrap_or(self.model).to_ascii_lowercase();
        families.iter().any(|family| name.starts_with(family))
    }

    /// It may think, as far as known.
    pub(super) fn may_think(&self) -> bool {
        self.thinking != Some(ThinkingMode::Never)
    }

    /// The service tier in the words of `OpenAI`.
    pub(super) fn openai_tier(&self) -> Option<&str> {
        match self.request.speed.as_deref() {
            Some("fast") => Some("priority"),
            Some("standard") => Some("default"),
            other => other,
        }
    }

    /// The prompt-cache key. Compatible servers may not know it.
    pub(super) fn openai_cache_key(&self) -> Option<&str> {
        let is_openai = self.provider.kind != ProviderKind::OpenAiCompatible;
        let is_default_address = self.provider.base_url.is_none();
        self.request.cache_key.as_deref().filter(|_| is_openai && is_default_address)
    }
}

/// A request that is refused before it is sent.
pub(super) fn invalid(message: String) -> ModelError {
    let error = ModelError::new(ErrorKind::InvalidRequest).with_message(message);
    // No request was made.
    ModelError { usage: Box::default(), ..error }
}

/// The name of the interface in reasoning.
fn reasoning_provider(kind: ProviderKind) -> &'static str {
    kind.as_str()
}
