use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// A quorum that does not count, or that there are not enough branches for.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.of_kind(NodeKind::Parallel) {
        let Some(attr) = node.attrs.get("quorum") else { continue };
        let Some(quorum) = attr.value.to_int() else { continue };
        let branches = checking.workflow.outgoing(ix).len();
        let (message, fix) = if node.attrs.text("join_policy") != Some("quorum") {
            let message = format!("`{}` has a quorum, but not join_policy=quorum", node.id);
            (message, "add join_policy=quorum, or remove it")
        } else if node.for_each().is_none()
            && usize::try_from(quorum).is_ok_and(|quorum| quorum > branches)
        {
            let message = format!(
                "`{}` waits for {quorum} branches to succeed, but has only {branches}",
                node.id
            );
            (message, "lower it, or add branches")
        } else {
            continue;
        };
        findings.warning("quorum", attr.span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_quorum_can_be_met() {
        insta::assert_snapshot!(reported("quorum", "start -> p; p [shape=component, join_policy=quorum, quorum=3]; p -> a -> exit; p -> b -> exit"), @r"
        1:72 warning: `p` waits for 3 branches to succeed, but has only 2
          at: 3
          fix: lower it, or add branches
        ");
        insta::assert_snapshot!(reported("quorum", "start -> p; p [shape=component, quorum=2]; p -> a -> exit; p -> b -> exit"), @r"
        1:52 warning: `p` has a quorum, but not join_policy=quorum
          at: 2
          fix: add join_policy=quorum, or remove it
        ");
        insta::assert_snapshot!(reported("quorum", "start -> p; p [shape=component, join_policy=quorum, quorum=2]; p -> a -> exit; p -> b -> exit"), @"nothing");
        insta::assert_snapshot!(reported("quorum", "start -> p; p [shape=component, for_each=\"[1, 2, 3]\", join_policy=quorum, quorum=2]; p -> a -> f -> exit; f [shape=tripleoctagon]"), @"nothing");
    }
}
