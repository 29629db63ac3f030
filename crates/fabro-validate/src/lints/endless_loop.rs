use fabro_condition::Condition;
use fabro_graph::{Edge, EdgeIx, NodeKind};
use petgraph::algo::kosaraju_scc;
use petgraph::visit::EdgeFiltered;

use crate::checking::Checking;
use crate::findings::Findings;

/// Loops that can run forever: no limit on visits, no question to a person, no condition that counts
/// visits.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    if workflow.attrs().int("max_node_visits").is_some_and(|visits| visits > 0) {
        return;
    }
    let limits: Vec<bool> = checking
        .nodes()
        .map(|(ix, node)| {
            node.kind == NodeKind::Human
                || node.attrs.int("max_visits").is_some_and(|visits| visits > 0)
                || workflow.outgoing(ix).any(|edge| counts_visits(checking, edge))
        })
        .collect();
    let is_unlimited = |edge: &Edge| !limits[edge.from.index()] && !limits[edge.to.index()];
    let unlimited = EdgeFiltered::from_fn(workflow.graph(), |edge| is_unlimited(edge.weight()));
    let mut group_of = vec![0; limits.len()];
    for (at, group) in kosaraju_scc(&unlimited).iter().enumerate() {
        for node in group {
            group_of[node.index()] = at;
        }
    }
    let mut reported = vec![false; limits.len()];
    for edge in workflow.edges().filter(|edge| is_unlimited(edge)) {
        let group = group_of[edge.from.index()];
        // The first edge that leads back is where the loop closes.
        if group != group_of[edge.to.index()]
            || edge.to > edge.from
            || std::mem::replace(&mut reported[group], true)
        {
            continue;
        }
        let id = |ix| &workflow.node(ix).id;
        let message = if edge.from == edge.to {
            format!("`{}` leads to itself without a limit", id(edge.from))
        } else {
            format!("the loop from `{}` through `{}` has no limit", id(edge.to), id(edge.from))
        };
        findings.warning("endless-loop", edge.span, message, format!(
            "add max_visits to a node of it ({} [max_visits=5]), or max_node_visits to the graph",
            id(edge.to)
        ));
    }
}

fn counts_visits(checking: &Checking<'_>, edge: EdgeIx) -> bool {
    let reads =
        |condition: &Condition| condition.keys().any(|key| key == "internal.node_visit_count");
    checking.condition(edge).is_some_and(reads)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn loops_have_a_limit() {
        insta::assert_snapshot!(reported("endless-loop", r#"start -> work -> check; check -> exit [condition="outcome=success"]; check -> work"#), @r"
        1:82 warning: the loop from `work` through `check` has no limit
          at: check -> work
          fix: add max_visits to a node of it (work [max_visits=5]), or max_node_visits to the graph
        ");
        insta::assert_snapshot!(reported("endless-loop", r#"start -> poll -> exit; poll -> poll [condition="outcome=fail"]"#), @r"
        1:36 warning: `poll` leads to itself without a limit
          at: poll -> poll
          fix: add max_visits to a node of it (poll [max_visits=5]), or max_node_visits to the graph
        ");
        insta::assert_snapshot!(reported("endless-loop", "start -> a -> b -> a; b -> c -> d -> c; d -> exit"), @r"
        1:27 warning: the loop from `a` through `b` has no limit
          at: b -> a
          fix: add max_visits to a node of it (a [max_visits=5]), or max_node_visits to the graph
        1:45 warning: the loop from `c` through `d` has no limit
          at: d -> c
          fix: add max_visits to a node of it (c [max_visits=5]), or max_node_visits to the graph
        ");
    }

    #[test]
    fn what_limits_a_loop() {
        insta::assert_snapshot!(reported("endless-loop", r#"start -> work -> check; work [max_visits=3]; check -> exit [condition="outcome=success"]; check -> work"#), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", r#"graph [max_node_visits=9]; start -> work -> check; check -> exit [condition="outcome=success"]; check -> work"#), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", r#"start -> work -> check; check -> exit [condition="context.internal.node_visit_count >= 5"]; check -> work"#), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> work -> ask; ask [shape=hexagon]; ask -> exit [label=Ship]; ask -> work [label=Again]"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", r#"start -> work -> check; work [max_visits=0]; check -> exit [condition="outcome=success"]; check -> work"#), @r"
        1:103 warning: the loop from `work` through `check` has no limit
          at: check -> work
          fix: add max_visits to a node of it (work [max_visits=5]), or max_node_visits to the graph
        ");
    }
}
