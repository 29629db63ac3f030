//! What the readers of all event streams have in common.

use serde_json::Value;

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its type; empty when it has none.
    pub(super) name: String,
    pub(super) data: String,
}

impl Event {
    pub(super) fn json(&self) -> Result<Value, EventError> {
        serde_json::from_str(&self.data).map_err(EventError::Malformed)
    }

    /// Whether it is one of these, or one without a name that is no mere end of the stream.
    pub(super) fn is_one_of(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str()) || (self.name.is_empty() && !self.is_done())
    }

    /// Whether it is `[DONE]`.
    pub(super) fn is_done(&self) -> bool {
        self.data.trim() == "[DONE]"
    }
}

/// Why a model stopped, as far as that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FinishReason {
    /// It was done, called tools, or stopped for a reason that is not known.
    Complete,
    MaxTokens,
    /// The provider held the answer back.
    Filtered,
    /// The context window is full before the answer is whole, in the provider's word.
    WindowFull(String),
    /// The answer is of no use, in the provider's word.
    Failed(String),
}

/// Why a turn cannot be used.
#[derive(Debug)]
pub(super) enum EventError {
    /// An event is not JSON.
    Malformed(serde_json::Error),
    /// The provider sent an error inside its answer.
    Reported(Value),
    /// The provider refuses to answer.
    Refused(String),
    /// The context window is full before the turn was whole.
    WindowFull(String),
    /// The stream ended before the turn was whole.
    EndedEarly,
    /// The turn is of no use.
    Incomplete(String),
}

impl EventError {
    pub(super) fn ended_early() -> Self {
        Self::EndedEarly
    }
}

/// A count of tokens, if it is there.
pub(super) fn set_count(field: &mut u64, value: &Value) {
    // Some servers write counts as `12.0`.
    let text = value.as_f64().map(|count| format!("{count:.0}"));
    if let Some(count) = value.as_u64().or_else(|| text?.parse().ok()) {
        *field = count;
    }
}
