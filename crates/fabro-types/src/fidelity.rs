use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How much of the earlier stages the next prompt tells.
/// Rules: `docs/workflow-language.md`, "Fidelity".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fidelity {
    /// No preamble: the stage continues the conversation of its thread.
    #[serde(rename = "full")]
    Full,
    /// A nested list with details by handler.
    #[default]
    #[serde(rename = "compact")]
    Compact,
    /// A Markdown section a stage.
    #[serde(rename = "summary:high")]
    SummaryHigh,
    /// Stages with notable findings, at most 1,500 tokens.
    #[serde(rename = "summary:medium")]
    SummaryMedium,
    /// A line a stage, at most 600 tokens.
    #[serde(rename = "summary:low")]
    SummaryLow,
    /// Only the goal and the run id.
    #[serde(rename = "truncate")]
    Truncate,
}

impl Fidelity {
    /// All values, in the order the reference lists them.
    pub const ALL: [Self; 6] = [
        Self::Full,
        Self::Compact,
        Self::SummaryHigh,
        Self::SummaryMedium,
        Self::SummaryLow,
        Self::Truncate,
    ];

    /// The word used in workflows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Compact => "compact",
            Self::SummaryHigh => "summary:high",
            Self::SummaryMedium => "summary:medium",
            Self::SummaryLow => "summary:low",
            Self::Truncate => "truncate",
        }
    }
}

impl std::fmt::Display for Fidelity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The word is no fidelity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no fidelity; use full, compact, summary:high, summary:medium, summary:low or truncate"
)]
pub struct ParseFidelityError(pub String);

impl FromStr for Fidelity {
    type Err = ParseFidelityError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|fidelity| fidelity.as_str() == word)
            .ok_or_else(|| ParseFidelityError(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for fidelity in Fidelity::ALL {
            assert_eq!(fidelity.as_str().parse(), Ok(fidelity));
            assert_eq!(serde_json::to_value(fidelity).unwrap(), fidelity.as_str());
        }
        insta::assert_snapshot!("verbose".parse::<Fidelity>().unwrap_err(), @"`verbose` is no fidelity; use full, compact, summary:high, summary:medium, summary:low or truncate");
    }
}
