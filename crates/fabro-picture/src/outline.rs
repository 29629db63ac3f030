//! A workflow as lines for a terminal: every node, with the edges that leave it below.

use std::fmt::Write as _;

use fabro_graph::{EdgeIx, NodeIx, Workflow};
use fabro_types::NodeKind;

use crate::words::{cut, plain, width};
use crate::{Marks, time};

/// A workflow as an outline of lines of at most `columns` columns, or of 30 where that is less: nodes in the order in which the
/// start leads to them, below each the edges that leave it. `↑` marks an edge to a node above.
pub fn outline(workflow: &Workflow, marks: Option<&Marks>, columns: usize) -> String {
    let columns = columns.max(30);
    let order = in_order(workflow);
    let mut place = vec![0; order.len()];
    for (at, node) in order.iter().enumerate() {
        place[node.index()] = at;
    }
    let widest = order.iter().map(|node| width(&workflow.node(*node).id)).max().unwrap_or(0);
    let kinds = order.iter().map(|node| width(&workflow.node(*node).kind.to_string())).max();
    let widths = Widths { id: widest.min(columns / 3), kind: kinds.unwrap_or(0) };
    let mut out = String::new();
    for node in &order {
        let line = node_line(workflow, marks, *node, &widths);
        let _ = writeln!(out, "{}", fitted(&line, columns));
        let edges: Vec<EdgeIx> = workflow.outgoing(*node).collect();
        for (at, ix) in edges.iter().enumerate() {
            let branch = if at + 1 == edges.len() { "└" } else { "├" };
            let is_back = place[workflow.edge(*ix).to.index()] <= place[node.index()];
            let line = edge_line(workflow, marks, *ix, is_back);
            let _ = writeln!(out, "{}", fitted(&format!("  {branch} {line}"), columns));
        }
        if let Some(target) = workflow.node(*node).attrs.text("retry_target") {
            let line = format!("  · after a failure: {}", plain(target));
            let _ = writeln!(out, "{}", fitted(&line, columns));
        }
    }
    out
}

fn fitted(line: &str, columns: usize) -> String {
    if width(line) <= columns { line.to_owned() } else { cut(line, columns - 1) + "…" }
}

/// All nodes, each after those that lead to it, loops aside: what the start leads to comes first.
fn in_order(workflow: &Workflow) -> Vec<NodeIx> {
    let mut seen = vec![false; workflow.nodes().len()];
    let mut order = Vec::with_capacity(seen.len());
    for first in workflow.start().into_iter().chain(workflow.node_indices()) {
        let before = order.len();
        // What a node leads to is written before it, and the whole is turned round.
        let mut open = vec![(first, false)];
        while let Some((node, is_done)) = open.pop() {
            if is_done {
                order.push(node);
                continue;
            }
            if std::mem::replace(&mut seen[node.index()], true) {
                continue;
            }
            open.push((node, true));
            open.extend(workflow.outgoing(node).map(|ix| (workflow.edge(ix).to, false)));
        }
        order[before..].reverse();
    }
    // The ends come last.
    order.sort_by_key(|node| workflow.node(*node).kind == NodeKind::Exit);
    order
}

/// How wide the columns are.
struct Widths {
    id: usize,
    kind: usize,
}

fn node_line(workflow: &Workflow, marks: Option<&Marks>, ix: NodeIx, widths: &Widths) -> String {
    let node = workflow.node(ix);
    let sign = match node.kind {
        NodeKind::Start => '●',
        NodeKind::Exit => '◉',
        NodeKind::Conditional => '◇',
        NodeKind::Human => '⬡',
        NodeKind::Parallel => '⋔',
        NodeKind::FanIn => '⋃',
        NodeKind::ManagerLoop => '⌂',
        NodeKind::Command => '▱',
        _ => '□',
    };
    let mark = marks.map(|marks| match marks.nodes.get(&*node.id) {
        Some(mark) => {
            let visits =
                if mark.visits > 1 { format!(" {}×", mark.visits) } else { String::new() };
            let text = format!("{}{visits} {}", mark.result.sign(), time(mark.duration_ms));
            format!("{text:13}")
        }
        None => format!("{:13}", ""),
    });
    let id = cut(&node.id, widths.id);
    let pad = " ".repeat(widths.id.saturating_sub(width(&id)));
    let label = plain(node.label());
    let label = if label == *node.id { String::new() } else { label };
    let kind = node.kind.to_string();
    let kinds = widths.kind;
    let mark = mark.unwrap_or_default();
    let line = format!("{sign} {id}{pad}  {mark}{kind:kinds$}  {label}");
    line.trim_end().to_owned()
}

fn edge_line(workflow: &Workflow, marks: Option<&Marks>, ix: EdgeIx, is_back: bool) -> String {
    let edge = workflow.edge(ix);
    let to = &workflow.node(edge.to).id;
    let label = edge.label().map(plain);
    let key =
        (workflow.node(edge.from).id.to_string(), to.to_string(), edge.label().map(str::to_owned));
    let taken = marks.and_then(|marks| marks.edges.get(&key)).map(|count| format!("  ({count}×)"));
    let mut line = format!("→ {to}{}", if is_back { " ↑" } else { "" });
    line.push_str(&taken.unwrap_or_default());
    if let Some(label) = label {
        let _ = write!(line, "  \"{label}\"");
    }
    if let Some(condition) = edge.condition() {
        let _ = write!(line, "  [{}]", plain(condition));
    }
    line
}
