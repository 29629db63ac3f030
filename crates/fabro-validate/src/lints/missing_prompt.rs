use fabro_graph::Diagnostic;

use crate::checking::Checking;

/// A node that asks a model, but does not say what.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for node in checking.workflow.nodes().filter(|node| node.kind.is_llm()) {
        let prompt = node.attrs.text("prompt").unwrap_or_default();
        if prompt.trim().is_empty() {
            let kind = node.kind;
            let used = if node.attrs.get("label").is_some() { "label" } else { "id" };
            let message =
                format!("the {kind} node `{}` has no prompt; its {used} is asked instead", node.id);
            findings.push(
                Diagnostic::warning("missing-prompt", node.span, message)
                    .with_fix("add prompt=\"…\", or prompt=\"@file.md\""),
            );
        }
    }
}
