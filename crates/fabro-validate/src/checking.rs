use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use fabro_condition::Condition;
use fabro_graph::schema;
use fabro_graph::{Attr, Edge, EdgeIx, Node, NodeIx, NodeKind, Span, Workflow};
use fabro_plan::{AttributeText, ListSource, NodeSpec, Specs, TextPlace};
use fabro_stylesheet::Stylesheet;
use fabro_template::Template;
use serde_json::{Map, Value};

use crate::attrs::text;
use crate::family::Family;
use crate::flow::{Flow, Mentions, SubWorkflows, can_write, element_name};
use crate::load::Read;
use crate::near::Nearby;
use crate::phantoms::phantoms;
use crate::relative::RelativeSources;

/// The input of every lint, made once.
pub(crate) struct Checking<'a> {
    pub(crate) workflow: &'a Workflow,
    pub(crate) stylesheet: &'a Stylesheet,
    pub(crate) sources: RelativeSources<'a>,
    pub(crate) inputs: Option<&'a Map<String, Value>>,
    pub(crate) family: &'a Family,
    /// Every text with a template in it, once, however many nodes share it.
    pub(crate) texts: Vec<Text<'a>>,
    /// Every attribute with its type.
    specs: &'a Specs,
    pub(crate) nearby: Nearby,
    /// The words in the texts that models get.
    pub(crate) mentions: Mentions<'a>,
    elements: OnceCell<HashSet<&'a str>>,
    flow: OnceCell<Flow>,
    phantoms: OnceCell<BTreeMap<NodeIx, Option<&'a str>>>,
    sub_workflows: SubWorkflows,
    sharing: OnceCell<Vec<Rc<Workflow>>>,
    /// The attribute in which a place was asked for last: a long text may have many findings.
    last_text: RefCell<Option<(Span, AttributeText)>>,
}

/// A goal, prompt, script or the like that has a template in it.
pub(crate) struct Text<'a> {
    pub(crate) attr: &'a Attr,
    /// The nodes that render it; none for the goal.
    pub(crate) nodes: Vec<NodeIx>,
    pub(crate) template: &'a Template,
}

impl<'a> Checking<'a> {
    pub(crate) fn new(
        read: &'a Read,
        specs: &'a Specs,
        sources: RelativeSources<'a>,
        inputs: Option<&'a Map<String, Value>>,
        family: &'a Family,
    ) -> Self {
        let Read { workflow, stylesheet } = read;
        Self {
            workflow,
            stylesheet,
            sources,
            inputs,
            family,
            texts: texts(workflow, specs),
            specs,
            nearby: Nearby::new(),
            mentions: Mentions::new(workflow),
            last_text: RefCell::default(),
            elements: OnceCell::new(),
            flow: OnceCell::new(),
            phantoms: OnceCell::new(),
            sub_workflows: SubWorkflows::default(),
            sharing: OnceCell::new(),
        }
    }

    /// True for an edge with a condition, even one that does not parse.
    pub(crate) fn is_conditional(&self, edge: EdgeIx) -> bool {
        self.workflow.edge(edge).condition().is_some()
    }

    /// The condition of an edge when it has one that parses.
    pub(crate) fn condition(&self, edge: EdgeIx) -> Option<&'a Condition> {
        self.specs.edges[edge.index()].condition.as_ref().map(|condition| &*condition.parsed)
    }

    /// Whether the node is an exit without a `status`.
    pub(crate) fn is_plain_exit(&self, node: NodeIx) -> bool {
        self.specs.nodes[node.index()].exit().is_some_and(|exit| exit.status.is_none())
    }

    /// The stop condition of a sub-workflow when it has one that parses.
    pub(crate) fn stop_condition(&self, node: NodeIx) -> Option<&'a Condition> {
        self.specs.nodes[node.index()].manager()?.stop_condition.as_deref()
    }

    /// The compiled node.
    pub(crate) fn spec(&self, node: NodeIx) -> &'a NodeSpec {
        &self.specs.nodes[node.index()]
    }

    /// The context key that a list comes from, when it has one.
    pub(crate) fn list_key(&self, node: NodeIx) -> Option<&'a str> {
        match &self.specs.nodes[node.index()].parallel()?.for_each.as_ref()?.list {
            ListSource::Key(key) => Some(key.strip_prefix("context.").unwrap_or(key)),
            ListSource::Text(_) => None,
        }
    }

    /// The context key whose value a command reads from its standard input.
    pub(crate) fn stdin_key(&self, node: NodeIx) -> Option<&'a str> {
        self.specs.nodes[node.index()].command()?.stdin.as_deref()
    }

    /// How the elements of lists are called.
    pub(crate) fn elements(&self) -> &HashSet<&'a str> {
        self.elements.get_or_init(|| {
            let lists = self.workflow.nodes().filter(|node| node.for_each().is_some());
            lists.flat_map(|node| ["item", element_name(node)]).collect()
        })
    }

    /// Where a run can go.
    pub(crate) fn flow(&self) -> &Flow {
        self.flow.get_or_init(|| Flow::new(self.workflow))
    }

    /// Nodes that are there only because an edge misspells another; with that other one.
    pub(crate) fn phantoms(&self) -> &BTreeMap<NodeIx, Option<&'a str>> {
        self.phantoms.get_or_init(|| phantoms(self.workflow, &self.nearby))
    }

    /// The workflow that a sub-workflow node runs; `None` when it does not parse.
    pub(crate) fn sub_workflow(&self, node: &Node) -> Option<Rc<Workflow>> {
        self.sub_workflows.of(node, &self.sources)
    }

    /// Whether a sub-workflow that shares the context of this workflow can write a key.
    pub(crate) fn sub_workflow_can_write(&self, key: &str) -> bool {
        let read = || self.sub_workflows.sharing(self.workflow, &self.sources);
        self.sharing.get_or_init(read).iter().any(|child| can_write(child, key, &self.nearby))
    }

    /// The edges that leave a node.
    pub(crate) fn outgoing(&self, node: NodeIx) -> impl Iterator<Item = (EdgeIx, &'a Edge)> + '_ {
        self.workflow.outgoing(node).map(|ix| (ix, self.workflow.edge(ix)))
    }

    /// The stages whose results the edges of a node see: the node itself, or those before it where
    /// it is a conditional node, which has none of its own.
    pub(crate) fn stages_before_edges(&self, node: NodeIx) -> Vec<NodeIx> {
        let mut seen = HashSet::from([node]);
        let mut queue = vec![node];
        let mut stages = Vec::new();
        while let Some(at) = queue.pop() {
            if self.workflow.node(at).kind != NodeKind::Conditional {
                stages.push(at);
                continue;
            }
            let before = self.workflow.incoming(at).map(|edge| self.workflow.edge(edge).from);
            queue.extend(before.filter(|from| seen.insert(*from)));
        }
        stages
    }

    /// All nodes with their indices.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeIx, &'a Node)> + use<'a> {
        self.workflow.node_indices().zip(self.workflow.nodes())
    }

    /// The nodes of one kind, with their indices.
    pub(crate) fn of_kind(
        &self,
        kind: NodeKind,
    ) -> impl Iterator<Item = (NodeIx, &'a Node)> + use<'a> {
        self.nodes().filter(move |(_, node)| node.kind == kind)
    }

    /// The span in the source of a span in the text of an attribute.
    pub(crate) fn place(&self, attr: &Attr, span: Span) -> Span {
        let mut last = self.last_text.borrow_mut();
        let known = last.take().filter(|(of, _)| *of == attr.span);
        let (_, text) = last.insert(
            known.unwrap_or_else(|| (attr.span, AttributeText::new(self.workflow.source(), attr))),
        );
        text.span(span)
    }

    /// The name that was probably meant by `word`. `None` after too many comparisons.
    pub(crate) fn nearest<'n>(
        &self,
        word: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        self.nearby.nearest(word, names)
    }

    /// The id of the node that was probably meant.
    pub(crate) fn nearest_node(&self, word: &str) -> Option<&'a str> {
        self.nearest(word, self.workflow.nodes().map(|node| &*node.id))
    }
}

/// What a node gives its sub-workflow.
pub(crate) fn inputs(node: &Node) -> impl Iterator<Item = &Attr> + '_ {
    let is_manager = node.kind == NodeKind::ManagerLoop;
    keyed(node).filter(move |attr| is_manager && schema::input_name(&attr.name).is_some())
}

/// The `reason` of an exit.
fn reason(node: &Node) -> Option<&Attr> {
    node.attrs.get("reason").filter(|_| node.kind == NodeKind::Exit)
}

/// The variables that a node gives its script.
fn variables(node: &Node) -> impl Iterator<Item = &Attr> + '_ {
    let is_command = node.kind == NodeKind::Command;
    keyed(node).filter(move |attr| is_command && schema::env_name(&attr.name).is_some())
}

fn keyed(node: &Node) -> impl Iterator<Item = &Attr> + '_ {
    let has_any = matches!(node.kind, NodeKind::ManagerLoop | NodeKind::Command);
    has_any.then(|| node.attrs.iter()).into_iter().flatten()
}

fn texts<'a>(workflow: &'a Workflow, specs: &'a Specs) -> Vec<Text<'a>> {
    let graph = ["goal", "model_stylesheet"].into_iter();
    let graph = graph.filter_map(|name| Some((workflow.attrs().get(name)?, None)));
    let of_nodes = workflow.node_indices().flat_map(|ix| {
        let node = workflow.node(ix);
        let prompt = node.attrs.get("prompt").filter(|_| text(&node.attrs, "prompt").is_some());
        let is_gate = node.kind == NodeKind::Human;
        let label = || node.attrs.get("label").filter(|_| node.kind.is_llm() || is_gate);
        let show = node.attrs.get("show").filter(|_| is_gate);
        let constants = ["model", "acp.command", "manager.stop_condition", "label"];
        let constants = constants.into_iter().filter_map(|name| node.attrs.get(name));
        [prompt.or_else(label), node.attrs.get("script"), show]
            .into_iter()
            .flatten()
            .chain(constants)
            .chain(node.for_each())
            .chain(reason(node))
            .chain(inputs(node))
            .chain(variables(node))
            .map(move |attr| (attr, Some(ix)))
    });
    let mut texts: Vec<Text<'_>> = Vec::new();
    let mut by_place: HashMap<TextPlace, usize> = HashMap::new();
    let of_edges = workflow.edges().flat_map(|edge| {
        let names = ["label", "condition", "human.description", "human.preview"];
        let attrs = names.into_iter().filter_map(|name| edge.attrs.get(name));
        attrs.map(|attr| (attr, Some(edge.from)))
    });
    for (attr, node) in graph.chain(of_nodes).chain(of_edges) {
        let Some(compiled) = specs.compiled.template(attr) else { continue };
        if compiled.template.reads().is_empty() {
            continue;
        }
        let at = *by_place.entry(TextPlace::of(attr)).or_insert_with(|| {
            texts.push(Text { attr, nodes: Vec::new(), template: &compiled.template });
            texts.len() - 1
        });
        texts[at].nodes.extend(node);
    }
    texts
}
