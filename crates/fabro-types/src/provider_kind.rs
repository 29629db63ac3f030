use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

/// The protocol of a provider.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ProviderKind {
    /// `anthropic`: the Messages API.
    Anthropic,
    /// `openai`: the Chat Completions API of `OpenAI` itself.
    #[serde(rename = "openai")]
    #[strum(serialize = "openai")]
    OpenAi,
    /// `openai-responses`: the Responses API.
    #[serde(rename = "openai-responses")]
    #[strum(serialize = "openai-responses")]
    OpenAiResponses,
    /// `gemini`: the Gemini API.
    Gemini,
    /// `openai-compatible`: the Chat Completions API of another service.
    #[default]
    #[serde(rename = "openai-compatible")]
    #[strum(serialize = "openai-compatible")]
    OpenAiCompatible,
}

impl ProviderKind {
    /// The words of all kinds.
    pub const NAMES: [&str; 5] =
        ["anthropic", "openai", "openai-responses", "gemini", "openai-compatible"];

    /// The word for it in settings.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reads that word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}
