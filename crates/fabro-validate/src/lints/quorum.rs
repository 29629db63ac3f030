use fabro_graph::{Diagnostic, NodeKind};

use crate::checking::Checking;

/// A quorum that does not count, or that there are not enough branches for.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for (ix, node) in checking.of_kind(NodeKind::Parallel) {
        let Some(attr) = node.attrs.get("quorum") else { continue };
        let Some(quorum) = attr.value.to_int() else { continue };
        let branches = checking.workflow.outgoing(ix).len();
        let (message, fix) = if node.attrs.text("join_policy") != Some("quorum") {
            let message = format!("`{}` has a quorum, but not join_policy=quorum", node.id);
            (message, "add join_policy=quorum, or remove it")
        } else if usize::try_from(quorum).is_ok_and(|quorum| quorum > branches) {
            let message = format!(
                "`{}` waits for {quorum} branches to succeed, but has only {branches}",
                node.id
            );
            (message, "lower it, or add branches")
        } else {
            continue;
        };
        findings.push(Diagnostic::warning("quorum", attr.span, message).with_fix(fix));
    }
}
