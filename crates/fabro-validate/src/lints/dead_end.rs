use fabro_graph::{NodeIx, NodeKind};

use crate::checking::Checking;
use crate::findings::Findings;

/// Nodes without an outgoing edge. A branch of a fan-out may end at one, and one that only a choice
/// between conditions leads to is a meant end: the run fails there.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let flow = checking.flow();
    for (ix, node) in checking.nodes() {
        let is_end = checking.workflow.outgoing(ix).len() == 0 && node.kind != NodeKind::Exit;
        let is_end = is_end && !checking.phantoms().contains_key(&ix);
        let is_end = is_end && !is_chosen(checking, ix);
        if is_end && flow.reached[ix.index()] && !flow.in_branch[ix.index()] {
            let message = format!("a run that gets to `{}` fails, for no edge leads on", node.id);
            let fix = format!("add an edge: {} -> exit", node.id);
            findings.warning("dead-end", node.span, message, fix);
        }
    }
}

/// Whether every edge to the node has a condition, or is what is left beside conditions.
fn is_chosen(checking: &Checking<'_>, node: NodeIx) -> bool {
    let workflow = checking.workflow;
    workflow.incoming(node).len() > 0
        && workflow.incoming(node).all(|edge| {
            let from = workflow.edge(edge).from;
            checking.outgoing(from).any(|(beside, _)| checking.is_conditional(beside))
        })
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn every_stage_leads_on() {
        insta::assert_snapshot!(reported("dead-end", "start -> a -> exit; a -> b; b [prompt=x]"), @r"
        1:38 warning: a run that gets to `b` fails, for no edge leads on
          at: b
          fix: add an edge: b -> exit
        ");
        insta::assert_snapshot!(reported("dead-end", "start -> p; p [shape=component]; p -> a -> join -> exit; p -> b -> join; a -> note; note [prompt=x]"), @"nothing");
        insta::assert_snapshot!(reported("dead-end", "start -> p; p [shape=component]; p -> a -> join -> exit; p -> b -> join; join -> note; note [prompt=x]"), @r"
        1:94 warning: a run that gets to `note` fails, for no edge leads on
          at: note
          fix: add an edge: note -> exit
        ");
        insta::assert_snapshot!(reported("dead-end", "start -> exit; lost [prompt=x]"), @"nothing");
        insta::assert_snapshot!(reported("dead-end", "start -> a; a -> exit [condition=\"outcome=success\"]; a -> failed [condition=\"outcome=fail\"]; failed [prompt=x]"), @"nothing");
        insta::assert_snapshot!(reported("dead-end", "start -> a; a -> exit [condition=\"outcome=success\"]; a -> failed; failed [prompt=x]"), @"nothing");
        insta::assert_snapshot!(reported("dead-end", "start -> a; a [shape=hexagon]; a -> exit [label=Yes]; a -> no [label=No]; no [prompt=x]"), @r"
        1:72 warning: a run that gets to `no` fails, for no edge leads on
          at: no
          fix: add an edge: no -> exit
        ");
    }
}
