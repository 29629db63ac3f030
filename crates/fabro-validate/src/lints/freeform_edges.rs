use fabro_graph::{Diagnostic, NodeKind};

use crate::checking::Checking;

/// A gate can lead an answer that matches no option one way only.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for (ix, gate) in checking.of_kind(NodeKind::Human) {
        let mut edges =
            checking.outgoing(ix).filter(|(_, edge)| edge.attrs.bool("freeform") == Some(true));
        let Some((_, first)) = edges.next() else { continue };
        let first = &checking.workflow.node(first.to).id;
        for (_, edge) in edges {
            let to = &checking.workflow.node(edge.to).id;
            let message = format!(
                "`{}` has a second freeform edge, to `{to}`, besides the one to `{first}`",
                gate.id
            );
            findings.push(
                Diagnostic::error("freeform-edges", edge.span, message)
                    .with_fix("keep freeform=true on one edge of the gate"),
            );
        }
    }
}
