use fabro_graph::{Diagnostic, Node, NodeKind};

use crate::checking::Checking;

/// Nodes that no run gets to. Of those that lead to one another the first is told.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let flow = checking.flow();
    if checking.workflow.start().is_none() {
        return;
    }
    let nodes: Vec<&Node> = checking.workflow.nodes().collect();
    let mut told = flow.reached.clone();
    let has_way_in = |at: usize| flow.previous[at].iter().any(|step| step.to != at);
    let lost = |at: &usize| !flow.reached[*at];
    // Those that nothing leads to, then what is left: loops that nothing leads into.
    let first = (0..nodes.len()).filter(lost).filter(|at| !has_way_in(*at));
    for at in first.chain((0..nodes.len()).filter(lost)) {
        if told[at] {
            continue;
        }
        let mut queue = vec![at];
        let mut behind = 0;
        told[at] = true;
        while let Some(node) = queue.pop() {
            for step in &flow.next[node] {
                if !std::mem::replace(&mut told[step.to], true) {
                    behind += usize::from(step.to < nodes.len());
                    queue.push(step.to);
                }
            }
        }
        findings.push(finding(nodes[at], behind));
    }
}

fn finding(node: &Node, behind: usize) -> Diagnostic {
    let others = match behind {
        0 => String::new(),
        1 => ", nor one node behind it".to_owned(),
        count => format!(", nor {count} nodes behind it"),
    };
    let what = if node.kind == NodeKind::Exit { "the exit " } else { "" };
    let message = format!("no way leads from the start to {what}`{}`{others}", node.id);
    Diagnostic::warning("unreachable-node", node.span, message)
        .with_fix("add an edge to it, or remove it")
}
