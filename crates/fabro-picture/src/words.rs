//! Texts of a workflow in a picture: wrapped, measured and escaped.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Characters that would change how the text around them is shown.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// One line without what controls text; whitespace is one space.
pub(crate) fn plain(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !is_control(*c))
        .collect();
    text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
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
    for c in text.chars().filter(|c| !is_control(*c)) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
