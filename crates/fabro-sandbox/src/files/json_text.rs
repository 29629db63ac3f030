//! The text of a JSON string, piece by piece.

use std::io::{BufRead, Read, Result};

/// Reads a JSON string as its text; of what begins otherwise it reads the bytes as they are.
///
/// It is for JSON that a program has written, and checks nothing: what follows the string is left
/// aside, and an escape that means no character, NUL among them, is U+FFFD.
pub(super) struct JsonText<R> {
    json: R,
    state: State,
    /// Of a character that was escaped and has not been given yet; the last byte first.
    rest: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    String,
    Other,
    End,
}

impl<R: BufRead> JsonText<R> {
    pub(super) fn new(json: R) -> Self {
        Self { json, state: State::Start, rest: Vec::new() }
    }

    /// Takes an escape, whose backslash was taken.
    fn escaped(&mut self) -> Result<()> {
        let mut code = match self.byte()? {
            Some(b'u') => self.unit()?,
            Some(b'n') => u32::from(b'\n'),
            Some(b't') => u32::from(b'\t'),
            Some(b'r') => u32::from(b'\r'),
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(byte @ (b'"' | b'\\' | b'/')) => u32::from(byte),
            _ => 0,
        };
        if (0xd800..0xdc00).contains(&code) && self.json.fill_buf()?.first() == Some(&b'\\') {
            self.json.consume(1);
            let is_unit = self.byte()? == Some(b'u');
            let low = if is_unit { self.unit()? } else { 0 };
            let is_low = (0xdc00..0xe000).contains(&low);
            code = if is_low { 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) } else { 0 };
        }
        let char = char::from_u32(code).filter(|char| *char != '\0').unwrap_or('\u{FFFD}');
        self.rest.extend(char.encode_utf8(&mut [0; 4]).bytes().rev());
        Ok(())
    }

    /// Four hexadecimal digits; 0 when they are none.
    fn unit(&mut self) -> Result<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.byte()?.and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return Ok(0) };
            unit = unit * 16 + digit;
        }
        Ok(unit)
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        let byte = self.json.fill_buf()?.first().copied();
        self.json.consume(usize::from(byte.is_some()));
        Ok(byte)
    }
}

impl<R: BufRead> Read for JsonText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(byte) = self.rest.pop() {
                buffer[0] = byte;
                return Ok(1);
            }
            let piece = self.json.fill_buf()?;
            let Some(&first) = piece.first() else { return Ok(0) };
            match (self.state, first) {
                (State::End, _) => return Ok(0),
                (State::Start, b'"') => {
                    self.json.consume(1);
                    self.state = State::String;
                }
                (State::Start, _) => self.state = State::Other,
                (State::String, b'"') => self.state = State::End,
                (State::String, b'\\') => {
                    self.json.consume(1);
                    self.escaped()?;
                }
                (State::String | State::Other, _) => {
                    let is_string = self.state == State::String;
                    let is_mark = |byte: &u8| is_string && matches!(byte, b'"' | b'\\');
                    let plain = piece.iter().position(is_mark).unwrap_or(piece.len());
                    let count = plain.min(buffer.len());
                    buffer[..count].copy_from_slice(&piece[..count]);
                    self.json.consume(count);
                    return Ok(count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        for size in [1, 2, 3, 7, 8_192] {
            let mut text = String::new();
            let json = std::io::BufReader::with_capacity(size, json.as_bytes());
            JsonText::new(json).read_to_string(&mut text).unwrap();
            assert_eq!(text, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn strings_are_read_as_their_text() {
        check(r#""""#, "");
        check(r#""a\n\"b\"\\n\t\/\b\f\r""#, "a\n\"b\"\\n\t/\u{8}\u{c}\r");
        check(r#""ä\u00e4\u20AC \ud83d\ude00 😀""#, "ää€ 😀 😀");
        check(r#"{"a":"x\ny"}"#, r#"{"a":"x\ny"}"#);
        check("[1]", "[1]");
        check("", "");
    }

    #[test]
    fn what_is_no_character_is_seen() {
        check(r#""a\u0000b""#, "a\u{FFFD}b");
        check(r#""\ud83dx\ud83d\n\ude00\x\u12""#, "\u{FFFD}x\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}");
        check(r#""open"#, "open");
        check(r#""open\"#, "open\u{FFFD}");
        check(r#""one" "two""#, "one");
    }
}
