use fabro_graph::{Diagnostic, NodeKind};

use crate::checking::Checking;

/// A run ends at an exit node; nothing comes after it.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let workflow = checking.workflow;
    let mut exits = workflow.exits().map(|ix| workflow.node(ix));
    let Some(first) = exits.next() else {
        let message = "the workflow has no exit node";
        let finding = Diagnostic::error("exit-node", checking.head(), message);
        return findings
            .push(finding.with_fix("add a node with the id `exit`, or with shape=Msquare"));
    };
    for other in exits {
        let message = format!("`{}` is another exit node, besides `{}`", other.id, first.id);
        findings.push(
            Diagnostic::warning("several-exits", other.span, message)
                .with_fix(format!("lead its edges to `{}`", first.id)),
        );
    }
    for edge in workflow.edges() {
        let from = workflow.node(edge.from);
        if from.kind == NodeKind::Exit {
            let message = format!("an edge leads out of the exit node `{}`", from.id);
            findings.push(
                Diagnostic::error("exit-outgoing", edge.span, message)
                    .with_fix("remove it, or let it begin at the stage before the exit"),
            );
        }
    }
}
