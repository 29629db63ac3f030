//! How large a rendered text may become.

use std::io::{self, Write};

/// The most that a template may grow to, in bytes.
pub(crate) const MAX_OUTPUT: usize = 32 << 20;

/// Takes little more than a template may grow to.
#[derive(Default)]
pub(crate) struct Limited(Vec<u8>);

impl Limited {
    /// Whether more was written than a template may grow to.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.0.len() > MAX_OUTPUT
    }

    pub(crate) fn into_text(self) -> String {
        match String::from_utf8(self.0) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        if self.is_exceeded() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
