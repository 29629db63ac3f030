//! The reference model: which edges a run takes and whether it succeeds. It implements only the rules
//! in `docs/workflow-language.md` ("Transitions", "Failures and retries", "What a green run means",
//! "Loops, visits, goal gates, restarts"), independently of the engine. It covers one line without
//! fan-outs.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{
    Class, Condition, Edge, ExitStatus, Graph, Kind, Node, OnFailure, Reply, Targets,
};

/// How often a node may jump back with the same failure (`loop_restart_signature_limit`).
const BREAKER_LIMIT: u32 = 3;
/// How many nodes a line may traverse without running a stage.
const MAX_PASSES: u32 = 1_000;

/// The stages that ran, with their results, and how the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Story {
    pub(super) stages: Vec<String>,
    pub(super) end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The exit was reached, with the nodes of unhandled failures.
    Completed { unhandled: BTreeSet<String> },
    /// The run failed, with the class of the failure.
    Failed(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Succeeded,
    Partial,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Condition,
    Label,
    Suggested,
    Plain,
}

/// The result of the last stage, which conditional nodes pass on.
#[derive(Clone, Debug)]
struct Last {
    node: usize,
    status: Status,
    failure: Option<Class>,
    label: Option<&'static str>,
    suggested: Vec<usize>,
}

/// The last failure of the line. Until another stage runs, the line may still reach an exit, which
/// makes the failure unhandled.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    node: usize,
    handled: bool,
}

struct Run<'g> {
    graph: &'g Graph,
    stages: Vec<String>,
    visits: Vec<u32>,
    replies: Vec<usize>,
    flag: Option<bool>,
    failure_class: Option<Class>,
    last: Last,
    leaving: Option<Leaving>,
    open: BTreeSet<usize>,
    /// For each node: the rank of its first visit, and its last result.
    ends: BTreeMap<usize, (usize, Status, Option<Class>)>,
    /// How often the line jumped back because of a node; `false` counts a goal gate that was never
    /// visited.
    breaker: BTreeMap<(usize, bool), u32>,
}

/// The next node, or how the run ends.
type Step = Result<usize, End>;

pub(super) fn run(graph: &Graph) -> Story {
    let count = graph.nodes.len();
    let last =
        Last { node: 0, status: Status::Succeeded, failure: None, label: None, suggested: vec![] };
    let mut run = Run {
        graph,
        stages: vec!["start succeeded".to_owned()],
        visits: vec![0; count],
        replies: vec![0; count],
        flag: None,
        failure_class: None,
        last,
        leaving: None,
        open: BTreeSet::new(),
        ends: BTreeMap::new(),
        breaker: BTreeMap::new(),
    };
    let mut at = graph.nodes[0].edges[0].to;
    let mut passes = 0;
    let end = loop {
        let step = match graph.nodes[at].kind {
            Kind::Stage | Kind::Wait => {
                passes = 0;
                run.stage(at)
            }
            Kind::Conditional => run.conditional(at),
            Kind::Exit(status) => run.exit(status),
            Kind::Start => unreachable!("no edge leads to the start"),
        };
        passes += 1;
        match step {
            _ if passes > MAX_PASSES => break End::Failed("compilation_loop"),
            Ok(next) => at = next,
            Err(end) => break end,
        }
    };
    Story { stages: run.stages, end }
}

impl<'g> Run<'g> {
    fn node(&self, node: usize) -> &'g Node {
        &self.graph.nodes[node]
    }

    /// `on_failure` of the node, else of the graph, else the language's default.
    fn policy(&self, node: usize) -> OnFailure {
        let node = self.node(node);
        // Only a goal gate itself may say that its failure is a success.
        let of_graph = self.graph.on_failure;
        let of_graph = of_graph.filter(|it| *it != OnFailure::Succeed || !node.goal_gate);
        node.on_failure.or(of_graph).unwrap_or(OnFailure::Route)
    }

    fn may_enter(&self, node: usize) -> bool {
        let limit = self.node(node).max_visits.unwrap_or(self.graph.max_node_visits);
        limit == 0 || self.visits[node] < limit
    }

    fn stage(&mut self, at: usize) -> Step {
        self.settle_failure(self.node(at).kind)?;
        if !self.may_enter(at) {
            return Err(End::Failed("compilation_loop"));
        }
        self.visits[at] += 1;
        let reply = self.attempts(at);
        self.record(at, &reply);
        if self.last.status == Status::Failed
            && self.policy(at) == OnFailure::Succeed
            && !self.has_own_edge(at)
        {
            self.last = Last { status: Status::Succeeded, failure: None, ..self.last.clone() };
            self.record_end(at);
        }
        let chosen = self.choose_by_policy(at);
        let ended = &self.last;
        let word = match ended.status {
            Status::Succeeded => "succeeded",
            Status::Partial => "partially_succeeded",
            Status::Failed => "failed",
        };
        self.stages.push(format!("{} {word}", self.graph.id(at)));
        self.leave(at, chosen)
    }

    /// Runs attempts until one succeeds or none is left.
    fn attempts(&mut self, at: usize) -> Reply {
        let node = self.node(at);
        let mut left = node.max_retries.unwrap_or(0);
        // A deterministic failure with a recovery path is not retried.
        let Targets { first, fallback } = node.targets;
        let repaired =
            first.is_some() || fallback.is_some() || self.has_edge_for_failures(at, &mut vec![]);
        loop {
            let index = self.replies[at].min(node.replies.len().saturating_sub(1));
            let reply = node.replies.get(index).cloned().unwrap_or_default();
            self.replies[at] += 1;
            match reply.failure {
                Some((Class::Deterministic, _)) if repaired => return reply,
                Some(_) if left > 0 => left -= 1,
                _ => return reply,
            }
        }
    }

    /// Whether an edge of the node, or of conditional nodes after it, is for failures.
    fn has_edge_for_failures(&self, at: usize, seen: &mut Vec<usize>) -> bool {
        if seen.contains(&at) {
            return false;
        }
        seen.push(at);
        self.node(at).edges.iter().any(|edge| {
            let follows = self.node(edge.to).kind == Kind::Conditional;
            edge.condition.is_some_and(Condition::is_for_failures)
                || (follows && self.has_edge_for_failures(edge.to, seen))
        })
    }

    fn record(&mut self, at: usize, reply: &Reply) {
        let node = self.node(at);
        let status = match reply.failure {
            None => Status::Succeeded,
            Some((_, stated)) if node.auto_status && !stated => Status::Succeeded,
            Some(_) if node.allow_partial => Status::Partial,
            Some(_) => Status::Failed,
        };
        let failure = reply.failure.map(|(class, _)| class);
        self.last = Last {
            node: at,
            status,
            failure: failure.filter(|_| status != Status::Succeeded),
            label: reply.label,
            suggested: reply.suggested.clone(),
        };
        self.flag = reply.flag.or(self.flag);
        self.record_end(at);
    }

    fn record_end(&mut self, at: usize) {
        let Last { status, failure, .. } = self.last;
        self.failure_class = failure;
        let rank = self.ends.get(&at).map_or(self.ends.len(), |(first, ..)| *first);
        self.ends.insert(at, (rank, status, failure));
        self.leaving = if status == Status::Failed {
            self.open.insert(at);
            Some(Leaving { node: at, handled: false })
        } else {
            self.open.remove(&at);
            self.breaker.retain(|(node, _), _| *node != at);
            // A wait does not handle a failure.
            self.leaving.filter(|_| self.node(at).kind == Kind::Wait)
        };
    }

    fn conditional(&mut self, at: usize) -> Step {
        self.visits[at] += 1;
        let chosen = self.choose_by_policy(at);
        self.leave(at, chosen)
    }

    /// Whether the failed stage takes an edge that is not a plain one, directly or after conditional
    /// nodes.
    fn has_own_edge(&self, at: usize) -> bool {
        let mut at = at;
        for _ in 0..self.graph.nodes.len() {
            match self.choose(at) {
                Some((edge, Tier::Plain)) if self.node(edge.to).kind == Kind::Conditional => {
                    at = edge.to;
                }
                Some((_, tier)) => return tier < Tier::Plain,
                None => return false,
            }
        }
        false
    }

    /// With `on_failure=exit` a failed stage takes plain edges only to conditional nodes.
    fn choose_by_policy(&self, at: usize) -> Option<(&'g Edge, Tier)> {
        let failed = self.last.status == Status::Failed;
        if !failed || self.policy(self.last.node) != OnFailure::Exit {
            return self.choose(at);
        }
        self.choose_among(at, &|edge| self.node(edge.to).kind == Kind::Conditional)
    }

    fn choose(&self, at: usize) -> Option<(&'g Edge, Tier)> {
        self.choose_among(at, &|_| true)
    }

    /// Selects the edge and its tier. `may_follow` filters the edges of the last tier.
    fn choose_among(
        &self,
        at: usize,
        may_follow: &dyn Fn(&Edge) -> bool,
    ) -> Option<(&'g Edge, Tier)> {
        let edges = &self.node(at).edges;
        let best = |tier: Tier, matches: &dyn Fn(&Edge) -> bool| {
            let order = |edge: &&Edge| (-edge.weight, self.graph.id(edge.to));
            edges.iter().filter(|edge| matches(edge)).min_by_key(order).map(|edge| (edge, tier))
        };
        let holds = |edge: &Edge| edge.condition.is_some_and(|it| self.holds(it, at));
        let is_plain = |edge: &Edge| edge.condition.is_none();
        let label = self.last.label;
        let is_preferred = |edge: &Edge| is_plain(edge) && label.is_some() && edge.label == label;
        let suggested = self.last.suggested.iter();
        let leads = |edge: &Edge, to: usize| is_plain(edge) && edge.to == to;
        best(Tier::Condition, &holds)
            .or_else(|| best(Tier::Label, &is_preferred))
            .or_else(|| {
                suggested.clone().find_map(|to| best(Tier::Suggested, &|edge| leads(edge, *to)))
            })
            .or_else(|| best(Tier::Plain, &|edge| is_plain(edge) && may_follow(edge)))
    }

    fn holds(&self, condition: Condition, at: usize) -> bool {
        match condition {
            Condition::Succeeded => self.last.status == Status::Succeeded,
            Condition::Failed => self.last.status == Status::Failed,
            Condition::NotFailed => self.last.status != Status::Failed,
            Condition::Deterministic => self.failure_class == Some(Class::Deterministic),
            Condition::Transient => self.failure_class == Some(Class::Transient),
            Condition::Flag(wanted) => (self.flag == Some(true)) == wanted,
            Condition::VisitsBelow(limit) => self.visits[at] < limit,
        }
    }

    fn leave(&mut self, at: usize, chosen: Option<(&'g Edge, Tier)>) -> Step {
        let Some((edge, tier)) = chosen else { return self.no_edge() };
        if edge.restart {
            let failed = self.last.status == Status::Failed;
            if failed && self.last.failure != Some(Class::Transient) {
                return Err(End::Failed("deterministic"));
            }
            self.restart();
            return Ok(edge.to);
        }
        let reads_result = |edge: &Edge| edge.condition.is_some_and(Condition::reads_result);
        let handles = tier < Tier::Plain || self.node(at).edges.iter().any(reads_result);
        if let Some(leaving) = &mut self.leaving
            && self.last.node == leaving.node
            && handles
        {
            leaving.handled = true;
        }
        Ok(edge.to)
    }

    /// Settles the leaving failure before a stage or an exit: it is handled, or it may end the run.
    fn settle_failure(&mut self, next: Kind) -> Result<(), End> {
        let Some(leaving) = self.leaving else { return Ok(()) };
        let handled = leaving.handled && next != Kind::Exit(None);
        if handled && next != Kind::Wait {
            self.open.remove(&leaving.node);
        }
        if handled || !self.stops(leaving.node) {
            return Ok(());
        }
        Err(End::Failed(match self.ends[&leaving.node].2 {
            Some(Class::Transient) => "transient_infra",
            _ => "deterministic",
        }))
    }

    /// Whether an unhandled failure of the node ends the run. Goal gates are checked at the exit.
    fn stops(&self, node: usize) -> bool {
        match self.node(node).on_failure {
            Some(policy) => policy == OnFailure::Stop,
            None => self.graph.on_failure == Some(OnFailure::Stop) && !self.node(node).goal_gate,
        }
    }

    fn no_edge(&mut self) -> Step {
        let failed = self.last.node;
        let class = self.last.failure.filter(|_| self.last.status == Status::Failed);
        let Some(class) = class else { return Err(End::Failed("structural")) };
        let to = self.jump(failed, class, true)?;
        self.leaving = None;
        self.open.remove(&failed);
        Ok(to)
    }

    /// The first retry target of a failed node that may still be visited.
    fn jump(&mut self, failed: usize, class: Class, was_visited: bool) -> Step {
        let Targets { first, fallback } = self.node(failed).targets;
        let graph = self.graph.targets;
        let targets = [first, fallback, graph.first, graph.fallback];
        let to = targets.into_iter().flatten().find(|to| self.may_enter(*to));
        let name = match class {
            Class::Deterministic => "deterministic",
            Class::Transient => "transient_infra",
        };
        let to = to.ok_or(End::Failed(name))?;
        if class == Class::Deterministic {
            let times = self.breaker.entry((failed, was_visited)).or_default();
            *times += 1;
            if *times >= BREAKER_LIMIT {
                return Err(End::Failed(name));
            }
        }
        Ok(to)
    }

    fn restart(&mut self) {
        self.open.remove(&self.last.node);
        self.leaving = None;
        self.flag = None;
        self.failure_class = None;
        self.ends.clear();
    }

    fn exit(&mut self, status: Option<ExitStatus>) -> Step {
        self.settle_failure(Kind::Exit(status))?;
        if status == Some(ExitStatus::Failed) {
            return Err(End::Failed("deterministic"));
        }
        if let Some(gate) = self.unmet_gate(status) {
            let class = self.ends.get(&gate).and_then(|end| end.2);
            // A gate that was never visited counts as failed.
            let to = self.jump(gate, class.unwrap_or(Class::Deterministic), class.is_some());
            let to = to.map_err(|_| End::Failed("deterministic"))?;
            self.open.remove(&gate);
            self.leaving = None;
            return Ok(to);
        }
        let allows = [OnFailure::Continue, OnFailure::Succeed];
        let allowed = |node: &&usize| allows.contains(&self.policy(**node));
        let unhandled = self.open.iter().filter(|node| !allowed(node));
        let unhandled = unhandled.map(|node| self.graph.id(*node)).collect();
        Err(End::Completed { unhandled })
    }

    /// The first failed goal gate in the order of first visits; otherwise one that was never visited,
    /// unless the exit has a status.
    fn unmet_gate(&self, status: Option<ExitStatus>) -> Option<usize> {
        let is_gate = |node: &usize| self.node(*node).goal_gate;
        let bad = self.ends.iter().filter(|(node, end)| is_gate(node) && end.1 == Status::Failed);
        let first = bad.min_by_key(|(_, end)| end.0).map(|(node, _)| *node);
        let never = || {
            let mut gates = (0..self.graph.nodes.len()).filter(is_gate);
            gates.find(|node| status.is_none() && self.visits[*node] == 0)
        };
        first.or_else(never)
    }
}
