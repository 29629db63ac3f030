use std::collections::BTreeMap;

use fabro_graph::{Node, NodeIx, NodeKind};

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

/// Nodes that only an edge mentions, and that are not meant; with the node that is. A node without a
/// statement of its own is an agent whose prompt is its id. It is not meant when it has no outgoing
/// edge, or when it looks like a misspelling.
pub(crate) fn phantoms<'a>(checking: &Checking<'a>) -> BTreeMap<NodeIx, Option<&'a str>> {
    let workflow = checking.workflow;
    let may_be =
        |node: &Node| !node.has_statement && !matches!(node.kind, NodeKind::Start | NodeKind::Exit);
    let mut phantoms = BTreeMap::new();
    let names: Vec<&str> =
        workflow.nodes().filter(|node| node.has_statement).map(|node| &*node.id).collect();
    for (ix, node) in checking.nodes().filter(|(_, node)| may_be(node)) {
        let near = misspelling(checking, node, &names);
        let is_end = workflow.outgoing(ix).len() == 0 && workflow.incoming(ix).len() > 0;
        if near.is_some() || is_end {
            phantoms.insert(ix, near);
        }
    }
    phantoms
}

/// A name that it is meant to be; names that differ in a number are different names.
fn misspelling<'n>(checking: &Checking<'_>, node: &Node, names: &[&'n str]) -> Option<&'n str> {
    let letters = |name: &str| -> String { name.chars().filter(|c| !c.is_ascii_digit()).collect() };
    let own = letters(&node.id);
    checking.nearest(&node.id, names.iter().copied()).filter(|near| letters(near) != own)
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
