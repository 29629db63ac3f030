use fabro_types::Span;

/// A condition that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ConditionError {
    /// What is wrong, a fragment without a full stop.
    pub message: String,
    /// Where, in bytes of the text of the condition.
    pub span: Span,
    /// What to write instead, when that can be said.
    pub fix: Option<String>,
}

impl ConditionError {
    pub(crate) fn new(message: impl Into<String>, span: Span) -> Self {
        Self { message: message.into(), span, fix: None }
    }

    pub(crate) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// A value that is there but cannot be had: a blob that is too large, missing or damaged. The text
/// is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(pub String);
