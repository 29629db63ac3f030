//! The providers that are known by their names.

use fabro_types::ProviderKind::{
    self, Anthropic, Gemini, OpenAi, OpenAiCompatible, OpenAiResponses,
};

/// A provider that is known by its name.
pub(crate) struct KnownProvider {
    pub(crate) name: &'static str,
    pub(crate) kind: ProviderKind,
    /// The variables that hold its key; the first that is set counts.
    pub(crate) keys: &'static [&'static str],
    /// Its address, when its kind does not imply it.
    pub(crate) base_url: Option<&'static str>,
}

const fn known(
    name: &'static str,
    kind: ProviderKind,
    keys: &'static [&'static str],
    base_url: Option<&'static str>,
) -> KnownProvider {
    KnownProvider { name, kind, keys, base_url }
}

/// The first that is configured serves models that are assigned to no provider, so the order
/// matters. The last is `openai` by another protocol: the environment never selects it.
pub(crate) const KNOWN_PROVIDERS: [KnownProvider; 16] = [
    known("anthropic", Anthropic, &["ANTHROPIC_API_KEY"], None),
    known("openai", OpenAi, &["OPENAI_API_KEY"], None),
    known("gemini", Gemini, &["GEMINI_API_KEY", "GOOGLE_API_KEY"], None),
    known(
        "openrouter",
        OpenAiCompatible,
        &["OPENROUTER_API_KEY"],
        Some("https://openrouter.ai/api/v1"),
    ),
    known("groq", OpenAiCompatible, &["GROQ_API_KEY"], Some("https://api.groq.com/openai/v1")),
    known("deepseek", OpenAiCompatible, &["DEEPSEEK_API_KEY"], Some("https://api.deepseek.com")),
    known("mistral", OpenAiCompatible, &["MISTRAL_API_KEY"], Some("https://api.mistral.ai/v1")),
    known("xai", OpenAiCompatible, &["XAI_API_KEY"], Some("https://api.x.ai/v1")),
    known("together", OpenAiCompatible, &["TOGETHER_API_KEY"], Some("https://api.together.xyz/v1")),
    known("cerebras", OpenAiCompatible, &["CEREBRAS_API_KEY"], Some("https://api.cerebras.ai/v1")),
    known(
        "fireworks",
        OpenAiCompatible,
        &["FIREWORKS_API_KEY"],
        Some("https://api.fireworks.ai/inference/v1"),
    ),
    known(
        "moonshotai",
        OpenAiCompatible,
        &["MOONSHOT_API_KEY"],
        Some("https://api.moonshot.ai/v1"),
    ),
    known("zai", OpenAiCompatible, &["ZAI_API_KEY"], Some("https://api.z.ai/api/paas/v4")),
    known("minimax", OpenAiCompatible, &["MINIMAX_API_KEY"], Some("https://api.minimax.io/v1")),
    known(
        "alibaba",
        OpenAiCompatible,
        &["DASHSCOPE_API_KEY"],
        Some("https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    ),
    known("openai-responses", OpenAiResponses, &["OPENAI_API_KEY"], None),
];

/// The known provider of this name.
pub(crate) fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    KNOWN_PROVIDERS.iter().find(|known| known.name == name)
}
