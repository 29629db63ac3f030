use fabro_graph::Diagnostic;

use crate::checking::Checking;

const TARGETS: [&str; 2] = ["retry_target", "fallback_retry_target"];

/// A goal gate without a way back: once it has failed, the run can only fail.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let graph = checking.workflow.attrs();
    if TARGETS.iter().any(|name| graph.get(name).is_some()) {
        return;
    }
    for node in checking.workflow.nodes() {
        if node.attrs.bool("goal_gate") == Some(true)
            && let Some(attr) = node.attrs.get("goal_gate")
            && TARGETS.iter().all(|name| node.attrs.get(name).is_none())
        {
            let message = format!(
                "`{}` is a goal gate, but nothing says where to go when it did not succeed",
                node.id
            );
            findings.push(
                Diagnostic::warning("goal-gate-target", attr.span, message)
                    .with_fix("add retry_target to the node or the graph"),
            );
        }
    }
}
