use fabro_graph::{Diagnostic, EdgeIx, NodeKind};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::checking::Checking;

/// Loops that can go round for ever: no limit on visits, nobody who is asked, no condition that
/// counts.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let workflow = checking.workflow;
    if workflow.attrs().int("max_node_visits").is_some_and(|visits| visits > 0) {
        return;
    }
    let limits: Vec<bool> = workflow
        .nodes()
        .map(|node| {
            node.kind == NodeKind::Human
                || node.attrs.int("max_visits").is_some_and(|visits| visits > 0)
        })
        .collect();
    let counts = |edge: EdgeIx| {
        checking
            .parsed(edge)
            .is_some_and(|condition| condition.keys().any(|key| key == "internal.node_visit_count"))
    };
    let free: Vec<EdgeIx> = workflow
        .edge_indices()
        .filter(|ix| {
            let edge = workflow.edge(*ix);
            !limits[edge.from.index()] && !limits[edge.to.index()] && !counts(*ix)
        })
        .collect();
    let mut graph: DiGraph<(), (), u32> = DiGraph::with_capacity(limits.len(), free.len());
    for _ in &limits {
        graph.add_node(());
    }
    for ix in &free {
        let edge = workflow.edge(*ix);
        graph.add_edge(NodeIndex::new(edge.from.index()), NodeIndex::new(edge.to.index()), ());
    }
    let mut group_of = vec![0; limits.len()];
    for (at, group) in kosaraju_scc(&graph).iter().enumerate() {
        for node in group {
            group_of[node.index()] = at;
        }
    }
    let mut told = vec![false; limits.len()];
    for edge in free.iter().map(|ix| workflow.edge(*ix)) {
        let group = group_of[edge.from.index()];
        // The first edge that leads back is where the loop closes.
        if group != group_of[edge.to.index()]
            || edge.to > edge.from
            || std::mem::replace(&mut told[group], true)
        {
            continue;
        }
        let id = |ix| &workflow.node(ix).id;
        let message = if edge.from == edge.to {
            format!("`{}` leads to itself without a limit", id(edge.from))
        } else {
            format!("the loop from `{}` through `{}` has no limit", id(edge.to), id(edge.from))
        };
        findings.push(Diagnostic::warning("endless-loop", edge.span, message).with_fix(format!(
            "add max_visits to a node of it ({} [max_visits=5]), or max_node_visits to the graph",
            id(edge.to)
        )));
    }
}
