//! A workflow made ready to run: conditions parsed once, the joins of fan-outs found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fabro_condition::Condition;
use fabro_graph::{EdgeIx, Join, Node, NodeIx, NodeKind, Workflow, join};
use fabro_types::Fidelity;

/// A workflow together with everything that is worked out once and used at every stage.
#[derive(Debug)]
pub struct Plan {
    workflow: Workflow,
    start: NodeIx,
    conditions: BTreeMap<EdgeIx, Condition>,
    goal_gates: Vec<NodeIx>,
    /// See [`without_delays`](Self::without_delays); `None` when time is waited for.
    overdue: Option<BTreeMap<Arc<str>, u64>>,
    max_tokens: Option<u64>,
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
    /// Prepares a workflow. Costs time in proportion to its edges.
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
        let max_tokens = workflow.attrs().int("max_tokens_total");
        let max_tokens = max_tokens.and_then(|max| u64::try_from(max).ok());
        let goal_gates = Vec::new();
        let mut plan = Self { start, conditions, goal_gates, overdue: None, max_tokens, workflow };
        for ix in plan.workflow.node_indices() {
            let node = plan.workflow.node(ix);
            if node.attrs.bool("goal_gate") == Some(true) {
                plan.goal_gates.push(ix);
            }
        }
        Ok(plan)
    }

    /// The same without a wait between the attempts of a stage: what is run again needs none. Only
    /// these attempts of fan-outs reach their time limits, the one with the lowest number first, when
    /// stages wait for what will not come. Each is named as the names of its branches begin:
    /// `outer@1/lint/deep@1#2`.
    #[must_use]
    pub fn without_delays(self, overdue: BTreeMap<Arc<str>, u64>) -> Self {
        Self { overdue: Some(overdue), ..self }
    }

    /// The same with at most so many tokens to use, which does not raise the workflow's own limit.
    #[must_use]
    pub fn with_max_tokens(self, limit: Option<u64>) -> Self {
        let max_tokens = self.max_tokens.into_iter().chain(limit).min();
        Self { max_tokens, ..self }
    }

    /// How many tokens a run may use, those of its sub-workflows included; `None` without a limit.
    pub(crate) fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    pub(crate) fn has_delays(&self) -> bool {
        self.overdue.is_none()
    }

    /// When this attempt of a fan-out is over by its time limit, as a place among the others.
    pub(crate) fn overdue(&self, fan_out: &str) -> Option<u64> {
        self.overdue.as_ref()?.get(fan_out).copied()
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

    /// Where the branches of this fan-out meet. Costs as much as the branches are long.
    pub fn join(&self, parallel: NodeIx) -> Option<NodeIx> {
        match join(&self.workflow, parallel, &mut { usize::MAX }) {
            Join::At(node) => Some(node),
            Join::Nowhere | Join::GaveUp => None,
        }
    }

    /// True when a condition after this node, or after conditional nodes that follow it, compares
    /// `outcome` with this word.
    pub fn takes_word(&self, node: NodeIx, word: &str) -> bool {
        let mut seen = BTreeSet::from([node]);
        let mut queue = vec![node];
        while let Some(node) = queue.pop() {
            for edge in self.workflow.outgoing(node) {
                let asks = |condition: &Condition| condition.outcome_words().any(|w| w == word);
                if self.conditions.get(&edge).is_some_and(asks) {
                    return true;
                }
                let target = self.workflow.edge(edge).to;
                let passes = self.workflow.node(target).kind == NodeKind::Conditional;
                if passes && seen.insert(target) {
                    queue.push(target);
                }
            }
        }
        false
    }

    /// Nodes that must have ended well before the run may end.
    pub(crate) fn goal_gates(&self) -> &[NodeIx] {
        &self.goal_gates
    }

    /// How often a node may be entered; `None` for any number of times.
    pub(crate) fn max_visits(&self, node: &Node, dry_run: bool) -> Option<u32> {
        let own = node.attrs.int("max_visits");
        let said = own.or_else(|| self.workflow.attrs().int("max_node_visits"));
        let limit = said.or(dry_run.then_some(10)).filter(|visits| *visits > 0)?;
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
}
