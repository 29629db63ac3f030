//! The HTTP interfaces that providers speak, and which of them a model has.

use fabro_types::{ChatTools, ModelInterface};

use super::{Provider, ProviderKind};
use crate::ModelInfo;

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
    /// The interface of a model: the one that the provider's settings say, else that of its kind; and
    /// for `openai` that of the model.
    pub(super) fn of(provider: &Provider, model: &str, info: Option<&ModelInfo>) -> Self {
        let chosen = match provider.kind {
            ProviderKind::Anthropic => return Self::Anthropic,
            ProviderKind::Gemini => return Self::Gemini,
            ProviderKind::OpenAiResponses => return Self::Responses,
            ProviderKind::OpenAi | ProviderKind::OpenAiCompatible => provider.interface,
        };
        let own = info.filter(|info| info.provider.as_ref() == Some(&provider.name));
        let is_openai = provider.kind == ProviderKind::OpenAi;
        let known = chosen.or_else(|| own.filter(|_| !is_openai)?.interface);
        match known {
            Some(ModelInterface::Responses) => return Self::Responses,
            Some(_) => return Self::ChatCompletions,
            None if !is_openai => return Self::ChatCompletions,
            None => {}
        }
        // Other servers often have Chat Completions only.
        let is_own_address = provider.base_url.as_ref().is_none_or(|url| url.contains(OPENAI));
        let needs_responses =
            |tools: ChatTools| !matches!(tools, ChatTools::Always | ChatTools::WithoutEffort);
        let takes_responses = match info {
            Some(info) if info.interface != Some(ModelInterface::Responses) => false,
            Some(info) => is_own_address || info.chat_tools.is_some_and(needs_responses),
            None => is_own_address && OPENAI_NAMES.iter().any(|name| model.starts_with(name)),
        };
        if takes_responses { Self::Responses } else { Self::ChatCompletions }
    }

    /// The name of the interface in reasoning.
    pub(super) fn reasoning_provider(self, kind: ProviderKind) -> &'static str {
        match self {
            Self::Responses => ProviderKind::OpenAiResponses.as_str(),
            _ => kind.as_str(),
        }
    }
}

/// The host of `OpenAI` itself.
const OPENAI: &str = "api.openai.com";

/// How the names of its models begin.
const OPENAI_NAMES: [&str; 4] = ["gpt-", "o1", "o3", "o4"];
