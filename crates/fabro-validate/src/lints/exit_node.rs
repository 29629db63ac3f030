use fabro_graph::{Diagnostic, NodeKind};

use crate::checking::Checking;

/// A run ends at an exit node; nothing comes after it.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let workflow = checking.workflow;
    let mut exits = workflow.exits().map(|ix| workflow.node(ix));
    let Some(first) = exits.next() else {
        let message = "the workflow has no exit node";
        let finding = Diagnostic::error("exit-node", checking.workflow.head_span(), message);
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

#[cfg(test)]
mod tests {
    use crate::testing::told;

    #[test]
    fn a_run_ends_at_one_exit() {
        insta::assert_snapshot!(told("exit-node", "start -> a"), @r"
        1:9 error: the workflow has no exit node
          at: t
          fix: add a node with the id `exit`, or with shape=Msquare
        ");
        insta::assert_snapshot!(told("several-exits", "start -> a -> exit; a -> done; done [shape=Msquare]"), @r"
        1:38 warning: `done` is another exit node, besides `exit`
          at: done
          fix: lead its edges to `exit`
        ");
        insta::assert_snapshot!(told("exit-outgoing", "start -> exit -> a"), @r"
        1:22 error: an edge leads out of the exit node `exit`
          at: exit -> a
          fix: remove it, or let it begin at the stage before the exit
        ");
    }
}
