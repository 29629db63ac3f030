//! A workflow made ready to run: conditions parsed once, the joins of fan-outs found.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fabro_condition::Condition;
use fabro_graph::{EdgeIx, Node, NodeIx, NodeKind, Workflow};
use fabro_types::{Fidelity, Status};

/// A workflow together with everything that is worked out once and used at every stage.
#[derive(Debug)]
pub struct Plan {
    workflow: Workflow,
    start: NodeIx,
    conditions: BTreeMap<EdgeIx, Condition>,
    joins: BTreeMap<NodeIx, NodeIx>,
    words: BTreeMap<NodeIx, BTreeSet<String>>,
    goal_gates: Vec<NodeIx>,
}

/// Why a workflow cannot run. Validation finds all of these before, with their places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is no start node, or more than one.
    #[error("the workflow needs exactly one start node")]
    Start,
    /// A condition does not parse.
    #[error("the condition on {from} -> {to} does not parse: {message}")]
    Condition {
        /// Where the edge starts.
        from: Arc<str>,
        /// Where it ends.
        to: Arc<str>,
        /// What is wrong with it.
        message: String,
    },
}

impl Plan {
    /// Prepares a workflow. Costs time in proportion to its edges, fan-outs aside.
    pub fn compile(workflow: Workflow) -> Result<Self, PlanError> {
        let start = workflow.start().ok_or(PlanError::Start)?;
        let mut conditions = BTreeMap::new();
        for ix in workflow.edge_indices() {
            let edge = workflow.edge(ix);
            let Some(text) = edge.condition() else { continue };
            let parsed = Condition::parse(text).map_err(|error| PlanError::Condition {
                from: Arc::clone(&workflow.node(edge.from).id),
                to: Arc::clone(&workflow.node(edge.to).id),
                message: error.message,
            })?;
            if !parsed.is_always() {
                conditions.insert(ix, parsed);
            }
        }
        let mut plan = Self {
            start,
            conditions,
            joins: BTreeMap::new(),
            words: BTreeMap::new(),
            goal_gates: Vec::new(),
            workflow,
        };
        plan.find_words();
        for ix in plan.workflow.node_indices() {
            let node = plan.workflow.node(ix);
            if node.kind == NodeKind::Parallel
                && let Some(join) = plan.find_join(ix)
            {
                plan.joins.insert(ix, join);
            }
            if node.attrs.bool("goal_gate") == Some(true) {
                plan.goal_gates.push(ix);
            }
        }
        Ok(plan)
    }

    /// The workflow itself.
    pub fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// The start node.
    pub fn start(&self) -> &Node {
        self.workflow.node(self.start)
    }

    /// A node by its id.
    pub fn node(&self, id: &str) -> Option<(NodeIx, &Node)> {
        let ix = self.workflow.find(id)?;
        Some((ix, self.workflow.node(ix)))
    }

    /// The parsed condition of an edge; `None` for an unconditional one.
    pub fn condition(&self, edge: EdgeIx) -> Option<&Condition> {
        self.conditions.get(&edge)
    }

    /// Where the branches of this fan-out meet.
    pub fn join(&self, parallel: NodeIx) -> Option<NodeIx> {
        self.joins.get(&parallel).copied()
    }

    /// Words that are no status, but that a condition after this node compares `outcome` with.
    pub fn takes_word(&self, node: NodeIx, word: &str) -> bool {
        self.words.get(&node).is_some_and(|words| words.contains(word))
    }

    /// Nodes that must have ended well before the run may end.
    pub(crate) fn goal_gates(&self) -> &[NodeIx] {
        &self.goal_gates
    }

    /// How often a node may be entered; `None` for any number of times.
    pub(crate) fn max_visits(&self, node: &Node, dry_run: bool) -> Option<u32> {
        let own = node.attrs.int("max_visits").filter(|visits| *visits > 0);
        let graph = self.workflow.attrs().int("max_node_visits").filter(|visits| *visits > 0);
        let limit = own.or(graph).or(dry_run.then_some(10))?;
        Some(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// Fidelity and thread of a stage that is entered by `edge`.
    pub(crate) fn fidelity(
        &self,
        edge: Option<EdgeIx>,
        node: &Node,
    ) -> (Fidelity, Option<Arc<str>>) {
        let edge = edge.map(|ix| &self.workflow.edge(ix).attrs);
        let graph = self.workflow.attrs();
        let fidelity = edge
            .and_then(|attrs| attrs.text("fidelity"))
            .or_else(|| node.attrs.text("fidelity"))
            .or_else(|| graph.text("default_fidelity"))
            .and_then(|word| word.parse().ok())
            .unwrap_or_default();
        let thread = (fidelity == Fidelity::Full && node.kind.is_llm()).then(|| {
            edge.and_then(|attrs| attrs.text("thread_id"))
                .or_else(|| node.attrs.text("thread_id"))
                .or_else(|| graph.text("default_thread"))
                .map_or_else(|| Arc::clone(&node.id), Arc::from)
        });
        (fidelity, thread)
    }

    /// Time limit of one attempt of a node.
    pub(crate) fn timeout(node: &Node) -> Option<Duration> {
        node.attrs.duration("timeout").filter(|limit| !limit.is_zero())
    }

    /// How long a model stage may be silent; `None` when the watchdog is off.
    pub(crate) fn stall_timeout(&self) -> Option<Duration> {
        let limit = self.workflow.attrs().duration("stall_timeout");
        Some(limit.unwrap_or(Duration::from_mins(30))).filter(|limit| !limit.is_zero())
    }

    fn find_words(&mut self) {
        for ix in self.workflow.node_indices() {
            let mut words = BTreeSet::new();
            let mut seen = BTreeSet::from([ix]);
            let mut queue = vec![ix];
            while let Some(node) = queue.pop() {
                for edge in self.workflow.outgoing(node) {
                    let target = self.workflow.edge(edge).to;
                    if let Some(condition) = self.conditions.get(&edge) {
                        let custom = condition.outcome_words();
                        words.extend(
                            custom.filter(|w| Status::parse(w).is_none()).map(str::to_owned),
                        );
                    }
                    let passes = self.workflow.node(target).kind == NodeKind::Conditional;
                    if passes && seen.insert(target) {
                        queue.push(target);
                    }
                }
            }
            if !words.is_empty() {
                self.words.insert(ix, words);
            }
        }
    }

    /// The first node that every branch can reach without passing the fan-out itself: the one
    /// whose farthest branch is nearest, then the sum of distances, then a fan-in, then the id.
    fn find_join(&self, parallel: NodeIx) -> Option<NodeIx> {
        let targets: BTreeSet<NodeIx> =
            self.workflow.outgoing(parallel).map(|edge| self.workflow.edge(edge).to).collect();
        let mut reach: BTreeMap<NodeIx, (usize, usize, usize)> = BTreeMap::new();
        for target in &targets {
            for (node, distance) in self.distances(*target, parallel) {
                let entry = reach.entry(node).or_default();
                *entry = (entry.0 + 1, entry.1.max(distance), entry.2 + distance);
            }
        }
        reach
            .into_iter()
            .filter(|(_, (branches, ..))| *branches == targets.len())
            .min_by_key(|(ix, (_, farthest, sum))| {
                let node = self.workflow.node(*ix);
                (*farthest, *sum, node.kind != NodeKind::FanIn, Arc::clone(&node.id))
            })
            .map(|(ix, _)| ix)
    }

    fn distances(&self, from: NodeIx, without: NodeIx) -> BTreeMap<NodeIx, usize> {
        let mut distances = BTreeMap::from([(from, 0)]);
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            let next = distances[&node] + 1;
            for edge in self.workflow.outgoing(node) {
                let target = self.workflow.edge(edge).to;
                if target != without && !distances.contains_key(&target) {
                    distances.insert(target, next);
                    queue.push_back(target);
                }
            }
        }
        distances
    }
}
