use serde::{Deserialize, Serialize};

/// What a tool is told about the workflow that its agent works in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolContext {
    /// What the stages before the recent turns came to; empty when there are none.
    pub workflow_summary: String,
    /// The last things that stages and people said, oldest first.
    pub recent_turns: Vec<String>,
    /// How many such turns there were so far.
    pub round: u64,
}
