use serde::{Deserialize, Serialize};

/// What a provider speaks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum ProviderKind {
    /// `anthropic`: the Messages API.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// `openai`: the Chat Completions API of the company itself.
    #[serde(rename = "openai")]
    OpenAi,
    /// `openai-responses`: the Responses API.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// `gemini`: the Gemini API.
    #[serde(rename = "gemini")]
    Gemini,
    /// `openai-compatible`: the Chat Completions API of somebody else.
    #[default]
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
}

impl ProviderKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::OpenAiResponses,
        Self::Gemini,
        Self::OpenAiCompatible,
    ];

    /// The word for it in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::OpenAiCompatible => "openai-compatible",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}
