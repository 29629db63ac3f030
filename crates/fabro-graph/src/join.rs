use std::collections::{HashMap, HashSet};

use crate::workflow::{NodeIx, Workflow};
use fabro_types::NodeKind;

/// Where the branches of a fan-out meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// At this node.
    At(NodeIx),
    /// No node can be reached by all of them.
    Nowhere,
    /// The search took more steps than it was given.
    GaveUp,
}

/// Finds where the branches of a fan-out meet: the first node that all of them can reach without
/// passing the fan-out itself. "First" is the node whose farthest branch is nearest, then the one
/// with the least sum of distances, then a fan-in, then the lowest id. Branches begin at the
/// targets of the fan-out's edges.
///
/// All branches advance together, so the search ends where the fan-out does. `steps` bounds it,
/// and is lowered by what it took: nodes and edges looked at.
pub fn join(workflow: &Workflow, fan_out: NodeIx, steps: &mut usize) -> Join {
    let mut targets: Vec<NodeIx> = Vec::new();
    let mut known = HashSet::new();
    for edge in workflow.outgoing(fan_out) {
        let target = workflow.edge(edge).to;
        if known.insert(target) {
            targets.push(target);
        }
    }
    let mut arrived: HashMap<NodeIx, (usize, usize)> = HashMap::new();
    let mut seen: HashSet<(usize, NodeIx)> = HashSet::new();
    let mut fronts: Vec<Vec<NodeIx>> = targets.iter().map(|target| vec![*target]).collect();
    let mut distance = 0;
    while fronts.iter().any(|front| !front.is_empty()) {
        let mut complete = Vec::new();
        for (branch, front) in fronts.iter_mut().enumerate() {
            let mut ahead = Vec::new();
            for node in front.drain(..).filter(|node| seen.insert((branch, *node))) {
                let entry = arrived.entry(node).or_default();
                *entry = (entry.0 + 1, entry.1 + distance);
                if entry.0 == targets.len() {
                    complete.push((entry.1, node));
                }
                let edges = workflow.outgoing(node);
                *steps = steps.saturating_sub(1 + edges.len());
                let to = edges.map(|edge| workflow.edge(edge).to);
                ahead.extend(to.filter(|to| *to != fan_out));
            }
            *front = ahead;
        }
        let nearest = complete.into_iter().min_by_key(|(sum, ix)| {
            let node = workflow.node(*ix);
            (*sum, node.kind != NodeKind::FanIn, &node.id)
        });
        if let Some((_, node)) = nearest {
            return Join::At(node);
        }
        if *steps == 0 {
            return Join::GaveUp;
        }
        distance += 1;
    }
    Join::Nowhere
}
