//! Errors of pest grammars, in words: the one place that turns `Rule`s into a message. Feature
//! `pest`.

use std::borrow::Cow;

use pest::RuleType;
use pest::error::{Error, ErrorVariant, InputLocation};

use crate::{Span, SyntaxError, one_of};

impl From<pest::Span<'_>> for Span {
    fn from(span: pest::Span<'_>) -> Self {
        Self::new(span.start(), span.end())
    }
}

/// A place where a text stops to fit its grammar.
#[derive(Clone, Debug)]
pub struct Unexpected<'a> {
    /// `expected …, found …`, at what was found.
    pub error: SyntaxError,
    /// What the grammar would have taken, each once: words first, then signs in
    /// backticks, then the end.
    pub expected: Vec<&'static str>,
    /// The text from the error on.
    pub rest: &'a str,
}

/// Puts an error of a grammar into words. `symbol` is what a rule is called in messages; `None` for
/// rules that only say that a bigger one is missing.
pub fn unexpected<'a, R: RuleType>(
    text: &'a str,
    error: &Error<R>,
    symbol: impl Fn(R) -> Option<&'static str>,
) -> Unexpected<'a> {
    let start = match error.location {
        InputLocation::Pos(start) | InputLocation::Span((start, _)) => start,
    };
    let rest = text.get(start..).unwrap_or_default();
    let (length, found) = found(rest);
    let mut expected: Vec<&'static str> = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => {
            positives.iter().filter_map(|rule| symbol(*rule)).collect()
        }
        ErrorVariant::CustomError { .. } => Vec::new(),
    };
    let is_end = |symbol: &str| symbol.starts_with("the end");
    expected.sort_unstable_by_key(|symbol| (is_end(symbol), symbol.starts_with('`'), *symbol));
    expected.dedup();
    let message = match &error.variant {
        ErrorVariant::CustomError { message } => message.clone(),
        ErrorVariant::ParsingError { .. } if expected.is_empty() => format!("unexpected {found}"),
        ErrorVariant::ParsingError { .. } => {
            format!("expected {}, found {found}", one_of(&expected))
        }
    };
    let error = SyntaxError::new(message, Span::new(start, start + length));
    Unexpected { error, expected, rest }
}

/// The first word or sign of a text: its length, and its name in a message.
pub fn found(rest: &str) -> (usize, Cow<'static, str>) {
    let Some(first) = rest.chars().next() else { return (0, Cow::Borrowed("the end")) };
    let word: String =
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').take(40).collect();
    let name = match first {
        '"' => Cow::Borrowed("a quoted string"),
        '`' => Cow::Borrowed("a backtick"),
        first if first.is_control() || first == '\u{a0}' => {
            Cow::Owned(first.escape_unicode().to_string())
        }
        first if word.is_empty() => Cow::Owned(format!("`{first}`")),
        _ => Cow::Owned(format!("`{word}`")),
    };
    (word.len().max(first.len_utf8()), name)
}
