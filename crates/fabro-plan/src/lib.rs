//! A workflow compiled for running: every attribute as a typed specification, with all its errors.
//!
//! [`Plan::compile`] lowers the attributes of a workflow once: conditions, templates and output
//! schemas are compiled, retry policies, joins and fidelities are types, defaults are applied. After
//! that no code looks an attribute up by name. All errors come out at once, with their spans, those of
//! reading the workflow included; validation reports the same ones, so that what does not run does
//! not validate either.
//!
//! ```
//! use fabro_graph::Workflow;
//! use fabro_plan::{JoinPolicy, Plan};
//!
//! let source = r#"digraph checks {
//!     start -> checks -> lint -> done -> exit
//!     checks -> test -> done
//!     checks [shape=component, join_policy=first_success]
//!     lint [shape=parallelogram, script="cargo clippy", timeout=5m, max_retries=2]
//! }"#;
//! let workflow = Workflow::from_source("checks", source).unwrap();
//! let plan = Plan::compile(workflow).unwrap();
//!
//! let lint = plan.find("lint").unwrap();
//! assert_eq!(lint.timeout.unwrap().as_secs(), 300);
//! assert_eq!(lint.retry.attempts, 3);
//! assert_eq!(&*lint.command().unwrap().script.as_ref().unwrap().text, "cargo clippy");
//! let checks = plan.find("checks").unwrap().parallel().unwrap();
//! assert_eq!(checks.join_policy, JoinPolicy::FirstSuccess);
//! ```
//!
//! # Limits
//!
//! Compiling reads no files. A workflow that names files with `@path`, or that has a
//! `model_stylesheet`, is refused until both are applied: `fabro_validate::prepare` does it, and so
//! does `fabro_validate::check` with its `into_plan`.
//!
//! Options of one run (a budget, a dry run) are not part of a plan. Names of nodes that do not
//! exist, unreachable nodes and the like are findings of `fabro-validate`.

mod attribute_text;
mod compiled;
mod constants;
mod element;
mod for_each;
mod lower;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fabro_graph::{Diagnostic, EdgeIx, Join, Node, NodeIx, Workflow, join};
use fabro_types::{Fidelity, NodeKind, OnFailure, OnUnavailable, Severity, label_matches};

pub use attribute_text::{AttributeText, attribute_error};
use compiled::{CONSTANT, SCRIPT_VALUE};
pub use compiled::{Compiled, TextPlace, is_jinja};
pub use constants::Constants;
pub use element::{branch_nodes, reads_element};
pub use fabro_events::{GateOption, QuestionType, default_option, gate_options};
pub use fabro_template::{Mode, RenderError, Vars};
pub use lower::Specs;
pub use spec::{
    AgentSpec, Backend, CommandSpec, ContextTool, EdgeCondition, EdgeSpec, ExitSpec, ForEachSpec,
    GraphSpec, HumanSpec, InputSpec, Isolation, JoinPolicy, Language, ListSource, LlmSpec,
    ManagerSpec, Merge, NodeBody, NodeSpec, OutputSpec, ParallelSpec, RetryPolicy, RetryTargets,
    Selection, ShowSpec, TextTemplate, VisitLimit,
};

/// A workflow together with everything that is worked out once and used at every stage.
#[derive(Debug)]
pub struct Plan {
    workflow: Workflow,
    graph: GraphSpec,
    nodes: Vec<NodeSpec>,
    edges: Vec<EdgeSpec>,
    reads_constants: bool,
    start: NodeIx,
    goal_gates: Vec<NodeIx>,
    /// The search takes time in proportion to the branches, so it is made when it is first needed.
    joins: BTreeMap<NodeIx, OnceLock<Option<NodeIx>>>,
}

/// Project-wide defaults for attributes of the graph and of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GraphDefaults {
    /// The failure policy.
    pub on_failure: Option<OnFailure>,
    /// The policy when no model or agent is available.
    pub on_unavailable: Option<OnUnavailable>,
    /// The spending limit in US dollars.
    pub max_cost: Option<f64>,
    /// The timeout of commands.
    pub command_timeout: Option<Duration>,
}

/// Why a workflow cannot run. Validation reports the same findings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the workflow cannot run: {}", messages(.findings))]
pub struct PlanError {
    /// All errors.
    pub findings: Vec<Diagnostic>,
}

fn messages(findings: &[Diagnostic]) -> String {
    let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    messages.join("; ")
}

impl Plan {
    /// Lowers every attribute once. Takes time in proportion to the workflow.
    ///
    /// # Errors
    /// All errors: those of reading the workflow ([`Workflow::findings`]), those of its attributes,
    /// and what was not applied to it, files and the model stylesheet.
    pub fn compile(workflow: Workflow) -> Result<Self, PlanError> {
        let specs = Specs::lower(&workflow, None);
        Self::from_specs(workflow, specs)
    }

    /// The plan of a run with these constants. Older versions took values in scripts where they would
    /// be evaluated, and such a stage fails when it runs, unless the value is a number; they also took
    /// templates in conditions and models that read the context, which stay as they are written.
    ///
    /// # Errors
    /// As [`Plan::compile`], and a condition that reads an input which is not given.
    pub fn compile_recorded(
        workflow: Workflow,
        constants: Option<&Constants>,
    ) -> Result<Self, PlanError> {
        let mut specs = Specs::lower(&workflow, constants);
        let is_new = |finding: &Diagnostic| [SCRIPT_VALUE, CONSTANT].contains(&finding.rule);
        specs.findings.retain(|finding| !is_new(finding));
        Self::from_specs(workflow, specs)
    }

    /// The plan of a workflow that was [lowered](Specs::lower) before.
    pub fn from_specs(workflow: Workflow, specs: Specs) -> Result<Self, PlanError> {
        let Specs { graph, nodes, edges, reads_constants, mut findings, .. } = specs;
        findings.retain(|finding| finding.severity == Severity::Error);
        let Some(start) = workflow.start().filter(|_| findings.is_empty()) else {
            return Err(PlanError { findings });
        };
        let mut goal_gates = Vec::new();
        let mut joins = BTreeMap::new();
        for (ix, node) in workflow.node_indices().zip(&nodes) {
            if node.goal_gate {
                goal_gates.push(ix);
            }
            if node.kind == NodeKind::Parallel {
                joins.insert(ix, OnceLock::new());
            }
        }
        Ok(Self { workflow, graph, nodes, edges, reads_constants, start, goal_gates, joins })
    }

    /// Whether an attribute reads a [constant](Constants): the plan of a run needs them.
    pub fn reads_constants(&self) -> bool {
        self.reads_constants
    }

    /// The workflow as written.
    pub fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// The plan with these defaults for attributes that the workflow does not set.
    #[must_use]
    pub fn with_defaults(mut self, defaults: GraphDefaults) -> Self {
        let graph = &mut self.graph;
        graph.on_failure = graph.on_failure.or(defaults.on_failure);
        graph.on_unavailable = graph.on_unavailable.or(defaults.on_unavailable);
        graph.max_cost = graph.max_cost.or(defaults.max_cost);
        for (node, spec) in self.workflow.nodes().zip(&mut self.nodes) {
            // `timeout=0` turns the default off.
            if spec.kind == NodeKind::Command && node.attrs.get("timeout").is_none() {
                spec.timeout = defaults.command_timeout;
            }
        }
        self
    }

    /// What the graph's own attributes say.
    pub fn graph(&self) -> &GraphSpec {
        &self.graph
    }

    /// The specification of a node.
    pub fn spec(&self, node: NodeIx) -> &NodeSpec {
        &self.nodes[node.index()]
    }

    /// The specification of the node with this id.
    pub fn find(&self, id: &str) -> Option<&NodeSpec> {
        self.workflow.find(id).map(|ix| self.spec(ix))
    }

    /// The specification of an edge.
    pub fn edge(&self, edge: EdgeIx) -> &EdgeSpec {
        &self.edges[edge.index()]
    }

    /// The edges that leave a node, in file order.
    pub fn outgoing(&self, node: NodeIx) -> impl ExactSizeIterator<Item = &EdgeSpec> {
        self.workflow.outgoing(node).map(|edge| self.edge(edge))
    }

    /// The edges that the result of a node is decided by: its own, and those of the conditional nodes
    /// that follow it directly.
    pub fn deciding_edges(&self, node: NodeIx) -> impl Iterator<Item = &EdgeSpec> {
        self.workflow.deciding_edges(node).map(|edge| self.edge(edge))
    }

    /// The edges of a human gate that a person chooses among, in file order, the one for free text
    /// included. Edges that have nothing but a condition are for the result of the gate, such as a
    /// timeout, unless there is nothing else to choose.
    pub fn gate_options(&self, gate: NodeIx) -> Vec<EdgeIx> {
        let is_named = |edge: &EdgeIx| {
            let edge = self.edge(*edge);
            let is_labelled = edge.label.as_ref().is_some_and(|label| !label.trim().is_empty());
            edge.freeform || edge.condition.is_none() || is_labelled
        };
        let named: Vec<_> = self.workflow.outgoing(gate).filter(is_named).collect();
        if named.is_empty() { self.workflow.outgoing(gate).collect() } else { named }
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

    /// The nodes that must have ended well, if they were visited, before the run may end.
    pub fn goal_gates(&self) -> &[NodeIx] {
        &self.goal_gates
    }

    /// Where the branches of a fan-out join; `None` when they never meet, and for other nodes.
    pub fn join(&self, parallel: NodeIx) -> Option<NodeIx> {
        let search = || match join(&self.workflow, parallel, &mut { usize::MAX }) {
            Join::At(node) => Some(node),
            Join::Nowhere | Join::GaveUp => None,
        };
        *self.joins.get(&parallel)?.get_or_init(search)
    }

    /// True when a condition after this node, or after conditional nodes that follow it, compares
    /// `outcome` with this word.
    pub fn takes_word(&self, node: NodeIx, word: &str) -> bool {
        self.deciding_edges(node).any(|edge| {
            let mut words = edge.condition.iter().flat_map(|it| it.parsed.outcome_words());
            words.any(|known| known == word)
        })
    }

    /// Whether this label chooses none of the labelled edges after this node, or after conditional nodes that follow it;
    /// false where no edge has a label.
    pub fn misses_labels(&self, node: NodeIx, preferred: &str) -> bool {
        let labels = self.deciding_edges(node).filter_map(|edge| edge.label.as_deref());
        let mut labels = labels.filter(|label| !label.trim().is_empty()).peekable();
        labels.peek().is_some() && !labels.any(|label| label_matches(label, preferred))
    }

    /// Fidelity and thread of a stage that is entered by `edge`: the edge's, else the node's, else
    /// the graph's.
    pub fn fidelity(&self, edge: Option<EdgeIx>, node: &NodeSpec) -> (Fidelity, Option<Arc<str>>) {
        let edge = edge.map(|ix| self.edge(ix));
        let of_edge = edge.and_then(|edge| edge.fidelity);
        let fidelity = of_edge.or(node.fidelity).unwrap_or(self.graph.default_fidelity);
        if fidelity != Fidelity::Full || !node.kind.is_llm() {
            return (fidelity, None);
        }
        let thread = edge
            .and_then(|edge| edge.thread_id.as_ref())
            .or(node.thread_id.as_ref())
            .or(self.graph.default_thread.as_ref())
            .unwrap_or(&node.id);
        (fidelity, Some(Arc::clone(thread)))
    }
}
