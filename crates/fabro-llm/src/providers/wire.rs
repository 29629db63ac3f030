//! The HTTP interfaces that providers speak.

use serde_json::Value;

use super::events::EventReader;
use super::wire_request::WireRequest;
use super::{ProviderKind, anthropic, chat_completions, gemini, responses};

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

    /// The body to send.
    pub(super) fn body(self, request: &WireRequest<'_>) -> Value {
        match self {
            Self::ChatCompletions => chat_completions::request::body(request),
            Self::Responses => responses::request::body(request),
            Self::Anthropic => anthropic::request::body(request),
            Self::Gemini => gemini::request::body(request),
        }
    }
}
