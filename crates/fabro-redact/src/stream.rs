//! Bytes that arrive in pieces.

use std::fmt;
use std::sync::Arc;

use crate::rules::Rules;
use crate::scan::Scan;

/// Redacts bytes that arrive in pieces: the results together equal
/// [`Redactor::redact_bytes`](crate::Redactor::redact_bytes) of the whole.
///
/// It buffers only the end of the input, as far as that may be the beginning of a secret: at most one
/// byte less than the longest form of a value, 100 bytes of a token, 600 of a private key, 1 KB of a URL,
/// 16 KB of a JSON Web Token. A line that ends with anything else is returned at once.
pub struct Stream {
    rules: Arc<Rules>,
    scan: Scan,
    /// What is not returned yet, and some bytes before it.
    buffer: Vec<u8>,
    /// The position of the first byte of the buffer.
    base: usize,
}

impl Stream {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        let scan = Scan::new(&rules);
        Self { rules, scan, buffer: Vec::new(), base: 0 }
    }

    /// Takes the next bytes, and returns those that no later byte can change.
    #[must_use = "the bytes are returned only once"]
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.buffer.extend_from_slice(bytes);
        self.scan.advance(&self.rules, &self.buffer, self.base);
        let settled = self.scan.settled(&self.rules, &self.buffer, self.base);
        let mut out = Vec::with_capacity(bytes.len());
        self.scan.emit_to(settled, &self.rules, &self.buffer, self.base, &mut out);
        let needed = self.scan.needed();
        self.buffer.drain(..needed.saturating_sub(self.base));
        self.base = self.base.max(needed);
        out
    }

    /// Returns the rest at the end of the input. Bytes pushed after this begin a new stream.
    #[must_use = "the bytes are returned only once"]
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.scan.finish();
        self.scan.emit(&self.rules, &self.buffer, self.base, &mut out);
        *self = Self::new(Arc::clone(&self.rules));
        out
    }
}

/// Shows the number of buffered bytes only.
impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}
