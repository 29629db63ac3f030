use std::collections::{HashMap, HashSet, VecDeque};

use crate::workflow::{Edge, NodeIx, Workflow};
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
/// with the least sum of distances, then a fan-in, then one that all branches reach when their
/// stages succeed, then the lowest id ([`Meeting::others`] has the nodes that differ only in that).
/// Branches begin at the targets of the fan-out's edges.
///
/// The branches of a list (`for_each`) have the same path: they meet at the first fan-in on it that no
/// fan-out on the way ends at, or else at the first one.
///
/// All branches advance together, so the search ends where the fan-out does. `steps` bounds it,
/// and is lowered by what it took: nodes and edges looked at.
pub fn join(workflow: &Workflow, fan_out: NodeIx, steps: &mut usize) -> Join {
    meeting(workflow, fan_out, steps).join
}

/// Where the branches of a fan-out meet, and the equally good alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The result of [`join`].
    pub join: Join,
    /// Nodes that were not chosen only because of their higher id.
    pub others: Vec<NodeIx>,
}

impl From<Join> for Meeting {
    fn from(join: Join) -> Self {
        Self { join, others: Vec::new() }
    }
}

/// Like [`join`], but also returns the nodes that were not chosen only because of their id.
pub fn meeting(workflow: &Workflow, fan_out: NodeIx, steps: &mut usize) -> Meeting {
    if workflow.node(fan_out).for_each().is_some() {
        return match first_fan_in(workflow, fan_out, true, steps) {
            Join::Nowhere => first_fan_in(workflow, fan_out, false, steps),
            found => found,
        }
        .into();
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
        let rank = |(sum, ix): &(usize, NodeIx)| (*sum, workflow.node(*ix).kind != NodeKind::FanIn);
        if let Some(best) = complete.iter().map(rank).min() {
            complete.retain(|it| rank(it) == best);
            let mut equal: Vec<NodeIx> = complete.into_iter().map(|(_, ix)| ix).collect();
            if equal.len() > 1 {
                prefer_success(workflow, fan_out, &targets, &mut equal, steps);
            }
            equal.sort_by_key(|ix| &workflow.node(*ix).id);
            let join = Join::At(equal.remove(0));
            return Meeting { join, others: equal };
        }
        if *steps == 0 {
            return Join::GaveUp.into();
        }
        distance += 1;
    }
    Join::Nowhere.into()
}

/// Keeps the nodes that every branch reaches when its stages succeed. Keeps all if there are none.
fn prefer_success(
    workflow: &Workflow,
    fan_out: NodeIx,
    targets: &[NodeIx],
    nodes: &mut Vec<NodeIx>,
    steps: &mut usize,
) {
    let mut reached = nodes.clone();
    for target in targets {
        let mut seen = HashSet::new();
        let mut queue = vec![*target];
        while let Some(node) = queue.pop() {
            if node == fan_out || !seen.insert(node) || *steps == 0 {
                continue;
            }
            *steps = steps.saturating_sub(1 + workflow.outgoing(node).len());
            queue.extend(after_success(workflow, node));
        }
        reached.retain(|node| seen.contains(node));
    }
    if !reached.is_empty() {
        *nodes = reached;
    }
}

/// The possible next nodes after a success, judged only by conditions on `outcome`: the targets of
/// edges whose condition is then true, or else of all edges except those whose condition is then
/// false.
fn after_success(workflow: &Workflow, node: NodeIx) -> Vec<NodeIx> {
    let edges: Vec<_> = workflow.outgoing(node).map(|edge| workflow.edge(edge)).collect();
    let holds = |condition: &str| {
        let text: String = condition.chars().filter(|c| !c.is_whitespace()).collect();
        let text = text.strip_prefix("context.").unwrap_or(&text).replace("==", "=");
        let is_success = |word: &str| matches!(word, "success" | "succeeded");
        match text.strip_prefix("outcome")? {
            rest if let Some(word) = rest.strip_prefix("!=") => Some(!is_success(word)),
            rest => rest.strip_prefix('=').map(is_success),
        }
    };
    let known = |edge: &Edge| edge.condition().and_then(holds);
    let chosen = edges.iter().filter(|edge| known(edge) == Some(true));
    let chosen: Vec<NodeIx> = chosen.map(|edge| edge.to).collect();
    if !chosen.is_empty() {
        return chosen;
    }
    edges.iter().filter(|edge| known(edge) != Some(false)).map(|edge| edge.to).collect()
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
