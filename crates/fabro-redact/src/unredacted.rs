//! Text that still contains its secrets.

use std::fmt;

/// Text before redaction, for checks in memory. It cannot be serialized, and `Debug` hides it: only
/// its redacted form may be recorded or shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Unredacted(String);

impl Unredacted {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text with its secrets.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Shows the length only.
impl fmt::Debug for Unredacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unredacted({} bytes)", self.0.len())
    }
}
