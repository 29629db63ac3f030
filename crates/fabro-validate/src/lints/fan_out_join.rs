use fabro_graph::{Join, Meeting, NodeKind, meeting};

use crate::checking::Checking;
use crate::findings::Findings;

/// Fan-outs whose branches never join, so the run cannot continue after them, and fan-outs whose
/// branches could join at either of two nodes.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut steps = MAX_SEARCH;
    for (ix, node) in checking.of_kind(NodeKind::Parallel) {
        let Meeting { join: Join::At(join), others } = meeting(checking.workflow, ix, &mut steps)
        else {
            continue;
        };
        let Some(other) = others.first() else { continue };
        let [join, other] = [join, *other].map(|it| &checking.workflow.node(it).id);
        let message =
            format!("the branches of `{}` could join at `{join}` or at `{other}`", node.id);
        let fix = "connect every branch to a fan-in (shape=tripleoctagon), and the fan-in to what follows";
        findings.error("fan-out-join", node.span, message, fix);
    }
    for ix in &checking.flow().endless_fan_outs {
        let node = checking.workflow.node(*ix);
        let message =
            format!("the branches of `{}` never meet, so that nothing can follow", node.id);
        let fix = "lead every branch to one node, such as a fan-in (shape=tripleoctagon)";
        findings.warning("fan-out-join", node.span, message, fix);
    }
}

/// The maximum number of nodes and edges to visit.
const MAX_SEARCH: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn branches_meet() {
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> a -> exit; p -> b"), @r"
        1:22 warning: the branches of `p` never meet, so that nothing can follow
          at: p
          fix: lead every branch to one node, such as a fan-in (shape=tripleoctagon)
        ");
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> a -> exit; p -> b -> exit"), @"nothing");
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> a -> exit"), @"nothing");
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> {a; b}; a -> {c; d}; b -> {c; d} -> exit"), @r"
        1:22 error: the branches of `p` could join at `c` or at `d`
          at: p
          fix: connect every branch to a fan-in (shape=tripleoctagon), and the fan-in to what follows
        ");
        insta::assert_snapshot!(reported("fan-out-join", r#"start -> p; p [shape=component]; p -> {a; b}; {a; b} -> d [condition="outcome=succeeded"]; {a; b} -> c -> exit; d -> exit"#), @"nothing");
    }
}
