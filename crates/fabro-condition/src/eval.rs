use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::{self, Write};

use fabro_types::{ClauseResult, Status, excerpt};
use serde_json::Value;

use crate::Lookup;
use crate::clause::{Clause, Comparison, Operator};
use crate::lookup::value_of;
use crate::number::Number;

/// Whether a condition holds, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ConditionResult {
    /// The condition as a whole.
    pub holds: bool,
    /// Every clause in the order of the text, including those that cannot change the result.
    pub clauses: Vec<ClauseResult>,
}

/// The longest value that a result repeats, in characters.
const MAX_VALUE: usize = 200;

impl Clause {
    /// Whether the clause holds.
    pub(crate) fn holds(&self, lookup: &dyn Lookup) -> bool {
        self.test(value_of(lookup, &self.key).as_deref().unwrap_or(&Value::Null))
    }

    /// Whether the clause holds, with the value that was tested.
    pub(crate) fn explain(&self, lookup: &dyn Lookup) -> ClauseResult {
        let found = value_of(lookup, &self.key);
        let value = found.as_deref().unwrap_or(&Value::Null);
        ClauseResult {
            text: self.text.to_string(),
            value: excerpt(&text_of(value), MAX_VALUE).into_owned(),
            holds: self.test(value),
        }
    }

    fn test(&self, value: &Value) -> bool {
        let Some(comparison) = &self.comparison else { return is_true(value) };
        match comparison.operator.opposite() {
            Some(operator) => !self.compare(operator, comparison, value),
            None => self.compare(comparison.operator, comparison, value),
        }
    }

    fn compare(&self, operator: Operator, comparison: &Comparison, value: &Value) -> bool {
        let order = || comparison.order(value);
        match operator {
            Operator::Equal => self.equals(comparison, value),
            Operator::NotEqual => !self.equals(comparison, value),
            Operator::Greater => order().is_some_and(Ordering::is_gt),
            Operator::Less => order().is_some_and(Ordering::is_lt),
            Operator::GreaterOrEqual => order().is_some_and(Ordering::is_ge),
            Operator::LessOrEqual => order().is_some_and(Ordering::is_le),
            Operator::Contains => match value {
                Value::Array(items) => items.iter().any(|item| same_text(item, &comparison.value)),
                _ => self.any_spelling(value, |text| text.contains(&*comparison.value)),
            },
            Operator::NotContains | Operator::NotMatches => false,
            Operator::Matches => comparison
                .pattern
                .as_ref()
                .is_some_and(|pattern| self.any_spelling(value, |text| pattern.is_match(text))),
        }
    }

    fn equals(&self, comparison: &Comparison, value: &Value) -> bool {
        same_text(value, &comparison.value)
            || (self.reads_status
                && comparison.status.is_some()
                && value.as_str().and_then(Status::parse) == comparison.status)
    }

    /// Tests the text of a value; of a status all its spellings, so that `outcome matches ^success`
    /// does not depend on the one that the context has.
    fn any_spelling(&self, value: &Value, matches: impl Fn(&str) -> bool) -> bool {
        let status = value.as_str().filter(|_| self.reads_status).and_then(Status::parse);
        match status {
            Some(status) => spellings(status).iter().any(|word| matches(word)),
            None => matches(&text_of(value)),
        }
    }
}

impl Comparison {
    /// How a value compares with this one, when both are numbers.
    fn order(&self, value: &Value) -> Option<Ordering> {
        Number::of(value)?.compare(self.number?)
    }
}

fn spellings(status: Status) -> &'static [&'static str] {
    match status {
        Status::Succeeded => &["succeeded", "success"],
        Status::Failed => &["failed", "fail", "failure"],
        Status::PartiallySucceeded => &["partially_succeeded", "partial_success"],
        Status::Skipped => &["skipped", "skip"],
    }
}

/// A key alone: a value that is not empty, `false` or `0`.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::String(text) => !matches!(text.as_str(), "" | "false" | "0"),
        other => !same_text(other, "0"),
    }
}

/// The text that a value is compared by: empty for null, compact JSON for arrays and objects.
fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// `text_of(value) == text` without building the text.
fn same_text(value: &Value, text: &str) -> bool {
    match value {
        Value::Null => text.is_empty(),
        Value::String(own) => own == text,
        Value::Bool(flag) => text == if *flag { "true" } else { "false" },
        other => {
            let mut rest = Expected(text.as_bytes());
            serde_json::to_writer(&mut rest, other).is_ok() && rest.0.is_empty()
        }
    }
}

/// A writer that fails at the first byte that is not the expected one.
struct Expected<'a>(&'a [u8]);

impl Write for Expected<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
