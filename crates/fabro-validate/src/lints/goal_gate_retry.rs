use fabro_graph::{NodeIx, NodeKind};

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// Attributes of the node or the graph that say what follows a failure.
const HANDLING: [&str; 3] = ["fallback_retry_target", "on_failure", "retry_target"];

/// Reports a goal gate whose failure can only end the run: no attribute, condition or person handles it.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    use NodeKind::{Conditional, Exit, Start};
    let graph = checking.workflow.attrs();
    if HANDLING.iter().any(|name| text(graph, name).is_some()) {
        return;
    }
    for (ix, node) in checking.nodes() {
        let is_gate = node.attrs.bool("goal_gate") == Some(true)
            && !matches!(node.kind, Start | Exit | Conditional);
        let says = || HANDLING.iter().any(|name| text(&node.attrs, name).is_some());
        if !is_gate || says() || is_decided(checking, ix) {
            continue;
        }
        let message = format!("nothing handles a failure of the goal gate `{}`", node.id);
        let fix = "name the stage that repairs it by retry_target, or add an edge with condition=\"outcome=failed\"";
        findings.warning("goal-gate-retry", node.span, message, fix);
    }
}

/// Whether a condition or a person chooses the edge after the node.
fn is_decided(checking: &Checking<'_>, ix: NodeIx) -> bool {
    let workflow = checking.workflow;
    workflow.deciding_edges(ix).any(|edge| {
        let to = workflow.node(workflow.edge(edge).to);
        checking.is_conditional(edge) || to.kind == NodeKind::Human
    })
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn the_failure_of_a_goal_gate_is_handled() {
        let of = |graph: &str, attrs: &str, edges: &str| {
            let test = format!("test [script=x, goal_gate=true{attrs}]");
            let others = "fix [prompt=x]; ask [shape=hexagon]; ask -> exit";
            reported(
                "goal-gate-retry",
                &format!("{graph} start -> fix -> test; {test}; {others}; {edges}"),
            )
        };
        insta::assert_snapshot!(of("", "", "test -> exit"), @r#"
        1:30 warning: nothing handles a failure of the goal gate `test`
          at: test
          fix: name the stage that repairs it by retry_target, or add an edge with condition="outcome=failed"
        "#);
        for (graph, attrs, edges) in [
            ("", ", retry_target=fix", "test -> exit"),
            ("graph [retry_target=fix];", "", "test -> exit"),
            ("", ", on_failure=stop", "test -> exit"),
            ("", "", "test -> exit [condition=\"outcome=succeeded\"]; test -> fix"),
            ("", "", "test -> ask"),
        ] {
            assert_eq!(of(graph, attrs, edges), "nothing", "{graph} {attrs} {edges}");
        }
    }
}
