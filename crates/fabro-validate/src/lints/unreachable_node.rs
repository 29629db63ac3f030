use fabro_graph::Node;

use crate::checking::Checking;
use crate::findings::Findings;

/// Nodes that no run reaches. Of those that lead to one another the first is reported.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let flow = checking.flow();
    if checking.workflow.start().is_none() {
        return;
    }
    let nodes: Vec<&Node> = checking.workflow.nodes().collect();
    let mut reported = flow.reached.clone();
    // Reports only once that the run cannot end.
    let ends = checking.workflow.exits().any(|ix| flow.reached[ix.index()]);
    if !ends && let Some(first) = checking.workflow.exits().next() {
        let exit = nodes[first.index()];
        let message = format!("no path leads from the start to the exit `{}`", exit.id);
        let fix = format!("add an edge from the last stage: STAGE -> {}", exit.id);
        findings.error("no-path-to-exit", exit.span, message, fix);
        checking.workflow.exits().for_each(|exit| reported[exit.index()] = true);
    }
    let has_way_in = |at: usize| flow.previous[at].iter().any(|step| step.to != at);
    let lost = |at: &usize| !flow.reached[*at];
    // Those that nothing leads to, then what is left: loops that nothing leads into.
    let first = (0..nodes.len()).filter(lost).filter(|at| !has_way_in(*at));
    for at in first.chain((0..nodes.len()).filter(lost)) {
        if reported[at] {
            continue;
        }
        let mut queue = vec![at];
        let mut behind = 0;
        reported[at] = true;
        while let Some(node) = queue.pop() {
            for step in &flow.next[node] {
                if !std::mem::replace(&mut reported[step.to], true) {
                    behind += usize::from(step.to < nodes.len());
                    queue.push(step.to);
                }
            }
        }
        let others = match behind {
            0 => String::new(),
            1 => ", nor to one node behind it".to_owned(),
            count => format!(", nor to {count} nodes behind it"),
        };
        let message = format!("no path leads from the start to `{}`{others}", nodes[at].id);
        let fix = "add an edge to it, or remove it";
        findings.warning("unreachable-node", nodes[at].span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn every_node_can_be_reached() {
        insta::assert_snapshot!(reported("unreachable-node", "start -> exit; a -> b -> c -> exit"), @r"
        1:28 warning: no path leads from the start to `a`, nor to 2 nodes behind it
          at: a
          fix: add an edge to it, or remove it
        ");
        insta::assert_snapshot!(reported("unreachable-node", "start -> a -> a; b -> c -> b; c -> exit"), @r"
        1:30 warning: no path leads from the start to `b`, nor to one node behind it
          at: b
          fix: add an edge to it, or remove it
        ");
        insta::assert_snapshot!(reported("no-path-to-exit", "start -> a -> a; b -> c -> b; c -> exit; d -> done; done [shape=Msquare]"), @r"
        1:48 error: no path leads from the start to the exit `exit`
          at: exit
          fix: add an edge from the last stage: STAGE -> exit
        ");
        insta::assert_snapshot!(reported("no-path-to-exit", "start -> a; exit [label=x]"), @r"
        1:25 error: no path leads from the start to the exit `exit`
          at: exit
          fix: add an edge from the last stage: STAGE -> exit
        ");
        insta::assert_snapshot!(reported("no-path-to-exit", "start -> a; a [shape=component]; a -> b -> exit"), @"nothing");
        insta::assert_snapshot!(reported("unreachable-node", r#"start -> a; a [shape=parallelogram, script=x, retry_target=b]; a -> exit [condition="outcome=success"]; b -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("unreachable-node", "start -> a -> exit; a [goal_gate=true, retry_target=b]; b -> exit"), @"nothing");
    }
}
