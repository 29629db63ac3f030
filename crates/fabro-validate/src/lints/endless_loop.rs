use fabro_condition::Condition;
use fabro_graph::{Edge, EdgeIx, Node, NodeIx, NodeKind};
use petgraph::algo::kosaraju_scc;
use petgraph::visit::EdgeFiltered;

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// Loops that nothing ends: no edge out of them can be taken, and there is no limit on visits, no
/// question to a person, no condition that counts visits and no budget. A loop that continues as long
/// as a condition holds is how people write, and no finding, unless each round asks a model: then
/// nothing limits the cost of the run. That is reported once per workflow.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let graph = workflow.attrs();
    if graph.int("max_node_visits").is_some_and(|visits| visits > 0) {
        return;
    }
    let has_budget = graph.get("max_cost").or(graph.get("max_tokens_total")).is_some();
    let limits: Vec<bool> = checking
        .nodes()
        .map(|(ix, node)| {
            matches!(node.kind, NodeKind::Human | NodeKind::Exit)
                || has_budget && node.kind.is_llm()
                || node.attrs.int("max_visits").is_some_and(|visits| visits > 0)
                || workflow.outgoing(ix).any(|edge| counts_visits(checking, edge))
        })
        .collect();
    let is_unlimited = |edge: &Edge| !limits[edge.from.index()] && !limits[edge.to.index()];
    let unlimited = EdgeFiltered::from_fn(workflow.graph(), |edge| is_unlimited(edge.weight()));
    let groups = kosaraju_scc(&unlimited);
    let mut group_of = vec![0; limits.len()];
    for (at, group) in groups.iter().enumerate() {
        for node in group {
            group_of[node.index()] = at;
        }
    }
    let asks_model: Vec<bool> =
        groups.iter().map(|group| group.iter().any(|node| asks_model(checking, *node))).collect();
    let has_way_out: Vec<bool> = groups
        .iter()
        .enumerate()
        .map(|(at, group)| {
            group.iter().any(|node| leaves(checking, *node, |to| group_of[to.index()] != at))
        })
        .collect();
    let mut done = vec![false; groups.len()];
    let mut is_cost_bounded = has_budget;
    for edge in workflow.edges().filter(|edge| is_unlimited(edge)) {
        let group = group_of[edge.from.index()];
        // The first edge that leads back is where the loop closes.
        if group != group_of[edge.to.index()]
            || edge.to > edge.from
            || std::mem::replace(&mut done[group], true)
        {
            continue;
        }
        let id = |ix| &workflow.node(ix).id;
        if has_way_out[group] {
            if asks_model[group] && !std::mem::replace(&mut is_cost_bounded, true) {
                let the_loop = if edge.from == edge.to {
                    format!("loop of `{}`", id(edge.to))
                } else {
                    format!("loop from `{}` through `{}`", id(edge.to), id(edge.from))
                };
                let message = format!("nothing limits how often the {the_loop} asks a model");
                let fix = format!(
                    "add {} [max_visits=5], or max_cost=5.0 (US dollars) to the graph",
                    id(edge.to)
                );
                findings.warning("unbounded-cost", edge.span, message, fix);
            }
            continue;
        }
        let message = if edge.from == edge.to {
            format!("`{}` leads to itself, and nothing ends the loop", id(edge.from))
        } else {
            format!("nothing ends the loop from `{}` through `{}`", id(edge.to), id(edge.from))
        };
        findings.warning(
            "endless-loop",
            edge.span,
            message,
            format!(
                "add an edge out of it with a condition, or a limit: {} [max_visits=5]",
                id(edge.to)
            ),
        );
    }
}

/// Whether the node asks a model, or runs a sub-workflow that may.
fn asks_model(checking: &Checking<'_>, node: NodeIx) -> bool {
    let node = checking.workflow.node(node);
    node.kind.is_llm() || node.kind == NodeKind::ManagerLoop
}

/// Whether one of the edges of a node that lead out can be taken.
fn leaves(checking: &Checking<'_>, node: NodeIx, is_out: impl Fn(NodeIx) -> bool) -> bool {
    let mut plain: Option<(f64, &Node, bool)> = None;
    let from = checking.workflow.node(node);
    let all_are_taken =
        from.kind == NodeKind::Parallel || text(&from.attrs, "selection") == Some("random");
    for (ix, edge) in checking.outgoing(node) {
        let out = is_out(edge.to);
        if out
            && (all_are_taken
                || checking.is_conditional(ix)
                || may_be_asked_for(checking, from, edge))
        {
            return true;
        }
        if checking.is_conditional(ix) {
            continue;
        }
        let weight = edge.attrs.float("weight").unwrap_or(0.0);
        let to = checking.workflow.node(edge.to);
        let wins =
            plain.is_none_or(|(best, node, _)| weight > best || weight >= best && to.id < node.id);
        if wins {
            plain = Some((weight, to, out));
        }
    }
    plain.is_some_and(|(_, _, out)| out)
}

/// Whether a model can ask for a plain edge: by its label, or by the id of its target, which the
/// prompt then names.
fn may_be_asked_for(checking: &Checking<'_>, from: &Node, edge: &Edge) -> bool {
    let names = |prompt: &str| prompt.contains(&*checking.workflow.node(edge.to).id);
    from.kind != NodeKind::Command
        && (text(&edge.attrs, "label").is_some() || text(&from.attrs, "prompt").is_some_and(names))
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
        insta::assert_snapshot!(reported("endless-loop", r#"start -> work -> check; check -> work; check -> work2 [condition="outcome=fail"]; work2 -> check"#), @r"
        1:37 warning: nothing ends the loop from `work` through `check`
          at: check -> work
          fix: add an edge out of it with a condition, or a limit: work [max_visits=5]
        ");
        insta::assert_snapshot!(reported("endless-loop", "start -> poll; poll -> poll; poll -> quit; quit -> exit; poll [shape=parallelogram, script=x]"), @r"
        1:28 warning: `poll` leads to itself, and nothing ends the loop
          at: poll -> poll
          fix: add an edge out of it with a condition, or a limit: poll [max_visits=5]
        ");
        insta::assert_snapshot!(reported("endless-loop", "start -> poll; poll -> poll [weight=1]; poll -> exit; poll [prompt=x]"), @r"
        1:28 warning: `poll` leads to itself, and nothing ends the loop
          at: poll -> poll
          fix: add an edge out of it with a condition, or a limit: poll [max_visits=5]
        ");
        insta::assert_snapshot!(reported("endless-loop", "start -> a -> b -> a; b -> c -> d -> c"), @r"
        1:27 warning: nothing ends the loop from `a` through `b`
          at: b -> a
          fix: add an edge out of it with a condition, or a limit: a [max_visits=5]
        1:45 warning: nothing ends the loop from `c` through `d`
          at: d -> c
          fix: add an edge out of it with a condition, or a limit: c [max_visits=5]
        ");
    }

    #[test]
    fn what_limits_a_loop() {
        insta::assert_snapshot!(reported("endless-loop", "start -> work -> check; work [max_visits=3]; check -> work"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "graph [max_node_visits=9]; start -> work -> check -> work"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "graph [max_cost=9]; start -> work -> check -> work"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> work -> ask -> work; ask [shape=hexagon]"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> work -> check -> work; work [max_visits=0]; graph [max_node_visits=0]"), @r"
        1:30 warning: nothing ends the loop from `work` through `check`
          at: check -> work
          fix: add an edge out of it with a condition, or a limit: work [max_visits=5]
        ");
    }

    #[test]
    fn a_loop_that_asks_a_model_needs_a_limit() {
        let of = |attributes: &str| {
            reported(
                "unbounded-cost",
                &format!(
                    r#"start -> fix -> test; test -> exit [condition="outcome=success"]; test -> fix; test [script=make]; {attributes}"#
                ),
            )
        };
        insta::assert_snapshot!(of(""), @r"
        1:79 warning: nothing limits how often the loop from `fix` through `test` asks a model
          at: test -> fix
          fix: add fix [max_visits=5], or max_cost=5.0 (US dollars) to the graph
        ");
        for limited in [
            "graph [max_cost=2]",
            "graph [max_tokens_total=90000]",
            "graph [max_node_visits=4]",
            "test [max_visits=3]",
            "fix [shape=hexagon]",
            "fix [script=x]",
        ] {
            assert_eq!(of(limited), "nothing", "{limited}");
        }
        // Once per workflow; a loop that cannot end is reported by another rule.
        insta::assert_snapshot!(reported("unbounded-cost", "start -> a -> b -> exit; a -> a [condition=x]; b -> b [condition=x]"), @r"
        1:38 warning: nothing limits how often the loop of `a` asks a model
          at: a -> a
          fix: add a [max_visits=5], or max_cost=5.0 (US dollars) to the graph
        ");
        assert_eq!(reported("unbounded-cost", "start -> a -> b -> a"), "nothing");
    }

    #[test]
    fn what_ends_a_loop() {
        insta::assert_snapshot!(reported("endless-loop", r#"start -> work -> check; check -> exit [condition="outcome=success"]; check -> work"#), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", r#"start -> poll -> exit; poll -> poll [condition="outcome=fail"]"#), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> a -> b -> a; b -> exit [weight=1]"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> a -> b -> a; b -> exit [label=Done]"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> a -> b -> a; b -> finish -> exit; b [prompt=\"Suggest finish when all is done.\"]"), @"nothing");
        insta::assert_snapshot!(reported("endless-loop", "start -> a -> b -> a; b -> exit; b [selection=random]"), @"nothing");
    }
}
