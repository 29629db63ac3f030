use fabro_graph::{Diagnostic, NodeKind};

use crate::checking::Checking;

/// Nodes that nothing leads on from. A branch of a fan-out may end so.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let flow = checking.flow();
    for (ix, node) in checking.nodes() {
        let is_end = checking.workflow.outgoing(ix).len() == 0 && node.kind != NodeKind::Exit;
        if is_end && flow.reached[ix.index()] && !flow.in_branch[ix.index()] {
            let message = format!("a run that gets to `{}` fails, for no edge leads on", node.id);
            findings.push(
                Diagnostic::warning("dead-end", node.span, message)
                    .with_fix(format!("add an edge: {} -> exit", node.id)),
            );
        }
    }
}
