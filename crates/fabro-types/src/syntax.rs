use crate::{Diagnostic, Span};

/// An error in a text of one of the languages: conditions, stylesheets, templates, schemas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// What is wrong, a fragment without a full stop.
    pub message: String,
    /// Where, in bytes of the text.
    pub span: Span,
    /// How to fix it, when that can be said.
    pub fix: Option<String>,
}

impl SyntaxError {
    /// An error without a fix.
    pub fn new(message: impl Into<String>, span: Span) -> Self {
        Self { message: message.into(), span, fix: None }
    }

    /// The same error with a fix.
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same error under the name of a rule.
    pub fn into_diagnostic(self, rule: &'static str) -> Diagnostic {
        let Self { message, span, fix } = self;
        let finding = Diagnostic::error(rule, span, message);
        match fix {
            Some(fix) => finding.with_fix(fix),
            None => finding,
        }
    }
}
