use std::io::{self, Read, Write};

const BUFFER: usize = 64 * 1024;

/// Writes a text as one JSON string, byte for byte what `serde_json` would write, and returns how
/// many bytes that were. Trailing newlines are left out, as a shell's `$(…)` does; what is not
/// UTF-8 becomes U+FFFD. Memory is bounded for a text of any size. Fails when the reader or
/// the writer does.
pub fn text_to_json_string(
    text: &mut (impl Read + ?Sized),
    out: &mut (impl Write + ?Sized),
) -> io::Result<u64> {
    let mut out = StringWriter { out, written: 0, newlines: 0 };
    out.raw(b"\"")?;
    let mut buffer = vec![0; BUFFER];
    let mut held = 0;
    loop {
        let read = match text.read(&mut buffer[held..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if read == 0 {
            break;
        }
        let filled = held + read;
        let rest = write_lossy(&mut out, &buffer[..filled])?;
        buffer.copy_within(filled - rest..filled, 0);
        held = rest;
    }
    if held > 0 {
        out.text("\u{fffd}")?;
    }
    out.raw(b"\"")?;
    Ok(out.written)
}

/// Writes all but an unfinished character at the end, and returns how many bytes that one has.
fn write_lossy(
    out: &mut StringWriter<'_, impl Write + ?Sized>,
    mut bytes: &[u8],
) -> io::Result<usize> {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.text(text)?;
                return Ok(0);
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        if let Ok(text) = std::str::from_utf8(valid) {
            out.text(text)?;
        }
        let Some(invalid) = error.error_len() else { return Ok(rest.len()) };
        out.text("\u{fffd}")?;
        bytes = &rest[invalid..];
    }
}

struct StringWriter<'a, W: ?Sized> {
    out: &'a mut W,
    written: u64,
    /// Newlines seen but not written: they count only if something follows.
    newlines: u64,
}

impl<W: Write + ?Sized> StringWriter<'_, W> {
    fn text(&mut self, text: &str) -> io::Result<()> {
        let kept = text.trim_end_matches('\n');
        if !kept.is_empty() {
            for _ in 0..std::mem::take(&mut self.newlines) {
                self.raw(br"\n")?;
            }
            self.escaped(kept.as_bytes())?;
        }
        self.newlines += (text.len() - kept.len()) as u64;
        Ok(())
    }

    fn escaped(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut from = 0;
        for (at, byte) in bytes.iter().copied().enumerate() {
            if byte >= b' ' && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.raw(&bytes[from..at])?;
            self.escape(byte)?;
            from = at + 1;
        }
        self.raw(&bytes[from..])
    }

    fn escape(&mut self, byte: u8) -> io::Result<()> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            _ => {
                let high = DIGITS[usize::from(byte >> 4)];
                let low = DIGITS[usize::from(byte & 15)];
                return self.raw(&[b'\\', b'u', b'0', b'0', high, low]);
            }
        };
        self.raw(&[b'\\', short])
    }

    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
