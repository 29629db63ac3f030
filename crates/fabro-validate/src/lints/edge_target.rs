use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};

/// Edges to nodes that are not there.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, near) in checking.phantoms() {
        let node = checking.workflow.node(*ix);
        let message = format!("an edge leads to `{}`, but there is no such node", node.id);
        let fix = did_you_mean(*near, format!("add the node: {} [prompt=\"…\"]", node.id));
        findings.error("edge-target", node.span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn an_edge_alone_makes_no_dead_end() {
        insta::assert_snapshot!(reported("edge-target", "start -> plan -> nowhere; plan [prompt=x]; plan -> exit"), @r#"
        1:30 error: an edge leads to `nowhere`, but there is no such node
          at: nowhere
          fix: add the node: nowhere [prompt="…"]
        "#);
        insta::assert_snapshot!(reported("edge-target", "start -> review; review -> implment -> exit; review [prompt=x]; implement [prompt=x]; implement -> exit"), @r"
        1:40 error: an edge leads to `implment`, but there is no such node
          at: implment
          fix: did you mean `implement`?
        ");
    }

    #[test]
    fn short_forms_are_left_alone() {
        insta::assert_snapshot!(reported("edge-target", "start -> work -> exit"), @"nothing");
        insta::assert_snapshot!(reported("edge-target", "start -> step_1 -> step_2 -> exit; step_1 [prompt=x]"), @"nothing");
        insta::assert_snapshot!(reported("edge-target", "start -> a -> {b; c}; a -> exit; b -> exit"), @"nothing");
    }
}
