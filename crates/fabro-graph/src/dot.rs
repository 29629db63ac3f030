use crate::attrs::{Attr, Attrs, Origin};
use crate::value::quote_into;
use crate::workflow::{Cluster, Node, NodeIx, Workflow};
use fabro_types::NodeKind;

/// How many attributes of one element are printed: nodes share the defaults of their scope and edges
/// the attributes of their chain, so that printing all of them could take quadratic space.
const MAX_ATTRS: usize = 64;

/// Deeper levels are not indented further.
const MAX_DEPTH: usize = 16;

impl Workflow {
    /// The workflow as DOT that Graphviz reads: nodes without a shape get that of their handler,
    /// all attributes are quoted strings (the first 64 of each element), subgraphs are kept. Comments are not.
    pub fn to_dot(&self) -> String {
        print(self)
    }
}

fn print(workflow: &Workflow) -> String {
    let mut children = vec![Vec::new(); workflow.clusters.len()];
    let mut roots = Vec::new();
    for (at, cluster) in workflow.clusters.iter().enumerate() {
        match cluster.parent {
            Some(parent) => children[parent].push(at),
            None => roots.push(at),
        }
    }
    let mut in_cluster = vec![false; workflow.nodes().len()];
    for node in workflow.clusters.iter().flat_map(|cluster| &cluster.nodes) {
        in_cluster[node.index()] = true;
    }
    let mut printer = Printer {
        workflow,
        out: String::from("digraph "),
        children,
        printed: vec![false; workflow.nodes().len()],
    };
    printer.quoted(&workflow.name);
    printer.out.push_str(" {\n");
    if workflow.attrs.iter().next().is_some() {
        printer.indent(1);
        printer.out.push_str("graph");
        printer.attrs(&workflow.attrs, None);
    }
    for node in workflow.node_indices().filter(|node| !in_cluster[node.index()]) {
        printer.node(1, node);
    }
    for root in roots {
        printer.cluster(1, root);
    }
    for edge in workflow.edges() {
        printer.indent(1);
        printer.quoted(&workflow.node(edge.from).id);
        printer.out.push_str(" -> ");
        printer.quoted(&workflow.node(edge.to).id);
        printer.attrs(&edge.attrs, None);
    }
    printer.out.push_str("}\n");
    printer.out
}

struct Printer<'a> {
    workflow: &'a Workflow,
    out: String,
    children: Vec<Vec<usize>>,
    // By node: whether its attributes are printed already.
    printed: Vec<bool>,
}

impl Printer<'_> {
    fn node(&mut self, depth: usize, ix: NodeIx) {
        let node = self.workflow.node(ix);
        self.indent(depth);
        self.quoted(&node.id);
        if std::mem::replace(&mut self.printed[ix.index()], true) {
            self.out.push('\n');
        } else {
            self.attrs(&node.attrs, implied_shape(node));
        }
    }

    /// Recursion ends: subgraphs are nested at most as deep as the parser allows.
    fn cluster(&mut self, depth: usize, at: usize) {
        let Cluster { name, label, nodes, .. } = &self.workflow.clusters[at];
        self.indent(depth);
        self.out.push_str("subgraph ");
        if name.is_empty() {
            self.quoted(&format!("cluster_{at}"));
        } else {
            self.quoted(name);
        }
        self.out.push_str(" {\n");
        if let Some(label) = label {
            self.indent(depth + 1);
            self.out.push_str("label=");
            self.quoted(label);
            self.out.push('\n');
        }
        for node in nodes {
            self.node(depth + 1, *node);
        }
        for child in std::mem::take(&mut self.children[at]) {
            self.cluster(depth + 1, child);
        }
        self.indent(depth);
        self.out.push_str("}\n");
    }

    /// ` [a="1", b="2"]`, or nothing, and the end of the line.
    fn attrs(&mut self, attrs: &Attrs, shape: Option<&str>) {
        let mut separator = " [";
        let written = attrs.iter().filter(|attr| shape.is_none() || attr.name != "shape");
        for attr in written.take(MAX_ATTRS) {
            self.out.push_str(separator);
            self.attr(attr);
            separator = ", ";
        }
        if let Some(shape) = shape {
            self.out.extend([separator, "shape=", shape]);
            separator = ", ";
        }
        self.out.push_str(if separator == " [" { "\n" } else { "]\n" });
    }

    fn attr(&mut self, attr: &Attr) {
        self.quoted(&attr.name);
        self.out.push('=');
        match &attr.file {
            Some(file) => self.quoted(&format!("@{file}")),
            None => self.quoted(&attr.value.as_text()),
        }
    }

    fn quoted(&mut self, text: &str) {
        quote_into(text, &mut self.out);
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n("    ", depth.min(MAX_DEPTH)));
    }
}

/// The shape to print for a node without a shape, or whose shape comes from the defaults of its scope
/// and does not determine its kind: printed as its own, it would turn `start` into an agent.
fn implied_shape(node: &Node) -> Option<&'static str> {
    let is_overruled = |attr: &Attr| {
        attr.origin != Origin::Own
            && node.attrs.text("type").and_then(NodeKind::from_type).is_none()
            && attr.value.text().and_then(NodeKind::from_shape).is_some_and(|it| it != node.kind)
    };
    node.attrs.get("shape").is_none_or(is_overruled).then(|| node.kind.shape())
}
