use std::collections::{BTreeMap, HashSet};

use fabro_graph::{NodeKind, Workflow};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::graph::{Flow, Step};
use super::writer::Writer;

/// How many steps the search for what comes before first visits takes in one workflow.
const MAX_SEARCH: usize = 200_000;

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

/// Reads by number that find nothing.
#[derive(Debug, Default)]
pub(crate) struct Unmet {
    /// No writer can come before them.
    pub(crate) always: Vec<usize>,
    /// Before stages in a loop: no writer can come before the first visit, only before later ones.
    pub(crate) at_first: Vec<usize>,
}

/// The reads that no writer can come before. Nodes that a run cannot reach neither write nor read. Takes a
/// pass over the graph for every 64 different writers; the search for what comes before first visits ends
/// after a number of steps, and then finds no more.
pub(crate) fn unmet(workflow: &Workflow, flow: &Flow, reads: &[Read]) -> Unmet {
    let mut by_writer: BTreeMap<Writer, Vec<usize>> = BTreeMap::new();
    for (at, read) in reads.iter().enumerate().filter(|(_, read)| flow.reached[read.at]) {
        by_writer.entry(read.writer).or_default().push(at);
    }
    if by_writer.is_empty() {
        return Unmet::default();
    }
    let order = Order::new(flow);
    let writers: Vec<(Writer, Vec<usize>)> = by_writer.into_iter().collect();
    let mut unmet = Vec::new();
    let mut in_loops: BTreeMap<usize, BTreeMap<Writer, Vec<usize>>> = BTreeMap::new();
    for batch in writers.chunks(64) {
        let mut own = vec![0_u64; flow.next.len()];
        let mut given = vec![0_u64; flow.next.len()];
        for (bit, (writer, _)) in batch.iter().enumerate() {
            mark(workflow, flow, *writer, 1 << bit, &mut own);
            give(workflow, flow, *writer, 1 << bit, &mut given);
        }
        let (before, after) = order.spread(flow, &own, &given);
        for (bit, (writer, numbers)) in batch.iter().enumerate() {
            for number in numbers {
                let read = reads[*number];
                let seen = if read.after { &after } else { &before };
                if seen[read.at] & (1 << bit) == 0 {
                    unmet.push(*number);
                } else if !read.after && order.is_loop(flow, order.group_of[read.at]) {
                    in_loops.entry(read.at).or_default().entry(*writer).or_default().push(*number);
                }
            }
        }
    }
    unmet.sort_unstable();
    Unmet { always: unmet, at_first: unmet_at_first(workflow, flow, in_loops) }
}

/// Of the reads by place and writer those before whose first visit no writer can come.
fn unmet_at_first(
    workflow: &Workflow,
    flow: &Flow,
    reads: BTreeMap<usize, BTreeMap<Writer, Vec<usize>>>,
) -> Vec<usize> {
    let mut left = MAX_SEARCH;
    let mut unmet = Vec::new();
    for (at, by_writer) in reads {
        let Some(before) = before_first(workflow, flow, at, &mut left) else { break };
        for (writer, numbers) in by_writer {
            left = left.saturating_sub(before.len());
            if left > 0 && !before.iter().any(|node| writer.is(workflow, *node)) {
                unmet.extend(numbers);
            }
        }
    }
    unmet.sort_unstable();
    unmet
}

/// The nodes on ways to a node that do not lead through it, and from which what they write gets there.
/// `None` when it took too many steps.
fn before_first(
    workflow: &Workflow,
    flow: &Flow,
    at: usize,
    left: &mut usize,
) -> Option<Vec<usize>> {
    let starts = workflow.nodes().enumerate().filter(|(_, node)| node.kind == NodeKind::Start);
    let mut queue: Vec<usize> =
        starts.map(|(start, _)| start).filter(|start| *start != at).collect();
    let mut reached: HashSet<usize> = queue.iter().copied().collect();
    while let Some(node) = queue.pop() {
        *left = left.checked_sub(1 + flow.next[node].len())?;
        let steps = flow.next[node].iter().map(|step| step.to);
        queue.extend(steps.filter(|to| *to != at && reached.insert(*to)));
    }
    let mut before = Vec::new();
    let mut queue = vec![at];
    while let Some(node) = queue.pop() {
        *left = left.checked_sub(1 + flow.previous[node].len())?;
        for step in flow.previous[node].iter().filter(|step| step.kind.carries()) {
            if reached.remove(&step.to) {
                queue.push(step.to);
                // The node behind the last stands for the goal gates, and writes nothing.
                before.extend(Some(step.to).filter(|node| *node < workflow.nodes().len()));
            }
        }
    }
    Some(before)
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

    /// Whether the nodes of a group can be visited again with what they have written.
    fn is_loop(&self, flow: &Flow, group: usize) -> bool {
        let leads_to_itself = |node: usize| carried(flow, node).any(|step| step.to == node);
        match self.groups[group].as_slice() {
            [node] => leads_to_itself(node.index()),
            _ => true,
        }
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
            let is_loop = self.is_loop(flow, at);
            for node in group {
                before[node.index()] = if is_loop { written } else { incoming[at] };
                after[node.index()] = written;
                for step in carried(flow, node.index()) {
                    incoming[self.group_of[step.to]] |= written;
                }
            }
        }
        (before, after)
    }
}

/// The steps from a node that keep the context.
fn carried(flow: &Flow, node: usize) -> impl Iterator<Item = &Step> {
    flow.next[node].iter().filter(|step| step.kind.carries())
}
