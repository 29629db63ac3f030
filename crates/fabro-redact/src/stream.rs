//! Bytes that come in pieces.

use std::fmt;
use std::sync::Arc;

use crate::rules::Rules;
use crate::scan::Scan;

/// Redacts bytes that come in pieces: what it gives back, one after the other, is what
/// [`Redactor::redact_bytes`](crate::Redactor::redact_bytes) makes of the whole.
///
/// It holds back only the end of what came, and only as far as that may be the beginning of a
/// secret: at most one byte less than the longest form of a value, 100 bytes of a token, 600 of a
/// private key. A line that ends with anything else is out at once.
pub struct Stream {
    rules: Arc<Rules>,
    scan: Scan,
    /// What is held back, and some bytes before it.
    held: Vec<u8>,
    /// The position of the first byte held.
    base: usize,
}

impl Stream {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        let scan = Scan::new(&rules);
        Self { rules, scan, held: Vec::new(), base: 0 }
    }

    /// Takes the next bytes, and gives back those that are certain.
    #[must_use = "what comes back is not given again"]
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.scan.advance(&self.rules, &self.held, self.base);
        let settled = self.scan.settled(&self.rules);
        let mut out = Vec::with_capacity(bytes.len());
        self.scan.emit_to(settled, &self.rules, &self.held, self.base, &mut out);
        let needed = self.scan.needed();
        self.held.drain(..needed.saturating_sub(self.base));
        self.base = self.base.max(needed);
        out
    }

    /// Gives back what was held, now that nothing follows it. Bytes pushed after this begin anew.
    #[must_use = "what comes back is not given again"]
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.scan.finish();
        self.scan.emit(&self.rules, &self.held, self.base, &mut out);
        *self = Self::new(Arc::clone(&self.rules));
        out
    }
}

/// Shows how many bytes are held back, and none of them.
impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
