//! Where nodes, edges and clusters are.

use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::LabelPos;
use dagre::{EdgeLabel, LayoutOptions, NodeLabel, RankDir};
use fabro_graph::{EdgeIx, NodeIx, Workflow};

use crate::shape::{self, Place};
use crate::words::{plain, width, wrapped};

/// How wide a column of text is, in the units of the picture.
const COLUMN: f64 = 7.2;
/// A column of the smaller texts.
const SMALL_COLUMN: f64 = 6.2;
/// How high a line is.
pub(crate) const LINE: f64 = 16.0;

pub(crate) struct Layout {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) nodes: Vec<PlacedNode>,
    pub(crate) edges: Vec<PlacedEdge>,
    pub(crate) clusters: Vec<PlacedCluster>,
}

pub(crate) struct PlacedNode {
    pub(crate) node: NodeIx,
    pub(crate) center: Place,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// The lines of its label.
    pub(crate) label: Vec<String>,
}

pub(crate) struct PlacedEdge {
    /// The edge; `None` for a jump to a retry target.
    pub(crate) edge: Option<EdgeIx>,
    pub(crate) from: NodeIx,
    pub(crate) to: NodeIx,
    pub(crate) points: Vec<Place>,
    pub(crate) label: EdgeText,
    /// The middle of its text.
    pub(crate) label_at: Place,
}

/// The text at an edge.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgeText {
    pub(crate) label: Vec<String>,
    pub(crate) condition: Vec<String>,
}

impl EdgeText {
    fn of(workflow: &Workflow, edge: EdgeIx) -> Self {
        let edge = workflow.edge(edge);
        let label = edge.label().map(|label| wrapped(label, 26, 2)).unwrap_or_default();
        let condition = edge.condition().map(|text| wrapped(text, 30, 3)).unwrap_or_default();
        Self { label, condition }
    }

    pub(crate) fn lines(&self) -> usize {
        self.label.len() + self.condition.len()
    }

    pub(crate) fn size(&self) -> (f64, f64) {
        let columns = self.label.iter().chain(&self.condition).map(|line| width(line)).max();
        let columns = columns.unwrap_or(0);
        if columns == 0 {
            return (0.0, 0.0);
        }
        (number(columns) * SMALL_COLUMN + 10.0, number(self.lines()) * (LINE - 2.0) + 4.0)
    }
}

pub(crate) struct PlacedCluster {
    pub(crate) center: Place,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) label: String,
}

/// A number of a picture: none is so large that it would be rounded.
pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Lays a workflow out.
pub(crate) fn layout(workflow: &Workflow) -> Layout {
    let mut graph: Graph<NodeLabel, EdgeLabel> =
        Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: true });
    let nodes: Vec<(NodeIx, Vec<String>, f64, f64)> =
        workflow.node_indices().map(|ix| measured(workflow, ix)).collect();
    for (ix, _, width, height) in &nodes {
        let label = NodeLabel { width: *width, height: *height, ..NodeLabel::default() };
        graph.set_node(node_name(*ix), Some(label));
    }
    let clusters = set_clusters(workflow, &mut graph);
    let edges = set_edges(workflow, &mut graph);
    let rankdir = match workflow.attrs().text("rankdir") {
        Some("LR") => RankDir::LR,
        Some("RL") => RankDir::RL,
        Some("BT") => RankDir::BT,
        _ => RankDir::TB,
    };
    let options = LayoutOptions {
        rankdir,
        nodesep: 36.0,
        edgesep: 18.0,
        ranksep: 44.0,
        marginx: 16.0,
        marginy: 16.0,
        // Of orders with as few crossings, the one that is nearest to the file.
        tie_keep_first: true,
        ..LayoutOptions::default()
    };
    dagre::layout(&mut graph, Some(options));
    placed(&graph, nodes, edges, clusters)
}

fn measured(workflow: &Workflow, ix: NodeIx) -> (NodeIx, Vec<String>, f64, f64) {
    let node = workflow.node(ix);
    let label = wrapped(node.label(), 24, 3);
    let columns = label.iter().map(|line| width(line)).max().unwrap_or(0);
    let subtitle = width(&subtitle(workflow, ix));
    let text_width = (number(columns) * COLUMN).max(number(subtitle) * SMALL_COLUMN);
    let lines = label.len() + usize::from(subtitle > 0);
    let text_height = number(lines) * LINE - 2.0;
    let (width, height) = shape::size(node.kind, text_width, text_height);
    (ix, label, width, height)
}

/// What a node is, below its label: its kind, and its id where the label is another. Nothing where
/// the label says it.
pub(crate) fn subtitle(workflow: &Workflow, ix: NodeIx) -> String {
    let node = workflow.node(ix);
    let kind = node.kind.to_string();
    let label = plain(node.label());
    if label.eq_ignore_ascii_case(&kind) {
        return String::new();
    }
    let text = if label == *node.id { kind } else { format!("{} · {kind}", node.id) };
    crate::words::cut(&text, 34)
}

fn node_name(ix: NodeIx) -> String {
    format!("n{}", ix.index())
}

/// The clusters that have nodes, with their names in the graph.
fn set_clusters(
    workflow: &Workflow,
    graph: &mut Graph<NodeLabel, EdgeLabel>,
) -> Vec<(String, String)> {
    let clusters = workflow.clusters();
    let mut is_used = vec![false; clusters.len()];
    for (at, cluster) in clusters.iter().enumerate().rev() {
        let has_inner = clusters[at + 1..]
            .iter()
            .zip(at + 1..)
            .any(|(inner, place)| inner.parent == Some(at) && is_used[place]);
        is_used[at] = !cluster.nodes.is_empty() || has_inner;
    }
    let mut named = Vec::new();
    let mut taken = vec![false; workflow.nodes().len()];
    for (at, cluster) in clusters.iter().enumerate().filter(|(at, _)| is_used[*at]) {
        let name = format!("c{at}");
        graph.set_node(name.clone(), Some(NodeLabel::default()));
        if let Some(parent) = cluster.parent {
            graph.set_parent(&name, Some(&format!("c{parent}")));
        }
        for node in &cluster.nodes {
            // A node is drawn in the first cluster that mentions it.
            if !std::mem::replace(&mut taken[node.index()], true) {
                graph.set_parent(&node_name(*node), Some(&name));
            }
        }
        let label = cluster.label.as_deref().unwrap_or(&cluster.name);
        named.push((name, crate::words::cut(&plain(label), 60)));
    }
    named
}

/// An edge of the picture with its name in the graph.
struct NamedEdge {
    edge: Option<EdgeIx>,
    from: NodeIx,
    to: NodeIx,
    name: String,
    label: EdgeText,
}

fn set_edges(workflow: &Workflow, graph: &mut Graph<NodeLabel, EdgeLabel>) -> Vec<NamedEdge> {
    let mut edges: Vec<NamedEdge> = Vec::new();
    for (at, ix) in workflow.edge_indices().enumerate() {
        let edge = workflow.edge(ix);
        let label = EdgeText::of(workflow, ix);
        let name = format!("e{at}");
        edges.push(NamedEdge { edge: Some(ix), from: edge.from, to: edge.to, name, label });
    }
    for (at, from) in workflow.node_indices().enumerate() {
        let target = workflow.node(from).attrs.text("retry_target");
        let Some(to) = target.and_then(|target| workflow.find(target)) else { continue };
        let label = EdgeText { label: vec!["retry".to_owned()], condition: Vec::new() };
        edges.push(NamedEdge { edge: None, from, to, name: format!("r{at}"), label });
    }
    for edge in &edges {
        let (width, height) = edge.label.size();
        // What goes back decides no layers.
        let weight = if edge.edge.is_some() { 2 } else { 1 };
        let label =
            EdgeLabel { width, height, weight, labelpos: LabelPos::Center, ..EdgeLabel::default() };
        let name = Some(edge.name.as_str());
        graph.set_edge(node_name(edge.from), node_name(edge.to), Some(label), name);
    }
    edges
}

fn placed(
    graph: &Graph<NodeLabel, EdgeLabel>,
    nodes: Vec<(NodeIx, Vec<String>, f64, f64)>,
    edges: Vec<NamedEdge>,
    clusters: Vec<(String, String)>,
) -> Layout {
    let center = |label: &NodeLabel| Place { x: label.x.unwrap_or(0.0), y: label.y.unwrap_or(0.0) };
    let mut layout = Layout {
        width: 0.0,
        height: 0.0,
        nodes: Vec::new(),
        edges: Vec::new(),
        clusters: Vec::new(),
    };
    for (node, label, width, height) in nodes {
        let Some(place) = graph.node(&node_name(node)) else { continue };
        layout.nodes.push(PlacedNode { node, center: center(place), width, height, label });
    }
    for (name, label) in clusters {
        let Some(place) = graph.node(&name) else { continue };
        let center = center(place);
        let cluster = PlacedCluster { center, width: place.width, height: place.height, label };
        layout.clusters.push(cluster);
    }
    for edge in edges {
        let name = Some(edge.name.as_str());
        let Some(way) = graph.edge(&node_name(edge.from), &node_name(edge.to), name) else {
            continue;
        };
        let points = way.points.iter().map(|point| Place { x: point.x, y: point.y }).collect();
        let label_at = Place { x: way.x.unwrap_or(0.0), y: way.y.unwrap_or(0.0) };
        let NamedEdge { edge, from, to, label, .. } = edge;
        layout.edges.push(PlacedEdge { edge, from, to, points, label, label_at });
    }
    layout.fit();
    layout
}

impl Layout {
    /// Moves everything to the right of and below a margin, and measures it.
    fn fit(&mut self) {
        const MARGIN: f64 = 16.0;
        let mut least = Place { x: f64::MAX, y: f64::MAX };
        let mut most = Place::default();
        let mut include = |x: f64, y: f64| {
            least = Place { x: least.x.min(x), y: least.y.min(y) };
            most = Place { x: most.x.max(x), y: most.y.max(y) };
        };
        for node in &self.nodes {
            include(node.center.x - node.width / 2.0, node.center.y - node.height / 2.0);
            include(node.center.x + node.width / 2.0, node.center.y + node.height / 2.0);
        }
        for cluster in &self.clusters {
            include(
                cluster.center.x - cluster.width / 2.0,
                cluster.center.y - cluster.height / 2.0,
            );
            include(
                cluster.center.x + cluster.width / 2.0,
                cluster.center.y + cluster.height / 2.0,
            );
        }
        for edge in &self.edges {
            edge.points.iter().for_each(|point| include(point.x, point.y));
            let (width, height) = edge.label.size();
            include(edge.label_at.x - width / 2.0, edge.label_at.y - height / 2.0);
            include(edge.label_at.x + width / 2.0, edge.label_at.y + height / 2.0);
        }
        let by = Place { x: MARGIN - least.x.min(most.x), y: MARGIN - least.y.min(most.y) };
        let shift = |place: &mut Place| {
            place.x += by.x;
            place.y += by.y;
        };
        self.nodes.iter_mut().for_each(|node| shift(&mut node.center));
        self.clusters.iter_mut().for_each(|cluster| shift(&mut cluster.center));
        for edge in &mut self.edges {
            edge.points.iter_mut().for_each(shift);
            shift(&mut edge.label_at);
        }
        self.width = most.x + by.x + MARGIN;
        self.height = most.y + by.y + MARGIN;
    }
}
