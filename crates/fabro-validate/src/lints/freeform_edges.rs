use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// A gate can lead an answer that matches no option one way only.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
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
            let fix = "keep freeform=true on one edge of the gate";
            findings.error("freeform-edges", edge.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn one_way_for_other_answers() {
        insta::assert_snapshot!(reported("freeform-edges", "start -> g; g [shape=hexagon]; g -> a [freeform=true]; g -> b [freeform=true]; a -> exit; b -> exit"), @r"
        1:68 error: `g` has a second freeform edge, to `b`, besides the one to `a`
          at: g -> b
          fix: keep freeform=true on one edge of the gate
        ");
        insta::assert_snapshot!(reported("freeform-edges", "start -> g; g [shape=hexagon]; g -> a [freeform=true]; g -> b [freeform=false]; a -> exit; b -> exit"), @"nothing");
    }
}
