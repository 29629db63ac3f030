use fabro_graph::Diagnostic;

use crate::checking::Checking;

/// An ACP agent cannot be held to a schema.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for node in checking.workflow.nodes() {
        if node.attrs.text("backend") == Some("acp")
            && let Some(attr) = node.attrs.get("output_schema")
        {
            let message = format!("`{}` has backend=acp, which takes no output_schema", node.id);
            findings.push(
                Diagnostic::error("schema-with-acp", attr.span, message)
                    .with_fix("remove output_schema, or choose backend=api or backend=cli"),
            );
        }
    }
}
