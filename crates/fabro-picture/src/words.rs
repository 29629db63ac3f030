//! Texts of a workflow in a picture: wrapped, measured and escaped.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// One line in which nothing controls a terminal or is invisible; whitespace is one space.
pub(crate) fn plain(text: &str) -> String {
    fabro_types::one_line(text, usize::MAX)
}

/// How many columns of a terminal a text takes; in a picture each is about as wide as a letter.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// A text as lines of at most so many columns, the last one cut with `…` where it does not fit.
pub(crate) fn wrapped(text: &str, columns: usize, lines: usize) -> Vec<String> {
    let mut all: Vec<String> = vec![String::new()];
    for word in plain(text).split(' ') {
        let last = all.last_mut().map_or(0, |line| width(line));
        let is_new = last > 0 && last + 1 + width(word) > columns;
        if is_new {
            all.push(String::new());
        }
        if let Some(line) = all.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    let is_cut = all.len() > lines;
    all.truncate(lines);
    let last = all.len().saturating_sub(1);
    for (at, line) in all.iter_mut().enumerate() {
        if width(line) > columns || (is_cut && at == last) {
            *line = cut(line, columns.saturating_sub(1)) + "…";
        }
    }
    all
}

/// The beginning of a text, in columns.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).collect()
}

/// For the content of an element, or an attribute in double quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in fabro_types::clean(text).chars() {
        match c {
            // XML has no escape for them.
            '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
