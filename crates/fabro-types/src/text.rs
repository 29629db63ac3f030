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

/// A text that is safe to print on a terminal. Control characters other than line ends and tabs,
/// which could move the cursor, write the clipboard or change the title of a window, become U+FFFD.
/// Characters that show nothing, or change the direction of writing, become visible escapes such as
/// `\u{202e}`. Joiners inside words of other scripts and inside emoji stay.
///
/// ```
/// assert_eq!(fabro_types::clean("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
/// assert_eq!(fabro_types::clean("pay\u{202e}lla"), r"pay\u{202e}lla");
/// assert_eq!(fabro_types::clean("👩\u{200d}💻"), "👩\u{200d}💻");
/// ```
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_control(c) || is_invisible(c) || is_joiner(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        if is_control(c) {
            shown.push(char::REPLACEMENT_CHARACTER);
        } else if is_invisible(c) || (is_joiner(c) && !may_be_joined(before)) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        before = c;
    }
    Cow::Owned(shown)
}

fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Characters without a width, and those that set the direction of writing.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

fn may_be_joined(before: char) -> bool {
    !before.is_ascii() && !before.is_control() && !is_invisible(before) && !is_joiner(before)
}

/// A text on one line of at most `max` characters: whitespace becomes one space, other characters
/// that are not safe to print are replaced as by [`clean`], and `…` is the last character when
/// there are more.
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
        let word = clean(word);
        for c in space.chars().chain(word.chars()) {
            if length == max {
                line.pop();
                line.push('…');
                return line;
            }
            line.push(c);
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

/// A duration in milliseconds as people write it: `340ms`, `1.2s`, `2m 05s`, `1h 02m`.
pub fn took(ms: u64) -> String {
    let seconds = ms / 1_000;
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// A number of tokens in a few characters: `850`, `3.2k`, `32k`, `1.4M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_short() {
        let short = [0, 999, 1_000, 9_999, 32_768, 999_999, 1_449_000].map(tokens);
        assert_eq!(short, ["0", "999", "1.0k", "9.9k", "32k", "999k", "1.4M"]);
    }

    #[test]
    fn joiners_stay_where_a_script_uses_them() {
        let same = ["می\u{200c}خواهم", "👩\u{200d}👩\u{200d}👧", "❤\u{fe0f}", "a\nb\tc"];
        for text in same {
            assert_eq!(clean(text), text);
        }
        assert_eq!(clean("ad\u{200d}min\u{9b}\r"), "ad\\u{200d}min\u{fffd}\u{fffd}");
        assert_eq!(clean("é\u{200d}\u{200d}"), "é\u{200d}\\u{200d}");
    }

    #[test]
    fn alternatives_are_listed() {
        assert_eq!(one_of::<&str>(&[]), "");
        assert_eq!(one_of(&["a"]), "a");
        assert_eq!(one_of(&["a", "b", "c"]), "a, b or c");
    }

    #[test]
    fn a_line_has_no_control_characters() {
        assert_eq!(one_line("\u{1b}[0m x", 9), "\u{fffd}[0m x");
        assert_eq!(one_line("a\u{202e}\u{200b}b\tc", 99), r"a\u{202e}\u{200b}b c");
        assert_eq!(one_line("äöü", 3), "äöü");
        assert_eq!(one_line("äöü", 2), "ä…");
    }
}
