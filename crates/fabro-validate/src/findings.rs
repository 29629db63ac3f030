use std::fmt::Display;

use fabro_graph::{Diagnostic, Span};

/// What the lints have found.
pub(crate) struct Findings(pub(crate) Vec<Diagnostic>);

impl Findings {
    /// Adds an error.
    pub(crate) fn error(
        &mut self,
        rule: &'static str,
        span: Span,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Diagnostic::error(rule, span, message).with_fix(fix));
    }

    /// Adds a warning.
    pub(crate) fn warning(
        &mut self,
        rule: &'static str,
        span: Span,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Diagnostic::warning(rule, span, message).with_fix(fix));
    }
}

/// The fix for a misspelled name, or another one when no name is near.
pub(crate) fn did_you_mean(near: Option<impl Display>, otherwise: impl Into<String>) -> String {
    near.map_or_else(|| otherwise.into(), |near| format!("did you mean `{near}`?"))
}
