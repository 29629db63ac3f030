use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// A run never comes back to its start node. That there is exactly one is checked by `fabro-plan`.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    for edge in workflow.edges() {
        let target = workflow.node(edge.to);
        if target.kind == NodeKind::Start {
            let message = format!("an edge leads back into the start node `{}`", target.id);
            let fix = "lead it to the first stage after the start instead";
            findings.error("start-incoming", edge.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_run_begins_at_one_start() {
        insta::assert_snapshot!(reported("start-node", "a -> exit"), @r"
        1:9 error: the workflow has no start node
          at: t
          fix: add a node with the id `start`, or with shape=Mdiamond
        ");
        insta::assert_snapshot!(reported("start-node", "start -> exit; Start -> exit"), @r"
        1:28 error: `Start` is a second start node, after `start`
          at: Start
          fix: keep one of them, and give the other a handler of its own
        ");
        insta::assert_snapshot!(reported("start-incoming", "start -> a -> exit; a -> start"), @r"
        1:33 error: an edge leads back into the start node `start`
          at: a -> start
          fix: lead it to the first stage after the start instead
        ");
    }
}
