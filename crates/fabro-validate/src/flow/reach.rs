use std::collections::BTreeMap;

use fabro_graph::Workflow;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::graph::Flow;
use super::writer::Writer;

/// A place that reads a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Who could write it.
    pub(crate) writer: Writer,
    /// The node where it is read.
    pub(crate) at: usize,
    /// It is read after the stage (by a condition), so that the node's own writes count.
    pub(crate) after: bool,
}

/// The reads, by number, that no writer can come before. Nodes that a run cannot reach neither write
/// nor read. Takes a pass over the graph for every 64 different writers.
pub(crate) fn unmet(workflow: &Workflow, flow: &Flow, reads: &[Read]) -> Vec<usize> {
    let mut by_writer: BTreeMap<Writer, Vec<usize>> = BTreeMap::new();
    for (at, read) in reads.iter().enumerate().filter(|(_, read)| flow.reached[read.at]) {
        by_writer.entry(read.writer).or_default().push(at);
    }
    if by_writer.is_empty() {
        return Vec::new();
    }
    let order = Order::new(flow);
    let writers: Vec<(Writer, Vec<usize>)> = by_writer.into_iter().collect();
    let mut unmet = Vec::new();
    for batch in writers.chunks(64) {
        let mut own = vec![0_u64; flow.next.len()];
        let mut given = vec![0_u64; flow.next.len()];
        for (bit, (writer, _)) in batch.iter().enumerate() {
            mark(workflow, flow, *writer, 1 << bit, &mut own);
            give(workflow, flow, *writer, 1 << bit, &mut given);
        }
        let (before, after) = order.spread(flow, &own, &given);
        for (bit, (_, numbers)) in batch.iter().enumerate() {
            let is_met = |number: &usize| {
                let read = reads[*number];
                let seen = if read.after { &after } else { &before };
                seen[read.at] & (1 << bit) != 0
            };
            unmet.extend(numbers.iter().copied().filter(|number| !is_met(number)));
        }
    }
    unmet.sort_unstable();
    unmet
}

fn mark(workflow: &Workflow, flow: &Flow, writer: Writer, bit: u64, own: &mut [u64]) {
    let mut set = |at: usize| {
        if flow.reached[at] && writer.is(workflow, at) && !writer.is_list(workflow, at) {
            own[at] |= bit;
        }
    };
    match writer {
        Writer::Node(ix) => set(ix.index()),
        _ => (0..workflow.nodes().len()).for_each(set),
    }
}

/// The elements of a list are there where its branches begin, and not after its own stage.
fn give(workflow: &Workflow, flow: &Flow, writer: Writer, bit: u64, given: &mut [u64]) {
    if !matches!(writer, Writer::Element { .. }) {
        return;
    }
    for ix in workflow.node_indices() {
        if flow.reached[ix.index()] && writer.is_list(workflow, ix.index()) {
            for edge in workflow.outgoing(ix) {
                given[workflow.edge(edge).to.index()] |= bit;
            }
        }
    }
}

/// The nodes in groups that can all reach one another, each group before those it leads to.
struct Order {
    groups: Vec<Vec<NodeIndex<u32>>>,
    /// By node: its group.
    group_of: Vec<usize>,
}

impl Order {
    fn new(flow: &Flow) -> Self {
        let mut graph: DiGraph<(), ()> = DiGraph::with_capacity(flow.next.len(), flow.next.len());
        for _ in &flow.next {
            graph.add_node(());
        }
        for (from, steps) in flow.next.iter().enumerate() {
            for step in steps.iter().filter(|step| step.kind.carries()) {
                graph.add_edge(NodeIndex::new(from), NodeIndex::new(step.to), ());
            }
        }
        let mut groups = kosaraju_scc(&graph);
        groups.reverse();
        let mut group_of = vec![0; flow.next.len()];
        for (at, group) in groups.iter().enumerate() {
            for node in group {
                group_of[node.index()] = at;
            }
        }
        Self { groups, group_of }
    }

    /// By node: what has been written before its stage, and after it. `own` is what its stage writes,
    /// `given` what it finds there.
    fn spread(&self, flow: &Flow, own: &[u64], given: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut incoming = vec![0_u64; self.groups.len()];
        for (node, bits) in given.iter().enumerate() {
            incoming[self.group_of[node]] |= bits;
        }
        let mut before = vec![0_u64; own.len()];
        let mut after = vec![0_u64; own.len()];
        for (at, group) in self.groups.iter().enumerate() {
            let written = group.iter().fold(incoming[at], |bits, node| bits | own[node.index()]);
            let steps = |node: &NodeIndex<u32>| flow.next[node.index()].iter();
            let carried = |node| steps(node).filter(|step| step.kind.carries());
            let is_loop = group.len() > 1
                || group.iter().any(|node| carried(node).any(|step| step.to == node.index()));
            for node in group {
                before[node.index()] = if is_loop { written } else { incoming[at] };
                after[node.index()] = written;
                for step in carried(node) {
                    incoming[self.group_of[step.to]] |= written;
                }
            }
        }
        (before, after)
    }
}
