use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use fabro_types::{Diagnostic, Span, Weight};
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};

use crate::attrs::{Attr, Attrs, Origin};
use crate::renamed::Renamed;
use crate::schema::{self, Place};
use crate::value::Value;
use fabro_types::NodeKind;

/// Names a node of one workflow.
pub type NodeIx = NodeIndex<u32>;

/// Names an edge of one workflow.
pub type EdgeIx = EdgeIndex<u32>;

/// An imported file in the [source](Workflow::source) of a workflow, behind the workflow's own text.
#[derive(Clone, Debug)]
pub(crate) struct ImportedFile {
    pub(crate) path: Arc<str>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The first attribute that imports it; it may be in an imported file itself.
    pub(crate) by: Span,
}

/// A workflow: nodes, edges and attributes with their types, defaults applied.
#[derive(Clone, Debug)]
pub struct Workflow {
    pub(crate) source: Arc<str>,
    // How much of the source is the text of the workflow itself, where it imports files.
    pub(crate) own_bytes: usize,
    pub(crate) imported: Vec<ImportedFile>,
    pub(crate) imports_read: bool,
    pub(crate) name: String,
    pub(crate) name_span: Option<Span>,
    pub(crate) attrs: Attrs,
    pub(crate) graph: DiGraph<Node, Edge>,
    pub(crate) by_id: HashMap<Arc<str>, NodeIx>,
    // In file order; petgraph's own lists run backwards.
    pub(crate) outgoing: Adjacency,
    pub(crate) incoming: Adjacency,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) written: Vec<(Place, Arc<Attr>)>,
    pub(crate) findings: Vec<Diagnostic>,
    pub(crate) files_resolved: bool,
    pub(crate) stylesheet_applied: bool,
}

/// The edges at each node, on one side of it.
#[derive(Clone, Debug)]
pub(crate) struct Adjacency {
    // By node: where its edges begin in `edges`; they end where those of the next node begin.
    starts: Vec<u32>,
    edges: Vec<EdgeIx>,
}

impl Adjacency {
    /// `side` is the end of an edge that counts.
    pub(crate) fn new(graph: &DiGraph<Node, Edge>, side: impl Fn(&Edge) -> NodeIx) -> Self {
        let mut starts = vec![0; graph.node_count() + 1];
        let edges = graph.raw_edges();
        for edge in edges {
            starts[side(&edge.weight).index() + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut sorted = vec![EdgeIx::new(0); edges.len()];
        for (at, edge) in edges.iter().enumerate() {
            let place = &mut next[side(&edge.weight).index()];
            sorted[*place as usize] = EdgeIx::new(at);
            *place += 1;
        }
        Self { starts, edges: sorted }
    }

    fn of(&self, node: NodeIx) -> impl ExactSizeIterator<Item = EdgeIx> + '_ {
        let start = self.starts[node.index()];
        let end = self.starts[node.index() + 1];
        self.edges[start as usize..end as usize].iter().copied()
    }
}

/// A node of a workflow.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id, unique in the workflow.
    pub id: Arc<str>,
    /// Which handler runs it.
    pub kind: NodeKind,
    /// From its `class` and from the labels of the subgraphs it stands in; each once.
    pub classes: Vec<String>,
    /// Its attributes, defaults included.
    pub attrs: Attrs,
    /// Whether a statement is about it alone (`a` or `a [..]`); else only edges mention it.
    pub has_statement: bool,
    /// Where its id is first written.
    pub span: Span,
    /// The files that it was imported from, the innermost first.
    pub(crate) renamed: Vec<Arc<Renamed>>,
}

impl Node {
    /// Its label, or else (also when that is empty) its id.
    pub fn label(&self) -> &str {
        self.attrs.text("label").filter(|label| !label.is_empty()).unwrap_or(&self.id)
    }

    /// The list that a parallel node has a branch for each element of.
    pub fn for_each(&self) -> Option<&Attr> {
        if self.kind != NodeKind::Parallel {
            return None;
        }
        let list = self.attrs.get("for_each")?;
        list.value.text().is_some_and(|text| !text.trim().is_empty()).then_some(list)
    }
}

/// An edge of a workflow.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where it begins.
    pub from: NodeIx,
    /// Where it ends.
    pub to: NodeIx,
    /// Its attributes, defaults included.
    pub attrs: Attrs,
    /// From its source to its target as written.
    pub span: Span,
}

impl Edge {
    /// The condition without whitespace around it; `None` when there is none or it is empty.
    pub fn condition(&self) -> Option<&str> {
        self.attrs.text("condition").map(str::trim).filter(|condition| !condition.is_empty())
    }

    /// The label; `None` when there is none or it is empty.
    pub fn label(&self) -> Option<&str> {
        self.attrs.text("label").filter(|label| !label.is_empty())
    }

    /// The weight; 0 when none is written.
    pub fn weight(&self) -> Weight {
        Weight::new(self.attrs.float("weight").unwrap_or(0.0))
    }
}

/// A subgraph that has a name or a label, for drawings.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its label, when it has one.
    pub label: Option<String>,
    /// The index of the subgraph around it.
    pub parent: Option<usize>,
    /// The nodes mentioned in it, each once, those of inner subgraphs aside.
    pub nodes: Vec<NodeIx>,
}

impl Workflow {
    /// The text that it was read from, to which all spans refer; those of files that it imports follow
    /// its own.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The errors and warnings of reading it, without those of syntax, which leave no workflow: of
    /// its attributes, of its files, of its stylesheet. With an error among them it cannot run.
    pub fn findings(&self) -> &[Diagnostic] {
        &self.findings
    }

    /// The attributes that import a file which was not read: all of them before
    /// [`expand_imports`](crate::expand_imports), none after it.
    pub fn unread_imports(&self) -> impl Iterator<Item = &Attr> + '_ {
        let nodes = self.nodes().filter(|_| !self.imports_read);
        nodes.filter_map(|node| node.attrs.get("import"))
    }

    /// The attributes that name a file which was not read: every one of them before
    /// [`resolve_files`](crate::resolve_files), none after it.
    pub fn unresolved_files(&self) -> impl Iterator<Item = &Attr> + '_ {
        let written = if self.files_resolved { &[] } else { &self.written[..] };
        let file_attrs = written.iter().filter(|(place, attr)| {
            schema::find(*place, &attr.name).is_some_and(|known| known.file)
        });
        file_attrs.map(|(_, attr)| attr.as_ref()).filter(|attr| attr.is_file_reference())
    }

    /// The model stylesheet whose properties the nodes do not have yet: see
    /// [`Workflow::finish_stylesheet`].
    pub fn unapplied_stylesheet(&self) -> Option<&Attr> {
        let stylesheet = self.attrs.get("model_stylesheet").filter(|_| !self.stylesheet_applied);
        stylesheet.filter(|attr| !attr.value.as_text().trim().is_empty())
    }

    /// Notes that every node has the properties of the stylesheet, or that it has this error.
    pub fn finish_stylesheet(&mut self, error: Option<Diagnostic>) {
        self.stylesheet_applied = true;
        self.findings.extend(error);
    }

    /// The name of the graph, or else the word `digraph`: where findings about the workflow as a
    /// whole point to.
    pub fn head_span(&self) -> Span {
        self.name_span.unwrap_or_else(|| {
            let start = self.source.find("digraph").unwrap_or_default();
            Span::new(start, self.source.len().min(start + "digraph".len()))
        })
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The graph's attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// All nodes in the order of their first mention; the n-th has index n.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> + '_ {
        self.graph.raw_nodes().iter().map(|node| &node.weight)
    }

    /// The indices of all nodes, in the same order.
    pub fn node_indices(&self) -> impl ExactSizeIterator<Item = NodeIx> + use<> {
        self.graph.node_indices()
    }

    /// One node. Panics when the index is of another workflow with more nodes.
    pub fn node(&self, node: NodeIx) -> &Node {
        &self.graph[node]
    }

    /// The node with this id.
    pub fn find(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    /// All edges in file order; the n-th has index n.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = &Edge> + '_ {
        self.graph.raw_edges().iter().map(|edge| &edge.weight)
    }

    /// The indices of all edges, in the same order.
    pub fn edge_indices(&self) -> impl ExactSizeIterator<Item = EdgeIx> + use<> {
        self.graph.edge_indices()
    }

    /// One edge. Panics when the index is of another workflow with more edges.
    pub fn edge(&self, edge: EdgeIx) -> &Edge {
        &self.graph[edge]
    }

    /// The edges that begin here, in file order.
    pub fn outgoing(&self, node: NodeIx) -> impl ExactSizeIterator<Item = EdgeIx> + '_ {
        self.outgoing.of(node)
    }

    /// The edges that end here, in file order.
    pub fn incoming(&self, node: NodeIx) -> impl ExactSizeIterator<Item = EdgeIx> + '_ {
        self.incoming.of(node)
    }

    /// The edges that the result of a node is decided by, in the order of the walk: its own, and those of
    /// the conditional nodes that follow it directly.
    pub fn deciding_edges(&self, node: NodeIx) -> impl Iterator<Item = EdgeIx> + '_ {
        let mut seen = BTreeSet::from([node]);
        let mut queue = VecDeque::from([node]);
        std::iter::from_fn(move || {
            let node = queue.pop_front()?;
            let targets = self.outgoing(node).map(|edge| self.edge(edge).to);
            let follow = targets.filter(|to| self.node(*to).kind == NodeKind::Conditional);
            queue.extend(follow.filter(|to| seen.insert(*to)));
            Some(self.outgoing(node))
        })
        .flatten()
    }

    /// The first start node.
    pub fn start(&self) -> Option<NodeIx> {
        self.of_kind(NodeKind::Start).next()
    }

    /// Every exit node.
    pub fn exits(&self) -> impl Iterator<Item = NodeIx> + '_ {
        self.of_kind(NodeKind::Exit)
    }

    /// The graph itself, for algorithms of petgraph. Its edge lists run backwards.
    pub fn graph(&self) -> &DiGraph<Node, Edge> {
        &self.graph
    }

    /// The subgraphs that have a name or a label; outer ones before inner ones.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// Every attribute as it is written, once and in file order: also defaults, which many nodes
    /// share, and values that a later one replaces. Those of subgraphs are not among them.
    pub fn written_attrs(&self) -> impl ExactSizeIterator<Item = (Place, &Attr)> + '_ {
        self.written.iter().map(|(place, attr)| (*place, attr.as_ref()))
    }

    /// Sets an attribute of a node that has none of this name, neither its own nor from its
    /// scope. Its spans are the node's.
    pub fn set_default(
        &mut self,
        node: NodeIx,
        name: impl Into<std::borrow::Cow<'static, str>>,
        value: Value,
        origin: Origin,
    ) {
        let name = name.into();
        let Node { attrs, span, .. } = &mut self.graph[node];
        if attrs.get(&name).is_none() {
            let written = name.clone();
            let span = *span;
            attrs.set(Attr { name, written, value, span, key_span: span, origin, file: None });
        }
    }

    fn of_kind(&self, kind: NodeKind) -> impl Iterator<Item = NodeIx> + '_ {
        self.node_indices().filter(move |node| self.graph[*node].kind == kind)
    }
}
