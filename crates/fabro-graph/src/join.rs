use std::collections::{HashMap, HashSet, VecDeque};

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
/// The branches of a list (`for_each`) have the same path: they meet at the first fan-in on it that no
/// fan-out on the way ends at, or else at the first one.
///
/// All branches advance together, so the search ends where the fan-out does. `steps` bounds it,
/// and is lowered by what it took: nodes and edges looked at.
pub fn join(workflow: &Workflow, fan_out: NodeIx, steps: &mut usize) -> Join {
    if workflow.node(fan_out).for_each().is_some() {
        return match first_fan_in(workflow, fan_out, true, steps) {
            Join::Nowhere => first_fan_in(workflow, fan_out, false, steps),
            found => found,
        };
    }
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

/// How deep lists in lists are followed: fan-outs nest no deeper.
const MAX_DEPTH: usize = 16;

/// The fan-in that is nearest on the path of a list; with `own` one that ends no fan-out on the way.
fn first_fan_in(workflow: &Workflow, fan_out: NodeIx, own: bool, steps: &mut usize) -> Join {
    let next = |node: NodeIx| workflow.outgoing(node).map(|edge| workflow.edge(edge).to);
    let mut seen = HashSet::new();
    // With how many lists are open there.
    let mut queue: VecDeque<(NodeIx, usize)> = next(fan_out).map(|to| (to, 0)).collect();
    while let Some((node, open)) = queue.pop_front() {
        if node == fan_out || !seen.insert((node, open)) {
            continue;
        }
        *steps = steps.saturating_sub(1 + workflow.outgoing(node).len());
        if *steps == 0 {
            return Join::GaveUp;
        }
        let inner = workflow.node(node);
        let mut open = open;
        if inner.kind == NodeKind::FanIn {
            if open == 0 {
                return Join::At(node);
            }
            open -= 1;
        } else if own && inner.for_each().is_some() {
            open += 1;
            if open > MAX_DEPTH {
                continue;
            }
        } else if own && inner.kind == NodeKind::Parallel {
            match join(workflow, node, steps) {
                Join::At(end) if workflow.node(end).kind == NodeKind::FanIn => {
                    queue.extend(next(end).map(|to| (to, open)));
                }
                Join::At(end) => queue.push_back((end, open)),
                Join::Nowhere => {}
                Join::GaveUp => return Join::GaveUp,
            }
            continue;
        }
        queue.extend(next(node).map(|to| (to, open)));
    }
    Join::Nowhere
}
