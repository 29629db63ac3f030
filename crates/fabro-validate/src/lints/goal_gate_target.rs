use crate::checking::{Checking, text};
use crate::findings::Findings;

const TARGETS: [&str; 2] = ["retry_target", "fallback_retry_target"];

/// A goal gate without a way back: once it has failed, the run can only fail.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let graph = checking.workflow.attrs();
    if TARGETS.iter().any(|name| text(graph, name).is_some()) {
        return;
    }
    for node in checking.workflow.nodes() {
        if node.attrs.bool("goal_gate") == Some(true)
            && let Some(attr) = node.attrs.get("goal_gate")
            && TARGETS.iter().all(|name| text(&node.attrs, name).is_none())
        {
            let message = format!(
                "`{}` is a goal gate, but nothing says where to go when it did not succeed",
                node.id
            );
            let fix = "add retry_target to the node or the graph";
            findings.warning("goal-gate-target", attr.key_span.to(attr.span), message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_gate_has_a_way_back() {
        insta::assert_snapshot!(reported("goal-gate-target", "start -> a -> exit; a [goal_gate=true]"), @r"
        1:36 warning: `a` is a goal gate, but nothing says where to go when it did not succeed
          at: goal_gate=true
          fix: add retry_target to the node or the graph
        ");
        insta::assert_snapshot!(reported("goal-gate-target", "start -> a -> exit; a [goal_gate=true, retry_target=a]"), @"nothing");
        insta::assert_snapshot!(reported("goal-gate-target", "graph [fallback_retry_target=a]; start -> a -> exit; a [goal_gate=true]"), @"nothing");
    }
}
