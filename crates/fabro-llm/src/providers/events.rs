//! What the readers of all event streams have in common.

use std::borrow::Cow;

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
        json(&self.data).map_err(EventError::Malformed)
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

/// Parses JSON from a server. Replaces an unpaired surrogate (`\ud83d` alone) with `U+FFFD`: a server that
/// streams its answer in chunks may split a character.
pub(super) fn json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match replace_unpaired_surrogates(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(text) => serde_json::from_str(&text),
    })
}

/// Replaces each escaped unpaired surrogate with `\ufffd`.
fn replace_unpaired_surrogates(text: &str) -> Cow<'_, str> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let bytes = text.as_bytes();
    let mut whole = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                whole.push_str(&text[copied..at]);
                whole.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // Skips the escaped character.
            _ => at = (at + 2).min(bytes.len()),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    whole.push_str(&text[copied..]);
    Cow::Owned(whole)
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

/// Upper bound for a reported token count; larger values could overflow sums.
pub(super) const MAX_TOKENS: u64 = 1 << 40;

/// A count of tokens, if it is there.
pub(super) fn set_count(field: &mut u64, value: &Value) {
    // Some servers write counts as `12.0`.
    let text = value.as_f64().map(|count| format!("{count:.0}"));
    if let Some(count) = value.as_u64().or_else(|| text?.parse().ok()) {
        *field = count.min(MAX_TOKENS);
    }
}

#[cfg(test)]
mod json_tests {
    use super::*;

    #[test]
    fn unpaired_surrogates_are_replaced() {
        let check = |text: &str, expect: &str| {
            assert_eq!(json(text).unwrap(), Value::from(expect), "{text}");
        };
        check(r#""a\ud83d\ude00b""#, "a😀b");
        check(r#""a\ud83db""#, "a\u{fffd}b");
        check(r#""\ude00\ud83d\ud83d\ude00""#, "\u{fffd}\u{fffd}😀");
        check(r#""\\ud83d""#, "\\ud83d");
        check(r#""\\\ud83d""#, "\\\u{fffd}");
        for broken in [r#""\ud83"#, r#""\u""#, r#""\ud83d"#, "{", r#""\"#] {
            assert!(json(broken).is_err(), "{broken}");
        }
    }
}
