use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// How much of the earlier stages the next prompt shows.
/// Rules: `docs/workflow-language.md`, "Fidelity".
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
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
pub enum Fidelity {
    /// No preamble: the stage continues the conversation of its thread.
    Full,
    /// A nested list with details by handler.
    #[default]
    Compact,
    /// A Markdown section a stage.
    #[serde(rename = "summary:high")]
    #[strum(serialize = "summary:high")]
    SummaryHigh,
    /// Stages with notable findings, at most 1,500 tokens.
    #[serde(rename = "summary:medium")]
    #[strum(serialize = "summary:medium")]
    SummaryMedium,
    /// A line a stage, at most 600 tokens.
    #[serde(rename = "summary:low")]
    #[strum(serialize = "summary:low")]
    SummaryLow,
    /// Only the goal and the run id.
    Truncate,
}

impl Fidelity {
    /// All values, in the order the reference lists them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The word used in workflows.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for fidelity in Fidelity::ALL {
            assert_eq!(fidelity.as_str().parse(), Ok(*fidelity));
            assert_eq!(serde_json::to_value(fidelity).unwrap(), fidelity.as_str());
        }
        assert!("verbose".parse::<Fidelity>().is_err());
    }
}
