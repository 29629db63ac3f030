//! The text of a blob, as it streams through.

use std::io::{self, Write};

use fabro_types::BlobRef;

use crate::{BlobError, BlobStore};

/// Writes the text of a blob to `out`, and returns the blob's size in bytes: of a JSON string its characters, of
/// any other value its JSON. Memory is bounded where [`BlobStore::copy_to`] of the store is. As there, an error
/// means that `out` got something else than the text, or not all of it.
///
/// ```
/// use fabro_blob::{BlobStore, MemoryBlobs, copy_text};
///
/// let blobs = MemoryBlobs::default();
/// let blob = blobs.put(br#""one\ntwo""#)?;
/// let mut text = Vec::new();
/// copy_text(&blobs, &blob, &mut text)?;
/// assert_eq!(text, b"one\ntwo");
/// # Ok::<(), fabro_blob::BlobError>(())
/// ```
///
/// # Errors
///
/// The blob cannot be read or is damaged, is neither a JSON string nor another value, or `out` fails.
pub fn copy_text(
    blobs: &dyn BlobStore,
    blob: &BlobRef,
    out: &mut dyn Write,
) -> Result<u64, BlobError> {
    let mut text = TextWriter { out, state: State::Begin, high: None };
    let size = blobs.copy_to(blob, &mut text)?;
    text.finish().map_err(|source| BlobError::Output { source })?;
    Ok(size)
}

/// Takes the bytes of a blob, and writes its text.
struct TextWriter<'a> {
    out: &'a mut dyn Write,
    state: State,
    /// The first half of a character that is written as two escapes.
    high: Option<u32>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    /// A value that is no string.
    Other,
    String,
    Escape,
    Hex {
        digits: u8,
        value: u32,
    },
    /// Only whitespace may follow.
    End,
}

const REPLACEMENT: u32 = 0xfffd;

impl TextWriter<'_> {
    /// Takes some bytes; how many.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(first) = bytes.first().copied() else { return Ok(0) };
        match self.state {
            State::Begin => {
                self.state = if first == b'"' { State::String } else { State::Other };
                return Ok(usize::from(first == b'"'));
            }
            State::Other => {
                self.out.write_all(bytes)?;
                return Ok(bytes.len());
            }
            State::String => return self.take_plain(bytes),
            State::Escape => self.take_escape(first)?,
            State::Hex { digits, value } => {
                let digit = char::from(first).to_digit(16).ok_or_else(invalid)?;
                let value = (value << 4) | digit;
                self.state = State::Hex { digits: digits + 1, value };
                if digits == 3 {
                    self.state = State::String;
                    self.take_unit(value)?;
                }
            }
            State::End if first.is_ascii_whitespace() => {}
            State::End => return Err(invalid()),
        }
        Ok(1)
    }

    fn take_plain(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let plain = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let plain = plain.unwrap_or(bytes.len());
        let next = bytes.get(plain).copied();
        if plain > 0 || next == Some(b'"') {
            self.end_half()?;
        }
        self.out.write_all(&bytes[..plain])?;
        match next {
            None => return Ok(plain),
            Some(b'"') => self.state = State::End,
            Some(_) => self.state = State::Escape,
        }
        Ok(plain + 1)
    }

    fn take_escape(&mut self, byte: u8) -> io::Result<()> {
        let character = match byte {
            b'u' => {
                self.state = State::Hex { digits: 0, value: 0 };
                return Ok(());
            }
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return Err(invalid()),
        };
        self.state = State::String;
        self.end_half()?;
        self.out.write_all(&[character])
    }

    /// Takes the number of an escape: a character, or half of one.
    fn take_unit(&mut self, unit: u32) -> io::Result<()> {
        let is_low = (0xdc00..0xe000).contains(&unit);
        if let Some(high) = self.high.take_if(|_| is_low) {
            return self.character(0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00));
        }
        self.end_half()?;
        if (0xd800..0xdc00).contains(&unit) {
            self.high = Some(unit);
            return Ok(());
        }
        self.character(unit)
    }

    /// A half without its other half is no character.
    fn end_half(&mut self) -> io::Result<()> {
        if self.high.take().is_some() { self.character(REPLACEMENT) } else { Ok(()) }
    }

    fn character(&mut self, code: u32) -> io::Result<()> {
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.out.write_all(character.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn finish(self) -> io::Result<()> {
        match self.state {
            State::Begin | State::Other | State::End => Ok(()),
            _ => Err(invalid()),
        }
    }
}

impl Write for TextWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.take(rest)?;
            rest = &rest[taken..];
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the value begins as a JSON string, and is none")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text of these bytes, which come in pieces of this size.
    fn text_of(bytes: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let mut text = TextWriter { out: &mut out, state: State::Begin, high: None };
        let written = bytes.chunks(piece).try_for_each(|piece| text.write_all(piece));
        written.and_then(|()| text.finish()).map_err(|error| error.to_string())?;
        Ok(out)
    }

    #[test]
    fn the_text_of_a_value() {
        let check = |json: &str, expect: &str| {
            for piece in [1, 2, 3, 5, 64] {
                assert_eq!(text_of(json.as_bytes(), piece).unwrap(), expect.as_bytes(), "{json}");
            }
        };
        check("\"\"", "");
        check(r#""a\"\\\/\b\f\n\r\té""#, "a\"\\/\u{8}\u{c}\n\r\té");
        check("\"a\" \n", "a");
        check(r#""\u00e9\ud83d\ude00x\uD83D""#, "é😀x\u{fffd}");
        check(r#""\ud83d\n\ude00\ud83d\ud83d\ude00""#, "\u{fffd}\n\u{fffd}\u{fffd}😀");
        check("{\"a\": \"\\n\"}", "{\"a\": \"\\n\"}");
        check("", "");
    }

    #[test]
    fn what_is_no_value_is_an_error() {
        for json in ["\"", "\"a", "\"a\"b", r#""\x""#, r#""\u12g4""#, r#""\u12"#, "\"\\"] {
            assert!(text_of(json.as_bytes(), 2).is_err(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn texts_come_back(text in any::<String>(), piece in 1_usize..9) {
            let json = serde_json::to_vec(&text).unwrap();
            prop_assert_eq!(text_of(&json, piece).unwrap(), text.into_bytes());
        }
    }
}
