use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::bounded;

/// A stretch of source text, in bytes: `start` is in it, `end` is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// From byte `start` up to, not including, `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// The smallest span that holds both.
    pub fn to(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The workflow can run.
    Warning,
    /// The workflow does not run.
    Error,
}

/// One finding about a source text. As an error it is its message alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Diagnostic {
    /// The stable name of the rule, such as `edge-target`.
    pub rule: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong, a fragment without a full stop.
    pub message: String,
    /// Where in the source.
    pub span: Span,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Diagnostic {
    /// An error under this rule. What the message quotes of the file is [`bounded`].
    pub fn error(rule: &'static str, span: Span, message: impl Into<String>) -> Self {
        let message = in_bounds(message.into());
        Self { rule, severity: Severity::Error, message, span, fix: None }
    }

    /// A warning under this rule.
    pub fn warning(rule: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(rule, span, message) }
    }

    /// The same finding with a fix, which is [`bounded`] too.
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(in_bounds(fix.into()));
        self
    }
}

fn in_bounds(message: String) -> String {
    match bounded(&message) {
        Cow::Borrowed(_) => message,
        Cow::Owned(short) => short,
    }
}

/// A place in a text as people count: line and column from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Finds lines and columns of byte offsets; made once a text.
#[derive(Clone, Debug)]
pub struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    /// Reads the text once.
    pub fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { text, starts: starts.collect() }
    }

    /// The position of a byte offset; offsets past the end, or inside a character, count as the
    /// nearest boundary before them.
    pub fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset.min(self.text.len()));
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        Position { line, column: self.text[start..offset].chars().count() + 1 }
    }

    /// The text of a line (from 1) without its line end; empty when there is no such line.
    pub fn line(&self, line: usize) -> &'a str {
        let Some(start) = line.checked_sub(1).and_then(|at| self.starts.get(at)) else {
            return "";
        };
        self.text[*start..].split('\n').next().unwrap_or_default().trim_end_matches('\r')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let index = LineIndex::new("ab\nçde\r\n");
        let at = |offset| {
            let position = index.position(offset);
            (position.line, position.column)
        };
        assert_eq!([at(0), at(2), at(3), at(5), at(99)], [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)]);
        assert_eq!([index.line(1), index.line(2), index.line(9)], ["ab", "çde", ""]);
    }
}
