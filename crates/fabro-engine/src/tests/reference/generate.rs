//! Generates small random workflows, deterministic by seed.

use super::graph::{
    Class, Condition, Edge, ExitStatus, Graph, Kind, Node, OnFailure, Reply, Targets,
};

const LABELS: [&str; 3] = ["alpha", "beta", "gamma"];

/// `SplitMix64`: a small random number generator with the same output on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True in one of `n` cases.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

pub(super) fn graph(seed: u64) -> Graph {
    let mut random = Random(seed);
    let stages = 1 + random.below(5);
    let mut nodes = vec![Node::new(Kind::Start)];
    for _ in 0..stages {
        let kind = match random.below(8) {
            0 => Kind::Conditional,
            1 if random.one_in(2) => Kind::Wait,
            _ => Kind::Stage,
        };
        nodes.push(Node::new(kind));
    }
    nodes.push(Node::new(Kind::Exit(None)));
    if random.one_in(3) {
        let status = random.pick(&[None, Some(ExitStatus::Succeeded), Some(ExitStatus::Failed)]);
        nodes.push(Node::new(Kind::Exit(status)));
    }
    let count = nodes.len();
    let runs = |nodes: &[Node], it: usize| matches!(nodes[it].kind, Kind::Stage | Kind::Wait);
    let first = 1 + random.below(stages);
    nodes[0].edges.push(Edge { to: first, ..Edge::default() });
    for index in 1..=stages {
        let target = |random: &mut Random| {
            // Mostly forward, so that most runs reach an exit.
            if random.one_in(4) {
                1 + random.below(count - 1)
            } else {
                index + 1 + random.below(count - index - 1)
            }
        };
        for _ in 0..=random.below(3) {
            let to = target(&mut random);
            let mut edge = edge(&mut random, to);
            edge.restart &= runs(&nodes, to);
            // Skips duplicates: the choice between two equal edges is not defined.
            let same = |other: &Edge| other.to == to && other.condition == edge.condition;
            if !nodes[index].edges.iter().any(same) {
                nodes[index].edges.push(edge);
            }
        }
        if nodes[index].kind == Kind::Stage {
            let node = stage(&mut random, stages);
            let edges = std::mem::take(&mut nodes[index].edges);
            nodes[index] = Node { edges, ..node };
        }
    }
    for index in 0..count {
        let targets = nodes[index].targets;
        let keep = |target: Option<usize>| target.filter(|it| runs(&nodes, *it));
        nodes[index].targets =
            Targets { first: keep(targets.first), fallback: keep(targets.fallback) };
    }
    let mut graph_targets = Targets::default();
    if random.one_in(8) {
        let target = 1 + random.below(stages);
        graph_targets.first = Some(target).filter(|it| runs(&nodes, *it));
    }
    let on_failure = random.one_in(2).then(|| policy(&mut random));
    let max_node_visits = 2 + random.below(4) as u32;
    Graph { nodes, on_failure, targets: graph_targets, max_node_visits }
}

fn policy(random: &mut Random) -> OnFailure {
    use OnFailure::{Continue, Exit, Route, Stop, Succeed};
    random.pick(&[Stop, Exit, Route, Succeed, Continue])
}

fn edge(random: &mut Random, to: usize) -> Edge {
    use Condition::{Deterministic, Failed, Flag, NotFailed, Succeeded, Transient, VisitsBelow};
    let conditions = [
        Succeeded,
        Failed,
        Failed,
        NotFailed,
        Deterministic,
        Transient,
        Flag(true),
        Flag(false),
        VisitsBelow(2),
    ];
    Edge {
        to,
        condition: random.one_in(2).then(|| random.pick(&conditions)),
        label: random.one_in(3).then(|| random.pick(&LABELS)),
        weight: random.pick(&[-1, 0, 1]),
        restart: random.one_in(20),
    }
}

fn stage(random: &mut Random, stages: usize) -> Node {
    let mut node = Node::new(Kind::Stage);
    node.on_failure = random.one_in(5).then(|| policy(random));
    node.goal_gate = random.one_in(6);
    node.allow_partial = random.one_in(15);
    node.auto_status = random.one_in(15);
    node.max_visits = random.one_in(6).then(|| 1 + random.below(3) as u32);
    node.max_retries = random.one_in(8).then(|| 1 + random.below(2) as u32);
    if random.one_in(6) {
        node.targets.first = Some(1 + random.below(stages));
    }
    if random.one_in(12) {
        node.targets.fallback = Some(1 + random.below(stages));
    }
    for _ in 0..random.below(4) {
        node.replies.push(reply(random, stages));
    }
    node
}

fn reply(random: &mut Random, stages: usize) -> Reply {
    let class = random.pick(&[Class::Deterministic, Class::Deterministic, Class::Transient]);
    let suggested = (0..random.below(3)).map(|_| 1 + random.below(stages)).collect();
    Reply {
        failure: random.one_in(2).then(|| (class, random.one_in(4))),
        label: random.one_in(4).then(|| random.pick(&LABELS)),
        suggested: if random.one_in(4) { suggested } else { Vec::new() },
        flag: random.one_in(4).then(|| random.one_in(2)),
    }
}
