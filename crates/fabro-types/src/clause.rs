use serde::{Deserialize, Serialize};

/// The result of one clause of a condition, as `fabro explain` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClauseResult {
    /// The clause as written, such as `context.score >= 80`.
    pub text: String,
    /// The value of its key, as text; empty when it has none. At most 200 characters.
    pub value: String,
    /// Whether the clause holds.
    pub holds: bool,
}
