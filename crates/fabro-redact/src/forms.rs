//! The encoded forms of a value.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::SHORTEST_VALUE;

/// Values of more bytes have fewer forms, to bound the memory.
const LONG: usize = 4_096;

/// How many bytes `xxd -p` and `base64` print in a line.
const HEX_LINE: usize = 30;
const BASE64_LINE: usize = 57;

/// About how many characters of base64 are found alone.
const PIECE: usize = 16;

/// Shorter forms have no parts: ordinary text might hold one.
const SHORTEST_IN_PIECES: usize = 24;

/// Unreserved characters of RFC 3986.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters that Python's `quote` keeps.
const QUOTE: &AsciiSet = &STRICT.remove(b'/');
/// Characters that JavaScript's `encodeURIComponent` keeps.
const COMPONENT: &AsciiSet =
    &STRICT.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');
/// Characters that HTML forms keep; they encode a space as `+`.
const FORM: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_').remove(b' ');
/// Characters that Python's `quote_plus` and Go's `QueryEscape` keep; they encode a space as `+`, too.
const QUERY: &AsciiSet = &STRICT.remove(b' ');
/// Characters that are seldom encoded in the path or the user part of a URL.
const PATH: &AsciiSet = &COMPONENT
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// All forms of a value, unchanged first; some may be equal.
pub(crate) fn forms(value: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![value.to_owned()];
    for escape in [json, json_ascii, json_slashes] {
        let once = escape(value);
        forms.extend([escape(&once), once]);
    }
    if value.len() <= LONG {
        for set in [STRICT, QUOTE, COMPONENT, PATH] {
            let upper = utf8_percent_encode(value, set).to_string();
            forms.extend([lower_escapes(&upper), upper]);
        }
        for set in [FORM, QUERY] {
            let form = utf8_percent_encode(value, set).to_string().replace(' ', "+");
            forms.extend([lower_escapes(&form), form]);
        }
        let hex = hex(value.as_bytes());
        // Every byte is encoded, as some encoders of URLs and strings do.
        for prefix in ["%", "\\x"] {
            forms.push(escaped(&hex.to_ascii_uppercase(), prefix));
            forms.push(escaped(&hex, prefix));
        }
        forms.extend([hex.to_ascii_uppercase(), hex]);
        // The lines of `xxd -p` and `base64`, when the value begins at one.
        let lines =
            |length| value.as_bytes().chunks(length).filter(|line| line.len() >= SHORTEST_VALUE);
        if value.len() > HEX_LINE {
            forms.extend(lines(HEX_LINE).map(self::hex));
        }
        if value.len() > BASE64_LINE {
            forms.extend(lines(BASE64_LINE).flat_map(|line| base64(line, 0)));
        }
        for offset in 0..3 {
            for form in base64(value.as_bytes(), offset) {
                forms.extend(pieces(&form));
                forms.push(form);
            }
        }
    }
    forms.into_iter().map(String::into_bytes).collect()
}

fn json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// JSON with non-ASCII characters escaped.
fn json_ascii(value: &str) -> String {
    let mut escaped = String::new();
    let mut units = [0; 2];
    for c in json(value).chars() {
        if c.is_ascii() && c != '\u{7f}' {
            escaped.push(c);
        } else {
            let units = c.encode_utf16(&mut units).iter();
            escaped.extend(units.map(|unit| format!("\\u{unit:04x}")));
        }
    }
    escaped
}

/// JSON with `/` escaped as well.
fn json_slashes(value: &str) -> String {
    json_ascii(value).replace('/', "\\/")
}

/// Percent-encoded text with lowercase escapes.
fn lower_escapes(encoded: &str) -> String {
    let mut lower = String::with_capacity(encoded.len());
    let mut digits = 0;
    for c in encoded.chars() {
        lower.push(if digits > 0 { c.to_ascii_lowercase() } else { c });
        digits = if c == '%' { 2 } else { i32::max(digits - 1, 0) };
    }
    lower
}

/// Two lowercase digits a byte.
fn hex(value: &[u8]) -> String {
    value.iter().fold(String::with_capacity(value.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Hexadecimal digits with a prefix before those of each byte.
fn escaped(hex: &str, prefix: &str) -> String {
    let mut escaped = String::with_capacity(hex.len() / 2 * (prefix.len() + 2));
    for (index, digit) in hex.chars().enumerate() {
        if index % 2 == 0 {
            escaped.push_str(prefix);
        }
        escaped.push(digit);
    }
    escaped
}

/// The base64 characters that depend on this value only, with `offset` bytes before it in a group of
/// three, in both alphabets.
fn base64(value: &[u8], offset: usize) -> [String; 2] {
    let mut bytes = vec![0; offset];
    bytes.extend(value);
    let own = (offset * 8).div_ceil(6)..bytes.len() * 8 / 6;
    [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].map(|engine| engine.encode(&bytes)[own.clone()].to_owned())
}

/// A line may end anywhere in the value, so that only parts of it are found: all but the one in which the
/// line ends.
fn pieces(form: &str) -> impl Iterator<Item = String> {
    let count = match form.len() {
        0..SHORTEST_IN_PIECES => 0,
        length => (length / PIECE).max(2),
    };
    (0..count)
        .map(move |at| form[form.len() * at / count..form.len() * (at + 1) / count].to_owned())
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[track_caller]
    fn check(value: &str) -> String {
        let mut seen = Vec::new();
        for form in forms(value) {
            let form = String::from_utf8(form).unwrap();
            if !seen.contains(&form) {
                seen.push(form);
            }
        }
        seen.join("\n")
    }

    #[test]
    fn a_plain_word_has_few_forms() {
        assert_snapshot!(check("hunter22"), @r"
        hunter22
        %68%75%6E%74%65%72%32%32
        %68%75%6e%74%65%72%32%32
        \x68\x75\x6E\x74\x65\x72\x32\x32
        \x68\x75\x6e\x74\x65\x72\x32\x32
        68756E7465723232
        68756e7465723232
        aHVudGVyMj
        h1bnRlcjIy
        odW50ZXIyM
        ");
    }

    #[test]
    fn punctuation_whitespace_and_letters_are_encoded() {
        assert_snapshot!(check("a/b \"ü\"\n+?~"), @r#"
        a/b "ü"
        +?~
        a/b \\\"ü\\\"\\n+?~
        a/b \"ü\"\n+?~
        a/b \\\"\\u00fc\\\"\\n+?~
        a/b \"\u00fc\"\n+?~
        a\\\/b \\\"\\u00fc\\\"\\n+?~
        a\/b \"\u00fc\"\n+?~
        a%2fb%20%22%c3%bc%22%0a%2b%3f~
        a%2Fb%20%22%C3%BC%22%0A%2B%3F~
        a/b%20%22%c3%bc%22%0a%2b%3f~
        a/b%20%22%C3%BC%22%0A%2B%3F~
        a/b%20%22%c3%bc%22%0a+%3f~
        a/b%20%22%C3%BC%22%0A+%3F~
        a%2fb+%22%c3%bc%22%0a%2b%3f%7e
        a%2Fb+%22%C3%BC%22%0A%2B%3F%7E
        a%2fb+%22%c3%bc%22%0a%2b%3f~
        a%2Fb+%22%C3%BC%22%0A%2B%3F~
        %61%2F%62%20%22%C3%BC%22%0A%2B%3F%7E
        %61%2f%62%20%22%c3%bc%22%0a%2b%3f%7e
        \x61\x2F\x62\x20\x22\xC3\xBC\x22\x0A\x2B\x3F\x7E
        \x61\x2f\x62\x20\x22\xc3\xbc\x22\x0a\x2b\x3f\x7e
        612F622022C3BC220A2B3F7E
        612f622022c3bc220a2b3f7e
        YS9iICLDvCIKKz9+
        YS9iICLDvCIKKz9-
        EvYiAiw7wiCis/f
        EvYiAiw7wiCis_f
        hL2IgIsO8IgorP3
        "#);
    }

    #[test]
    fn long_values_have_fewer_forms() {
        assert_eq!(forms(&"x".repeat(4_097)).len(), 7);
    }
}
