use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// How hard a model thinks, from not at all to as much as it can.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ReasoningEffort {
    /// It answers without thinking.
    None,
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// The middle.
    Medium,
    /// Much.
    High,
    /// More than `high`.
    XHigh,
    /// As much as it can.
    Max,
}

impl ReasoningEffort {
    /// All efforts, the least first.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The word of settings, workflows and requests.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The one of `efforts` that is nearest, the lesser of two that are as near. Thinking is not
    /// switched off for an effort that thinks, unless there is nothing else. `None` without efforts.
    pub fn nearest(self, efforts: &[Self]) -> Option<Self> {
        let thinks = |effort: Self| effort != Self::None;
        let distance = |effort: Self| (effort as u8).abs_diff(self as u8);
        let key = |effort: &Self| (thinks(self) && !thinks(*effort), distance(*effort), *effort);
        efforts.iter().copied().min_by_key(key)
    }
}

/// An HTTP interface of a model.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum ModelInterface {
    /// The Responses API of `OpenAI`.
    Responses,
    /// Chat Completions: older models of `OpenAI`, and compatible servers.
    ChatCompletions,
    /// The Messages API of Anthropic.
    AnthropicMessages,
    /// `streamGenerateContent` of Gemini.
    Gemini,
}

/// When a model takes tools in Chat Completions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum ChatTools {
    /// With every effort.
    Always,
    /// When the request names no effort.
    WithoutEffort,
    /// Only with the effort `none`, which the request has to name.
    EffortNone,
    /// Not at all; or it has no Chat Completions.
    Never,
}

/// How a model thinks, and how a request says so.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingMode {
    /// It does not think.
    Never,
    /// A request names the effort, and nothing else.
    Effort,
    /// It always thinks, and refuses to be told that it should or should not; efforts are the model's.
    Always,
    /// A switch: `thinking` is `enabled` or `disabled`.
    Switch,
    /// Anthropic: adaptive unless the request disables it.
    Adaptive,
    /// Anthropic: adaptive; `between_tools` instead of `disabled`.
    BetweenTools,
    /// Anthropic: off unless the request says `adaptive`.
    OnRequest,
    /// A number of tokens, which is part of the longest answer: Anthropic's `budget_tokens`, Gemini's
    /// `thinkingBudget`.
    Budget,
    /// Gemini: a `thinkingLevel`.
    Level,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for effort in ReasoningEffort::ALL {
            assert_eq!(effort.as_str().parse(), Ok(*effort));
            assert_eq!(serde_json::to_value(effort).unwrap(), effort.as_str());
        }
        for mode in ThinkingMode::VARIANTS {
            let word: &str = mode.into();
            assert_eq!(serde_json::to_value(mode).unwrap(), word);
        }
    }

    #[test]
    fn the_nearest_effort_is_taken() {
        let check = |wanted: &str, efforts: &str, expect: Option<&str>| {
            let efforts: Vec<ReasoningEffort> =
                efforts.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let wanted: ReasoningEffort = wanted.parse().unwrap();
            assert_eq!(wanted.nearest(&efforts).map(ReasoningEffort::as_str), expect);
        };
        check("high", "low medium high", Some("high"));
        check("max", "low medium high", Some("high"));
        check("minimal", "none low high", Some("low"));
        check("medium", "none high max", Some("high"));
        check("medium", "low high", Some("low"));
        check("none", "low high", Some("low"));
        check("low", "none", Some("none"));
        check("low", "", None);
    }
}
