//! Truncates text to what a list item or a code fence can hold.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The first `max` characters of a line, with a note about the others. Control characters except
/// tabs become `U+FFFD`: they mean nothing to a model and break terminals and command lines.
pub(crate) fn cut_line(line: &str, max: usize) -> String {
    let end = line.char_indices().nth(max).map_or(line.len(), |(at, _)| at);
    let mut cut = clean(&line[..end]).into_owned();
    if end < line.len() {
        let omitted = line[end..].chars().count();
        let _ = write!(cut, "… ({} omitted)", plural(omitted, "character"));
    }
    cut
}

/// The same for a text of several lines, which become one.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    cut_line(text.trim(), max).replace('\n', " ")
}

/// The text with its control characters, other than tabs and line ends, made visible.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n');
    if text.contains(is_hidden) {
        Cow::Owned(text.replace("\r\n", "\n").replace(is_hidden, "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn plural(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Which lines of a text are kept when it has too many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    First,
    Last,
}

/// The last `max` lines of a text after a note about those left out. Line ends at the end of the
/// text do not count.
pub(crate) fn last_lines(text: &str, max: usize) -> Cow<'_, str> {
    let text = text.trim_end_matches(['\n', '\r']);
    let Some((at, _)) = text.rmatch_indices('\n').nth(max.saturating_sub(1)) else {
        return Cow::Borrowed(text);
    };
    let omitted = text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1;
    Cow::Owned(format!("({} omitted)\n{}", plural(omitted, "line"), &text[at + 1..]))
}

/// Puts a text between fences that none of its lines can close. Every line gets the indentation
/// but blank ones.
pub(crate) fn fence(text: &str, indent: &str, out: &mut String) {
    let mark = "`".repeat((longest_run_of_ticks(text) + 1).max(3));
    let _ = writeln!(out, "{indent}{mark}");
    for line in text.split('\n') {
        let indent = if line.is_empty() { "" } else { indent };
        let _ = writeln!(out, "{indent}{line}");
    }
    let _ = writeln!(out, "{indent}{mark}");
}

/// One line of code between marks that it cannot close.
pub(crate) fn inline_code(line: &str) -> String {
    let mark = "`".repeat(longest_run_of_ticks(line) + 1);
    let pad = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{mark}{pad}{line}{pad}{mark}")
}

/// Closes a code fence that a truncated text leaves open.
pub(crate) fn close_fence(text: &mut String) {
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let mark = line.trim_start();
        let length = mark.len() - mark.trim_start_matches('`').len();
        match open {
            None if length >= 3 => open = Some(&line[..line.len() - mark.len() + length]),
            Some(opened) if length >= opened.trim().len() && length == mark.trim_end().len() => {
                open = None;
            }
            _ => {}
        }
    }
    if let Some(mark) = open.map(str::to_owned) {
        text.push('\n');
        text.push_str(&mark);
    }
}

fn longest_run_of_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// `950`, `12.4k`, `3k`, `1.2M`.
pub(crate) fn short_number(number: u64) -> String {
    let (unit, suffix) = match number {
        0..1_000 => return number.to_string(),
        1_000..999_950 => (1_000, "k"),
        _ => (1_000_000, "M"),
    };
    let tenths = number.saturating_add(unit / 20) / (unit / 10);
    match tenths % 10 {
        0 => format!("{}{suffix}", tenths / 10),
        rest => format!("{}.{rest}{suffix}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shortened() {
        for (number, short) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1k"),
            (3_200, "3.2k"),
            (12_449, "12.4k"),
            (12_450, "12.5k"),
            (999_949, "999.9k"),
            (999_950, "1M"),
            (1_250_000, "1.3M"),
        ] {
            assert_eq!(short_number(number), short);
        }
        assert!(short_number(u64::MAX).ends_with('M'));
    }

    #[test]
    fn lines_are_cut() {
        assert_eq!(last_lines("a\nb\nc\n\n", 3), "a\nb\nc");
        assert_eq!(last_lines("a\nb\nc\n\n", 2), "(1 line omitted)\nb\nc");
        assert_eq!(cut_line("äöü\u{1b}x", 3), "äöü… (2 characters omitted)");
        assert_eq!(cut_line("\u{1b}[0m\tx", 9), "\u{FFFD}[0m\tx");
        assert_eq!(one_line(" a\r\nb\nc ", 9), "a b c");
    }

    #[test]
    fn marks_outlast_what_is_in_them() {
        assert_eq!(inline_code("a"), "`a`");
        assert_eq!(inline_code("`a``"), "``` `a`` ```");
        let mut out = String::new();
        fence("```\n\nx", "  ", &mut out);
        assert_eq!(out, "  ````\n  ```\n\n  x\n  ````\n");
        let mut cut = "a\n  ````\n  ```".to_owned();
        close_fence(&mut cut);
        assert_eq!(cut, "a\n  ````\n  ```\n  ````");
        close_fence(&mut cut);
        assert_eq!(cut, "a\n  ````\n  ```\n  ````");
    }
}
