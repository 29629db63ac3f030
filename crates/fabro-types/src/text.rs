//! Short forms of strings, for messages.

use std::borrow::Cow;

/// At most `max` characters of a text; `…` is the last one when there are more.
///
/// ```
/// assert_eq!(fabro_types::excerpt("timeout", 7), "timeout");
/// assert_eq!(fabro_types::excerpt("timeout", 5), "time…");
/// ```
pub fn excerpt(text: &str, max: usize) -> Cow<'_, str> {
    if text.char_indices().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    let end = text.char_indices().nth(max.saturating_sub(1)).map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// A text on one line of at most `max` characters: whitespace becomes one space, other control
/// characters U+FFFD, and `…` is the last character when there are more.
///
/// ```
/// assert_eq!(fabro_types::one_line(" a\r\n  b\tc ", 9), "a b c");
/// assert_eq!(fabro_types::one_line("retry\nlater", 8), "retry l…");
/// ```
pub fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let space = if length > 0 { " " } else { "" };
        for c in space.chars().chain(word.chars()) {
            if length == max {
                line.pop();
                line.push('…');
                return line;
            }
            line.push(if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
            length += 1;
        }
    }
    line
}

/// Alternatives in a sentence: `a`, `a or b`, `a, b or c`. Empty when there are none.
pub fn one_of<S: AsRef<str>>(words: &[S]) -> String {
    let mut list = String::new();
    for (at, word) in words.iter().enumerate() {
        list.push_str(match at {
            0 => "",
            _ if at + 1 == words.len() => " or ",
            _ => ", ",
        });
        list.push_str(word.as_ref());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_listed() {
        assert_eq!(one_of::<&str>(&[]), "");
        assert_eq!(one_of(&["a"]), "a");
        assert_eq!(one_of(&["a", "b", "c"]), "a, b or c");
    }

    #[test]
    fn a_line_has_no_control_characters() {
        assert_eq!(one_line("\u{1b}[0m x", 9), "\u{fffd}[0m x");
        assert_eq!(one_line("äöü", 3), "äöü");
        assert_eq!(one_line("äöü", 2), "ä…");
    }
}
