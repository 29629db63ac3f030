use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::{self, Write};

use fabro_types::{ClauseVerdict, Status};
use serde_json::Value;

use crate::clause::{Clause, Operator, Test};
use crate::lookup::resolve;
use crate::number::Number;
use crate::{Lookup, LookupError};

/// Whether a condition holds, and what each of its clauses saw.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// The condition as a whole.
    pub holds: bool,
    /// Every clause in the order of the text, those too that could not change the result.
    pub clauses: Vec<ClauseVerdict>,
}

/// The longest value that a verdict repeats, in characters.
const SHOWN: usize = 200;

impl Clause {
    /// Whether the clause holds.
    pub(crate) fn holds(&self, lookup: &dyn Lookup) -> Result<bool, LookupError> {
        Ok(self.judge(resolve(lookup, &self.key)?.as_deref().unwrap_or(&Value::Null)))
    }

    /// The same with the value that it saw.
    pub(crate) fn verdict(&self, lookup: &dyn Lookup) -> Result<ClauseVerdict, LookupError> {
        let seen = resolve(lookup, &self.key)?;
        let value = seen.as_deref().unwrap_or(&Value::Null);
        Ok(self.shown(&text_of(value), self.judge(value)))
    }

    /// A verdict over a value that is already text.
    pub(crate) fn shown(&self, value: &str, holds: bool) -> ClauseVerdict {
        ClauseVerdict { text: self.text.to_string(), value: shortened(value), holds }
    }

    fn judge(&self, seen: &Value) -> bool {
        let Some(test) = &self.test else { return is_true(seen) };
        match test.operator {
            Operator::Equal => self.equals(test, seen),
            Operator::NotEqual => !self.equals(test, seen),
            Operator::Greater => test.orders(seen, |order| order == Ordering::Greater),
            Operator::Less => test.orders(seen, |order| order == Ordering::Less),
            Operator::GreaterOrEqual => test.orders(seen, |order| order != Ordering::Less),
            Operator::LessOrEqual => test.orders(seen, |order| order != Ordering::Greater),
            Operator::Contains => match seen {
                Value::Array(items) => items.iter().any(|item| same_text(item, &test.value)),
                _ => self.any_spelling(seen, |text| text.contains(&*test.value)),
            },
            Operator::Matches => test
                .pattern
                .as_ref()
                .is_some_and(|pattern| self.any_spelling(seen, |text| pattern.finds(text))),
        }
    }

    fn equals(&self, test: &Test, seen: &Value) -> bool {
        same_text(seen, &test.value)
            || (self.reads_status
                && test.status.is_some()
                && seen.as_str().and_then(Status::parse) == test.status)
    }

    /// Looks at the text of a value, and of a status at all its spellings: `outcome matches
    /// ^success` is to hold whichever of them the context happens to keep.
    fn any_spelling(&self, seen: &Value, looks: impl Fn(&str) -> bool) -> bool {
        let status = seen.as_str().filter(|_| self.reads_status).and_then(Status::parse);
        match status {
            Some(status) => spellings(status).iter().any(|word| looks(word)),
            None => looks(&text_of(seen)),
        }
    }
}

impl Test {
    fn orders(&self, seen: &Value, accepts: impl Fn(Ordering) -> bool) -> bool {
        let order = Number::of(seen).zip(self.number).and_then(|(left, right)| left.compare(right));
        order.is_some_and(accepts)
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

/// A key alone: something that is neither empty, `false` nor `0`.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::String(text) => !matches!(text.as_str(), "" | "false" | "0"),
        other => !same_text(other, "0"),
    }
}

/// The text a value compares by: nothing for null, compact JSON for arrays and objects.
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

/// Takes what is written off the front of what is expected; fails at the first difference.
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

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some(_) => text.chars().take(SHOWN - 1).chain(['…']).collect(),
    }
}
