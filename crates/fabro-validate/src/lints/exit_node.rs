use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// A run ends at an exit node; nothing comes after it.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    if workflow.exits().next().is_none() {
        let message = "the workflow has no exit node";
        let fix = "add a node with the id `exit`, or with shape=Msquare";
        return findings.error("exit-node", workflow.head_span(), message, fix);
    }
    // Exits with a `status` may be separate.
    let mut plain = workflow.exits().filter(|ix| checking.is_plain_exit(*ix));
    if let Some(first) = plain.next() {
        let first = &workflow.node(first).id;
        for other in plain.map(|ix| workflow.node(ix)) {
            let message = format!("`{}` is another exit node, besides `{first}`", other.id);
            let fix = format!("redirect its edges to `{first}`, or give it a `status`");
            findings.warning("several-exits", other.span, message, fix);
        }
    }
    for edge in workflow.edges() {
        let from = workflow.node(edge.from);
        if from.kind == NodeKind::Exit {
            let message = format!("an edge leads out of the exit node `{}`", from.id);
            let fix = "remove it, or let it begin at the stage before the exit";
            findings.error("exit-outgoing", edge.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_run_ends_at_one_exit() {
        insta::assert_snapshot!(reported("exit-node", "start -> a"), @r"
        1:9 error: the workflow has no exit node
          at: t
          fix: add a node with the id `exit`, or with shape=Msquare
        ");
        insta::assert_snapshot!(reported("several-exits", "start -> a -> exit; a -> done; done [shape=Msquare]"), @r"
        1:38 warning: `done` is another exit node, besides `exit`
          at: done
          fix: redirect its edges to `exit`, or give it a `status`
        ");
        let stated = "start -> a -> exit; a -> done; done [shape=Msquare, status=failed]";
        assert_eq!(reported("several-exits", stated), "nothing");
        insta::assert_snapshot!(reported("exit-outgoing", "start -> exit -> a"), @r"
        1:22 error: an edge leads out of the exit node `exit`
          at: exit -> a
          fix: remove it, or let it begin at the stage before the exit
        ");
    }
}
