use serde::{Deserialize, Serialize};

/// How a stage ended. Machine-read text is the long form (`succeeded`); wherever a status is read
/// the short form of older workflows (`success`) means the same.
/// Rules: `docs/workflow-language.md`, "Outcomes".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The stage did what it was for.
    Succeeded,
    /// Attempts or time ran out, and the node allows a partial result.
    PartiallySucceeded,
    /// The stage was passed over.
    Skipped,
    /// The stage did not do what it was for.
    Failed,
}

impl Status {
    /// The machine-read word: `succeeded`, `failed`, `partially_succeeded` or `skipped`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::PartiallySucceeded => "partially_succeeded",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
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
        Some(match word {
            "succeeded" | "success" => Self::Succeeded,
            "failed" | "fail" | "failure" => Self::Failed,
            "partially_succeeded" | "partial_success" => Self::PartiallySucceeded,
            "skipped" | "skip" => Self::Skipped,
            _ => return None,
        })
    }

    /// True for `succeeded` and `partially_succeeded`: what a goal gate asks for.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Succeeded | Self::PartiallySucceeded)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// A driver is at work on it.
    Running,
    /// It waits for a person or for a larger budget.
    Paused,
    /// It reached its exit.
    Succeeded,
    /// It ended without reaching its exit.
    Failed,
    /// Somebody ended it.
    Canceled,
    /// It is not finished and has no driver: `fabro resume` continues it.
    Interrupted,
}

impl RunStatus {
    /// The machine-read word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Interrupted => "interrupted",
        }
    }

    /// True once nothing can go on: `succeeded`, `failed`, `canceled`.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
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
    }
}
