use fabro_types::Span;

/// A stylesheet that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct StylesheetError {
    /// What is wrong, a fragment without a full stop.
    pub message: String,
    /// Where, in bytes of the text of the stylesheet.
    pub span: Span,
    /// What to write instead, when that can be said.
    pub fix: Option<String>,
}

impl StylesheetError {
    pub(crate) fn new(message: impl Into<String>, span: Span) -> Self {
        Self { message: message.into(), span, fix: None }
    }

    pub(crate) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}
