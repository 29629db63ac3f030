use fabro_graph::Diagnostic;

use crate::checking::{Checking, syntax_error};

/// Templates that do not parse.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for text in &checking.texts {
        if let Err(error) = &text.template {
            let said = (error.message.as_str(), error.span, error.fix.as_deref());
            findings.push(syntax_error(checking.source, "template-syntax", text.attr, said));
        }
    }
}
