use serde::{Deserialize, Serialize};

/// What one clause of a condition saw and came to; what `fabro explain` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClauseVerdict {
    /// The clause as it is written, such as `context.score >= 80`.
    pub text: String,
    /// The value its key had, as text; empty when it had none. At most 200 characters.
    pub value: String,
    /// Whether the clause holds.
    pub holds: bool,
}
