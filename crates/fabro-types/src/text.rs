//! Short forms of strings, for messages.

use std::borrow::Cow;
use std::fmt::Write as _;

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

/// The most characters of one word of a message: those of a long path.
const WORD: usize = 1_000;

/// The most characters of the beginning of a message, and of its end.
const MESSAGE: [usize; 2] = [6_000, 1_500];

/// A message of bounded length with any text quoted in it: of a word without whitespace the first 1,000 characters
/// are kept, and of a message of more than 7,500 characters the first 6,000 and the last 1,500. `…` stands for the rest.
///
/// ```
/// let name = "n".repeat(8_000_000);
/// let message = format!("node `{name}` is not reachable: add an edge to it");
/// let bounded = fabro_types::bounded(&message);
/// assert!(bounded.len() < 1_100 && bounded.ends_with("n… is not reachable: add an edge to it"));
/// ```
pub fn bounded(message: &str) -> Cow<'_, str> {
    // Every character has a byte at least.
    if message.len() <= WORD {
        return Cow::Borrowed(message);
    }
    let mut text = Cow::Borrowed(message);
    if message.split(char::is_whitespace).any(|word| word.len() > WORD) {
        let mut short = String::new();
        for word in message.split_inclusive(char::is_whitespace) {
            let end = word.trim_end_matches(char::is_whitespace).len();
            short.push_str(&excerpt(&word[..end], WORD));
            short.push_str(&word[end..]);
        }
        text = Cow::Owned(short);
    }
    let [head, tail] = MESSAGE;
    if text.char_indices().nth(head + tail).is_none() {
        return text;
    }
    let start = text.char_indices().nth(head).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().nth_back(tail - 1).map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("{}…{}", &text[..start], &text[end..]))
}

/// A text that is safe to print on a terminal. Control characters other than line ends and tabs,
/// which could move the cursor, write the clipboard or change the title of a window, become U+FFFD.
/// Characters that show nothing, or change the direction of writing, become visible escapes such as
/// `\u{202e}`: those that Unicode calls `Default_Ignorable_Code_Point` or `Bidi_Control`, separators of lines and
/// annotations.
///
/// What writing needs stays, one after a character: joiners in scripts that have them and in emoji, the
/// variation selectors of emoji (`❤️`, `1️⃣`), of ideographs and of Mongolian letters. Tag characters are always
/// escaped, also those of the flags of England, Scotland and Wales.
///
/// ```
/// assert_eq!(fabro_types::clean("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
/// assert_eq!(fabro_types::clean("pay\u{202e}lla"), r"pay\u{202e}lla");
/// assert_eq!(fabro_types::clean("👩\u{200d}💻"), "👩\u{200d}💻");
/// ```
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_control(c) || is_invisible(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    // What a joiner or a selector would belong to.
    let mut base = None;
    while let Some(c) = chars.next() {
        if is_control(c) {
            shown.push(char::REPLACEMENT_CHARACTER);
            base = None;
        } else if !is_invisible(c) {
            shown.push(c);
            base = Some(c);
        } else if base.is_some_and(|base| belongs(c, base, chars.peek() == Some(&'\u{20e3}'))) {
            shown.push(c);
            // An emoji may be joined after its selector.
            base = base.filter(|base| c == '\u{fe0f}' && *base > '\u{2000}').map(|_| c);
        } else {
            shown.extend(c.escape_unicode());
            base = None;
        }
    }
    Cow::Owned(shown)
}

fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Characters without a width, and those that set the direction of writing.
pub(crate) fn is_invisible(c: char) -> bool {
    c > '~'
        && matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// An invisible character that a script or an emoji needs after this one; `in_keycap` when what follows
/// encloses the two in a key.
fn belongs(c: char, base: char, in_keycap: bool) -> bool {
    match c {
        // No script before Arabic has them.
        '\u{200c}' | '\u{200d}' => base >= '\u{600}',
        '\u{fe0e}' | '\u{fe0f}' => {
            let is_key = base.is_ascii_digit() || matches!(base, '#' | '*');
            is_key && in_keycap || matches!(base, '©' | '®') || is_symbol(base)
        }
        '\u{180b}'..='\u{180d}' | '\u{180f}' => matches!(base, '\u{1820}'..='\u{18aa}'),
        '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => {
            matches!(base, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
        }
        _ => false,
    }
}

fn is_symbol(c: char) -> bool {
    matches!(c, '\u{2030}'..='\u{303f}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
        && !is_invisible(c)
}

/// JSON whose strings hold no raw character that a terminal obeys: DEL and U+0080 to U+009F, which JSON
/// allows, become `\u007f` and the like. It means the same.
///
/// ```
/// assert_eq!(fabro_types::escaped_json("\"a\u{9b}2J\"".to_owned()), r#""a\u009b2J""#);
/// ```
pub fn escaped_json(json: String) -> String {
    // The first byte of U+0080 to U+00BF.
    if !json.bytes().any(|byte| matches!(byte, 0x7f | 0xc2)) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
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
    fn messages_have_a_limit() {
        let short = |text: &str| bounded(text).chars().count();
        for text in ["", "a message", &"é".repeat(WORD), &"word ".repeat(1_500)] {
            assert_eq!(bounded(text), text);
        }
        assert_eq!(short(&"é".repeat(WORD + 1)), WORD);
        assert_eq!(short(&"two words ".repeat(1_000_000)), 7_501);
        let long = format!("in  `{0}`\n  or {0}: write  a shorter one\n", "x".repeat(5_000));
        assert_eq!(
            bounded(&long),
            long.replace(&"x".repeat(5_000), "@")
                .replace("`@`", &format!("`{}…", "x".repeat(998)))
                .replace("@:", &format!("{}…", "x".repeat(999)))
        );
        let ends = format!("{} the end", "é\u{3000}".repeat(100_000));
        assert!(bounded(&ends).ends_with("é\u{3000} the end"));
    }

    #[test]
    fn joiners_stay_where_a_script_uses_them() {
        let same = ["می\u{200c}خواهم", "👩\u{200d}👩\u{200d}👧", "❤\u{fe0f}", "a\nb\tc"];
        for text in same {
            assert_eq!(clean(text), text);
        }
        assert_eq!(clean("ad\u{200d}min\u{9b}\r"), "ad\\u{200d}min\u{fffd}\u{fffd}");
        assert_eq!(clean("é\u{200d}"), "é\\u{200d}");
        assert_eq!(clean("می\u{200c}\u{200c}"), "می\u{200c}\\u{200c}");
    }

    #[test]
    fn nothing_invisible_is_printed() {
        let ignorable = [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x206f,
            0x3164..=0x3164,
            0xfe00..=0xfe0f,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfff8,
            0x1_bca0..=0x1_bca3,
            0x1_d173..=0x1_d17a,
            0xe_0000..=0xe_0fff,
        ];
        for code in ignorable.into_iter().flatten() {
            let c = char::from_u32(code).unwrap();
            assert_eq!(clean(&format!("a{c}b")), format!("a\\u{{{code:x}}}b"));
            assert_eq!(clean(&format!("{c}")), format!("\\u{{{code:x}}}"));
        }
    }

    #[test]
    fn selectors_stay_where_a_character_has_them() {
        let same = [
            "❤\u{fe0f}\u{200d}🔥",
            "1\u{fe0f}\u{20e3}",
            "葛\u{e0100}飾",
            "\u{1820}\u{180b}",
            "☎\u{fe0e}",
            "©\u{fe0f}",
        ];
        for text in same {
            assert_eq!(clean(text), text);
        }
        assert_eq!(clean("❤\u{fe0f}\u{fe0f}"), "❤\u{fe0f}\\u{fe0f}");
        assert_eq!(clean("a\u{e0100}1\u{fe0f}"), "a\\u{e0100}1\\u{fe0f}");
        assert_eq!(clean("葛\u{e0100}\u{e0101}"), "葛\u{e0100}\\u{e0101}");
        assert_eq!(clean("🏴\u{e0067}\u{e007f}"), "🏴\\u{e0067}\\u{e007f}");
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
