use fabro_graph::Diagnostic;

use crate::checking::Checking;

/// Fan-outs whose branches never come together: the run cannot go on after them.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for ix in &checking.flow().endless_fan_outs {
        let node = checking.workflow.node(*ix);
        let message =
            format!("the branches of `{}` never meet, so that nothing can follow", node.id);
        findings.push(
            Diagnostic::warning("fan-out-join", node.span, message)
                .with_fix("lead every branch to one node, such as a fan-in (shape=tripleoctagon)"),
        );
    }
}
