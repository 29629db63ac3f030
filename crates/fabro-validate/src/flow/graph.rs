use std::collections::HashSet;

use fabro_graph::{Join, NodeIx, NodeKind, Workflow, join};

/// How many steps the search for the ends of fan-outs takes in one workflow. Only fan-outs that
/// overlap each other many times over need more, and are then taken as having no end.
const MAX_SEARCH: usize = 500_000;

/// Everywhere a run can go from a node, jumps included. Nodes are numbers; behind those of the
/// workflow comes one that stands for "the goal gates are not met".
#[derive(Debug)]
pub(crate) struct Flow {
    /// By node.
    pub(crate) next: Vec<Vec<Step>>,
    /// The same steps by the node that they lead to; `to` is where they come from.
    pub(crate) previous: Vec<Vec<Step>>,
    /// By node: a run can get there.
    pub(crate) reached: Vec<bool>,
    /// By node: it is inside a fan-out, not after it.
    pub(crate) in_branch: Vec<bool>,
    /// Fan-outs with two branches or more that no node ends.
    pub(crate) endless_fan_outs: Vec<NodeIx>,
}

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) to: usize,
    pub(crate) kind: StepKind,
}

/// What happens to the context in a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// It is kept.
    Plain,
    /// It is reset.
    Restart,
    /// The end of a branch of this fan-out: what the branch wrote stays behind.
    BranchEnd(NodeIx),
}

impl StepKind {
    /// True when the next stage sees what this one wrote.
    pub(crate) fn carries(self) -> bool {
        self == Self::Plain
    }
}

impl Flow {
    pub(crate) fn new(workflow: &Workflow) -> Self {
        let mut next: Vec<Vec<Step>> = vec![Vec::new(); workflow.nodes().len() + 1];
        for edge in workflow.edges() {
            let restarts = edge.attrs.bool("loop_restart") == Some(true);
            let kind = if restarts { StepKind::Restart } else { StepKind::Plain };
            next[edge.from.index()].push(Step { to: edge.to.index(), kind });
        }
        add_jumps(workflow, &mut next);
        let mut flow = Self {
            previous: reversed(&next),
            reached: Vec::new(),
            in_branch: vec![false; next.len()],
            endless_fan_outs: Vec::new(),
            next,
        };
        let starts = workflow.nodes().enumerate().filter(|(_, n)| n.kind == NodeKind::Start);
        flow.reached = spread(&flow.next, starts.map(|(at, _)| at));
        flow.end_branches(workflow);
        flow
    }

    /// Marks the steps at which branches of fan-outs end, and lets each fan-out itself lead to its
    /// end: the main line continues there with the context it had before.
    fn end_branches(&mut self, workflow: &Workflow) {
        let mut left = MAX_SEARCH;
        let mut ends = Vec::new();
        for (at, node) in workflow.nodes().enumerate() {
            if node.kind != NodeKind::Parallel {
                continue;
            }
            let fan_out = NodeIx::new(at);
            let targets: Vec<usize> = {
                let mut seen = HashSet::new();
                let edges = workflow.outgoing(fan_out).map(|edge| workflow.edge(edge).to.index());
                edges.filter(|to| seen.insert(*to)).collect()
            };
            match join(workflow, fan_out, &mut left) {
                Join::At(join) => {
                    let join = join.index();
                    let region = self.region(at, &targets, Some(join), &mut left);
                    ends.push((fan_out, join, region));
                }
                Join::Nowhere => {
                    if targets.len() > 1 {
                        self.endless_fan_outs.push(fan_out);
                    }
                    for node in self.region(at, &targets, None, &mut left) {
                        self.in_branch[node] = true;
                    }
                }
                Join::GaveUp => {}
            }
        }
        if ends.is_empty() {
            return;
        }
        for (fan_out, join, region) in ends {
            self.close(fan_out, join, &region);
        }
        self.previous = reversed(&self.next);
    }

    /// The nodes of the branches: all that their targets reach before the join.
    fn region(
        &self,
        fan_out: usize,
        targets: &[usize],
        join: Option<usize>,
        left: &mut usize,
    ) -> Vec<usize> {
        let outside = |node: usize| node == fan_out || Some(node) == join;
        let mut seen: HashSet<usize> = HashSet::new();
        let mut region: Vec<usize> = Vec::new();
        region.extend(targets.iter().copied().filter(|node| !outside(*node) && seen.insert(*node)));
        let mut at = 0;
        while let Some(node) = region.get(at).copied() {
            at += 1;
            *left = left.saturating_sub(1 + self.next[node].len());
            if *left == 0 {
                return Vec::new();
            }
            let steps = self.next[node].iter().map(|step| step.to);
            region.extend(steps.filter(|to| !outside(*to) && seen.insert(*to)));
        }
        region
    }

    /// What only this fan-out leads to ends where the fan-out ends; nodes that the main line passes
    /// too are left alone.
    fn close(&mut self, fan_out: NodeIx, join: usize, region: &[usize]) {
        let inside: HashSet<usize> = region.iter().copied().collect();
        let enters = |node: usize| {
            let came = |step: &Step| {
                step.to != fan_out.index() && !inside.contains(&step.to) && self.reached[step.to]
            };
            self.previous[node].iter().any(came)
        };
        let mut shared: HashSet<usize> = HashSet::new();
        let mut queue: Vec<usize> = region.iter().copied().filter(|node| enters(*node)).collect();
        while let Some(node) = queue.pop() {
            if shared.insert(node) {
                let steps = self.next[node].iter().map(|step| step.to);
                queue.extend(steps.filter(|to| inside.contains(to)));
            }
        }
        for node in region.iter().copied().filter(|node| !shared.contains(node)) {
            self.in_branch[node] = true;
            for step in &mut self.next[node] {
                if step.to == join && step.kind == StepKind::Plain {
                    step.kind = StepKind::BranchEnd(fan_out);
                }
            }
        }
        self.next[fan_out.index()].push(Step { to: join, kind: StepKind::Plain });
    }
}

/// The jumps after failures that no edge takes, and from the exit back to unmet goal gates.
fn add_jumps(workflow: &Workflow, next: &mut [Vec<Step>]) {
    let graph = workflow.attrs();
    let find = |id: Option<&str>| workflow.find(id?).map(NodeIx::index);
    let names = ["retry_target", "fallback_retry_target"];
    let of_graph: Vec<usize> = names.iter().filter_map(|name| find(graph.text(name))).collect();
    let stuck = stuck(workflow);
    let gates = next.len() - 1;
    for (at, node) in workflow.nodes().enumerate() {
        let is_gate = node.attrs.bool("goal_gate") == Some(true);
        let runs = !matches!(node.kind, NodeKind::Start | NodeKind::Exit | NodeKind::Conditional);
        if node.kind == NodeKind::Exit {
            next[at].push(Step { to: gates, kind: StepKind::Plain });
        }
        let own = names.iter().filter_map(|name| find(node.attrs.text(name)));
        for to in own.chain(of_graph.iter().copied()) {
            if runs && stuck[at] {
                next[at].push(Step { to, kind: StepKind::Plain });
            }
            if is_gate {
                next[gates].push(Step { to, kind: StepKind::Plain });
            }
        }
    }
    next[gates].sort_unstable_by_key(|step| step.to);
    next[gates].dedup();
}

/// By node: a failure there may find no edge. Every edge has a condition, or a gate was not answered;
/// or that is so at a conditional node that the failure is handed on to.
fn stuck(workflow: &Workflow) -> Vec<bool> {
    let mut stuck: Vec<bool> = workflow
        .node_indices()
        .map(|ix| {
            let mut edges = workflow.outgoing(ix).map(|edge| workflow.edge(edge));
            workflow.node(ix).kind == NodeKind::Human || edges.all(|e| e.condition().is_some())
        })
        .collect();
    let is_conditional = |ix: NodeIx| workflow.node(ix).kind == NodeKind::Conditional;
    let mut queue: Vec<NodeIx> =
        workflow.node_indices().filter(|ix| is_conditional(*ix) && stuck[ix.index()]).collect();
    while let Some(node) = queue.pop() {
        for edge in workflow.incoming(node) {
            let from = workflow.edge(edge).from;
            if !std::mem::replace(&mut stuck[from.index()], true) && is_conditional(from) {
                queue.push(from);
            }
        }
    }
    stuck
}

fn reversed(next: &[Vec<Step>]) -> Vec<Vec<Step>> {
    let mut previous = vec![Vec::new(); next.len()];
    for (from, steps) in next.iter().enumerate() {
        for step in steps {
            previous[step.to].push(Step { to: from, kind: step.kind });
        }
    }
    previous
}

/// By node: it can be reached from these nodes, they included.
fn spread(steps: &[Vec<Step>], from: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut seen = vec![false; steps.len()];
    let mut queue: Vec<usize> = from.into_iter().collect();
    for node in &queue {
        seen[*node] = true;
    }
    while let Some(node) = queue.pop() {
        for step in &steps[node] {
            if !std::mem::replace(&mut seen[step.to], true) {
                queue.push(step.to);
            }
        }
    }
    seen
}
