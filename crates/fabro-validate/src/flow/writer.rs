//! Which stages write a key.

use fabro_graph::{Node, NodeIx, NodeKind, Workflow, schema};

use crate::attrs::text;

/// What it takes for a key to have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the engine writes it.
    Nothing,
    /// One of the stages that write it.
    Stage(Writer),
    /// It cannot have one.
    Impossible { why: String, fix: String },
}

/// Which stages write a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Writer {
    /// Those that ask a model, by their answer.
    Response,
    /// Those that ask a model, by the updates that it may ask for.
    Updates,
    Command,
    Human,
    FanOut,
    FanIn,
    /// A list, in its branches: one whose elements are called as those of this node; with `any`, each
    /// list. A model may write a key of that name too.
    Element {
        list: NodeIx,
        any: bool,
    },
    /// Sub-workflows that share the context of this workflow, by a stage of theirs.
    SubWorkflow,
    /// One alone.
    Node(NodeIx),
}

impl Writer {
    /// Whether this node is one. A sub-workflow that shares the context counts as any: what it writes is
    /// not looked at.
    pub(crate) fn is(self, workflow: &Workflow, at: usize) -> bool {
        self.is_itself(workflow, at)
            || !matches!(self, Self::Node(_)) && shares_context(workflow.node(NodeIx::new(at)))
    }

    /// The same without sub-workflows.
    pub(super) fn is_itself(self, workflow: &Workflow, at: usize) -> bool {
        let node = || workflow.node(NodeIx::new(at));
        match self {
            Self::SubWorkflow => false,
            Self::Node(ix) => ix.index() == at,
            Self::Response => asks_model(node()),
            // With a JSON Schema the answer is data, not directives.
            Self::Updates => may_give_directives(node()),
            Self::Command => node().kind == NodeKind::Command,
            Self::Human => node().kind == NodeKind::Human,
            Self::FanOut => node().kind == NodeKind::Parallel,
            Self::FanIn => node().kind == NodeKind::FanIn,
            Self::Element { .. } => {
                self.is_list(workflow, at) || Self::Updates.is_itself(workflow, at)
            }
        }
    }

    /// Whether this node has a list whose elements have the key.
    pub(crate) fn is_list(self, workflow: &Workflow, at: usize) -> bool {
        let Self::Element { list, any } = self else { return false };
        let node = workflow.node(NodeIx::new(at));
        let is_called_so = || element_name(node) == element_name(workflow.node(list));
        node.for_each().is_some() && (any || is_called_so())
    }

    /// What such a stage is called.
    pub(crate) fn name(self, workflow: &Workflow) -> String {
        match self {
            Self::Response => "an agent or prompt node".to_owned(),
            Self::Updates => {
                "an agent or prompt node, or a command with output_schema=\"routing\", by its context_updates,".to_owned()
            },
            Self::Command => "a command node".to_owned(),
            Self::Human => "a human gate".to_owned(),
            Self::FanOut => "a parallel node".to_owned(),
            Self::FanIn => "a fan-in".to_owned(),
            Self::SubWorkflow => "a sub-workflow without inputs.*".to_owned(),
            Self::Element { list, .. } => format!("the list of `{}`", workflow.node(list).id),
            Self::Node(ix) => format!("`{}`", workflow.node(ix).id),
        }
    }
}

/// Whether the node runs a sub-workflow that shares the context: it has no `inputs.*`.
pub(crate) fn shares_context(node: &Node) -> bool {
    let has_inputs = || node.attrs.iter().any(|attr| schema::input_name(&attr.name).is_some());
    node.kind == NodeKind::ManagerLoop && !has_inputs()
}

/// How the elements of a list are called.
pub(crate) fn element_name(node: &Node) -> &str {
    node.attrs.text("as").map_or("item", str::trim)
}

/// What to read of a node instead of a key that begins with its id.
pub(super) fn no_key_of_node(workflow: &Workflow, id: &str) -> String {
    let Some(node) = workflow.find(id).map(|ix| workflow.node(ix)) else {
        return "name a node of this workflow".to_owned();
    };
    match node.kind {
        _ if has_output(node) => format!("read `output.{id}`"),
        NodeKind::Command => {
            "read `command.output` of the last command, or its `command.exit_code`".to_owned()
        }
        NodeKind::Human => "read `human.gate.label` or `human.gate.text`".to_owned(),
        NodeKind::ManagerLoop => format!("read `child.{id}`"),
        _ if asks_model(node) => format!("read `response.{id}`"),
        _ => "read `outcome`".to_owned(),
    }
}

/// Whether the node asks a model, directly or as a fan-in with a prompt.
pub(crate) fn asks_model(node: &Node) -> bool {
    node.kind.is_llm() || (node.kind == NodeKind::FanIn && text(&node.attrs, "prompt").is_some())
}

/// The `output_schema` of a node that has one.
fn output_schema(node: &Node) -> Option<&str> {
    let has_output = asks_model(node) || node.kind == NodeKind::Command;
    text(&node.attrs, "output_schema").map(str::trim).filter(|_| has_output)
}

/// Whether the node writes `output.NODE`: a JSON Schema validates its answer or output.
pub(crate) fn has_output(node: &Node) -> bool {
    output_schema(node).is_some_and(|schema| schema != "routing")
}

/// Whether its answer or output may contain directives.
pub(crate) fn may_give_directives(node: &Node) -> bool {
    match output_schema(node) {
        None => asks_model(node),
        schema => schema == Some("routing"),
    }
}
