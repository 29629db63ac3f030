use std::cmp::Ordering;

use serde_json::Value;

/// A number of a condition or of the context. Whole numbers stay whole, so that two large ids that
/// differ in the last digit differ.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(i128),
    Float(f64),
}

/// Whether a numeric operator reads this text as a number: a decimal one, with or without a sign.
pub fn is_number(text: &str) -> bool {
    Number::parse(text).is_some()
}

impl Number {
    /// Parses a decimal number. The words that Rust reads as numbers (`inf`, `nan`) are not numbers.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(whole) = text.parse() {
            return Some(Self::Whole(whole));
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return None;
        }
        text.parse().ok().map(Self::Float)
    }

    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => number
                .as_i64()
                .map(i128::from)
                .or_else(|| number.as_u64().map(i128::from))
                .map(Self::Whole)
                .or_else(|| number.as_f64().map(Self::Float)),
            _ => None,
        }
    }

    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => Some(left.cmp(&right)),
            (left, right) => left.float().partial_cmp(&right.float()),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}
