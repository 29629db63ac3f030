use fabro_graph::{Diagnostic, NodeKind};

use crate::checking::Checking;

/// A default choice that is none of the gate's options.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let workflow = checking.workflow;
    for (ix, gate) in checking.of_kind(NodeKind::Human) {
        let Some(attr) = gate.attrs.get("human.default_choice") else { continue };
        let Some(target) = workflow.find(&attr.value.as_text()) else { continue };
        if checking.outgoing(ix).all(|(_, edge)| edge.to != target) {
            let target = &workflow.node(target).id;
            let message =
                format!("no edge leads from `{}` to its default choice `{target}`", gate.id);
            findings.push(
                Diagnostic::warning("default-choice", attr.span, message)
                    .with_fix("name a node that one of the gate's edges leads to"),
            );
        }
    }
}
