use std::borrow::Cow;
use std::fmt::Write;

/// How much of an output a model gets to read, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of its start; 20,000.
    pub head: usize,
    /// Of its end; 10,000.
    pub tail: usize,
    /// Of one line; 10,000.
    pub line: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head: 20_000, tail: 10_000, line: 10_000 }
    }
}

impl Limits {
    /// The same with a start and an end that are not longer than this together.
    #[must_use]
    pub const fn bounded(self, chars: usize) -> Self {
        if self.head.saturating_add(self.tail) <= chars {
            return self;
        }
        let tail = if self.tail < chars / 3 { self.tail } else { chars / 3 };
        Self { head: chars - tail, tail, ..self }
    }

    /// The start and the end of a text that is too long, and between them how much is missing. Long
    /// lines lose their end first.
    pub fn cut<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        let text = if self.has_long_line(&text) { Cow::Owned(self.cut_lines(&text)) } else { text };
        if text.len() <= self.head.saturating_add(self.tail) {
            return text;
        }
        let count = text.chars().count();
        let omitted = count.saturating_sub(self.head.saturating_add(self.tail));
        if omitted == 0 {
            return text;
        }
        let head = &text[..end_of(&text, self.head)];
        let tail = &text[end_of(&text, count - self.tail)..];
        Cow::Owned(format!("{head}\n[… {omitted} characters omitted …]\n{tail}"))
    }

    fn has_long_line(&self, text: &str) -> bool {
        text.len() > self.line && text.split('\n').any(|line| line.len() > self.line)
    }

    fn cut_lines(&self, text: &str) -> String {
        let mut cut = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            push_line(&mut cut, line, self.line);
            cut.push_str(end);
        }
        cut
    }
}

/// Appends the start of a line, and how much is missing.
pub(crate) fn push_line(to: &mut String, line: &str, limit: usize) {
    let end = end_of(line, limit);
    to.push_str(&line[..end]);
    if end < line.len() {
        // Writing to a string cannot fail.
        let _ = write!(to, " [… {} more characters]", line[end..].chars().count());
    }
}

/// Where the first `count` characters end, in bytes.
pub(crate) fn end_of(text: &str, count: usize) -> usize {
    if text.len() <= count {
        return text.len();
    }
    text.char_indices().nth(count).map_or(text.len(), |(end, _)| end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let limits = Limits { head: 5, tail: 3, line: 7 };
        assert_eq!(limits.cut(Cow::Borrowed(text)), expected);
    }

    #[test]
    fn head_tail_and_lines() {
        check("", "");
        check("abc\ndefg", "abc\ndefg");
        check("abc\ndefgh", "abc\nd\n[… 1 characters omitted …]\nfgh");
        check("ä\nöü\nßß\n", "ä\nöü\nßß\n");
        check("abcd\nefg\nhij\nkl", "abcd\n\n[… 7 characters omitted …]\n\nkl");
        let lines = Limits { head: 100, tail: 100, line: 4 };
        assert_eq!(
            lines.cut(Cow::Borrowed("äöüß\näöüßx\nabcd\n\nabcdefg")),
            "äöüß\näöüß [… 1 more characters]\nabcd\n\nabcd [… 3 more characters]"
        );
    }

    #[test]
    fn a_bound_keeps_more_of_the_start() {
        let limits = Limits { head: 50, tail: 10, line: 7 };
        assert_eq!(limits.bounded(60), limits);
        assert_eq!(limits.bounded(45), Limits { head: 35, tail: 10, line: 7 });
        assert_eq!(limits.bounded(15), Limits { head: 10, tail: 5, line: 7 });
        assert_eq!(limits.bounded(0), Limits { head: 0, tail: 0, line: 7 });
    }

    #[test]
    fn nothing_is_copied_that_fits() {
        let text = "x".repeat(10_000);
        assert!(matches!(Limits::default().cut(Cow::Borrowed(&text)), Cow::Borrowed(_)));
    }
}
