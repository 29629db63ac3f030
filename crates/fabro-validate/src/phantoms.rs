//! Nodes that exist only because an edge misspells another.

use std::collections::BTreeMap;

use fabro_graph::{Node, NodeIx, NodeKind, Workflow};

use crate::near::Nearby;

/// Nodes that only an edge mentions, and that are not meant; with the node that is. A node without a
/// statement of its own is an agent whose prompt is its id. It is not meant when it has no outgoing
/// edge, or when it looks like a misspelling.
pub(crate) fn phantoms<'a>(
    workflow: &'a Workflow,
    nearby: &Nearby,
) -> BTreeMap<NodeIx, Option<&'a str>> {
    let may_be =
        |node: &Node| !node.has_statement && !matches!(node.kind, NodeKind::Start | NodeKind::Exit);
    let mut phantoms = BTreeMap::new();
    let names: Vec<&str> =
        workflow.nodes().filter(|node| node.has_statement).map(|node| &*node.id).collect();
    let is_name = |node: &&Node| node.has_statement || node.kind == NodeKind::Exit;
    let with_exits: Vec<&str> = workflow.nodes().filter(is_name).map(|node| &*node.id).collect();
    for (ix, node) in workflow.node_indices().zip(workflow.nodes()).filter(|(_, node)| may_be(node))
    {
        let is_end = workflow.outgoing(ix).len() == 0 && workflow.incoming(ix).len() > 0;
        let near = misspelling(nearby, node, if is_end { &with_exits } else { &names });
        if near.is_some() || is_end {
            phantoms.insert(ix, near);
        }
    }
    phantoms
}

/// A name that it is meant to be; names that differ in a number are different names.
fn misspelling<'n>(nearby: &Nearby, node: &Node, names: &[&'n str]) -> Option<&'n str> {
    let letters = |name: &str| -> String { name.chars().filter(|c| !c.is_ascii_digit()).collect() };
    let own = letters(&node.id);
    nearby.nearest(&node.id, names.iter().copied()).filter(|near| letters(near) != own)
}
