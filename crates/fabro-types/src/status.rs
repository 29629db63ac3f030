use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// How a stage ended. Machine-read text is the long form (`succeeded`); wherever a status is read
/// the short form of older workflows (`success`) means the same.
/// Rules: `docs/workflow-language.md`, "Outcomes".
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Default,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The stage did its work.
    #[default]
    #[strum(to_string = "succeeded", serialize = "success")]
    Succeeded,
    /// Attempts or time ran out, and the node allows a partial result.
    #[strum(to_string = "partially_succeeded", serialize = "partial_success")]
    PartiallySucceeded,
    /// The stage was not run.
    #[strum(to_string = "skipped", serialize = "skip")]
    Skipped,
    /// The stage did not do its work.
    #[strum(to_string = "failed", serialize = "fail", serialize = "failure")]
    Failed,
}

impl Status {
    /// The machine-read word: `succeeded`, `failed`, `partially_succeeded` or `skipped`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The word preambles print: `success`, `fail`, `partial success` or `skipped`.
    pub fn short(self) -> &'static str {
        match self {
            Self::Succeeded => "success",
            Self::PartiallySucceeded => "partial success",
            Self::Skipped => "skipped",
            Self::Failed => "fail",
        }
    }

    /// Reads either spelling; `None` for any other word.
    pub fn parse(word: &str) -> Option<Self> {
        word.parse().ok()
    }

    /// Reads a spelling as models write it: in any case, with white space around it, and with `-` or a space for `_`.
    pub fn parse_loosely(word: &str) -> Option<Self> {
        Self::parse(&word.trim().to_lowercase().replace(['-', ' '], "_"))
    }

    /// True for `succeeded` and `partially_succeeded`: what a goal gate asks for.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Succeeded | Self::PartiallySucceeded)
    }
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunStatus {
    /// A driver runs it.
    Running,
    /// It waits for a person or for a larger budget.
    Paused,
    /// It reached its exit, and every failure on the way was handled.
    Succeeded,
    /// It reached its exit, with failures that nothing handled.
    PartiallySucceeded,
    /// It ended without reaching its exit.
    Failed,
    /// A person canceled it.
    Canceled,
    /// It is not finished and has no driver: `fabro resume` continues it.
    Interrupted,
}

impl RunStatus {
    /// The machine-read word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True for a finished run: `succeeded`, `partially_succeeded`, `failed`, `canceled`.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::PartiallySucceeded | Self::Failed | Self::Canceled)
    }

    /// The status of a run that reached its exit: `run.completed` says how.
    pub fn of_completed(status: Status) -> Self {
        match status {
            Status::PartiallySucceeded => Self::PartiallySucceeded,
            _ => Self::Succeeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_reads_back_from_both_spellings() {
        for status in
            [Status::Succeeded, Status::Failed, Status::PartiallySucceeded, Status::Skipped]
        {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        for (word, status) in [
            ("success", Status::Succeeded),
            ("fail", Status::Failed),
            ("failure", Status::Failed),
            ("partial_success", Status::PartiallySucceeded),
            ("skip", Status::Skipped),
        ] {
            assert_eq!(Status::parse(word), Some(status));
        }
        assert_eq!(Status::parse("needs_dod"), None);
        for word in ["FAILED", "Failed", " fail ", "Failure"] {
            assert_eq!(Status::parse(word), None);
            assert_eq!(Status::parse_loosely(word), Some(Status::Failed));
        }
        assert_eq!(Status::parse_loosely("Partial-Success"), Some(Status::PartiallySucceeded));
        assert_eq!(Status::parse_loosely("not failed"), None);
    }
}
