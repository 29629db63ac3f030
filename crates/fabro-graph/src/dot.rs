use std::fmt::Write as _;

use crate::attrs::{Attr, Attrs};
use crate::value::quote;
use crate::workflow::{Cluster, Node, NodeIx, Workflow};

pub(crate) fn print(workflow: &Workflow) -> String {
    let mut printer = Printer { workflow, out: String::new(), children: Vec::new() };
    printer.children = vec![Vec::new(); workflow.clusters.len()];
    let mut roots = Vec::new();
    for (at, cluster) in workflow.clusters.iter().enumerate() {
        match cluster.parent {
            Some(parent) => printer.children[parent].push(at),
            None => roots.push(at),
        }
    }
    let mut in_cluster = vec![false; workflow.nodes().len()];
    for node in workflow.clusters.iter().flat_map(|cluster| &cluster.nodes) {
        in_cluster[node.index()] = true;
    }
    printer.line(0, &format!("digraph {} {{", quote(&workflow.name)));
    if workflow.attrs.iter().next().is_some() {
        let attrs = attr_list(&workflow.attrs, None);
        printer.line(1, &format!("graph{attrs}"));
    }
    for node in workflow.node_indices().filter(|node| !in_cluster[node.index()]) {
        printer.node(1, node);
    }
    for root in roots {
        printer.cluster(1, root);
    }
    for edge in workflow.edges() {
        let [from, to] = [edge.from, edge.to].map(|end| quote(&workflow.node(end).id));
        printer.line(1, &format!("{from} -> {to}{}", attr_list(&edge.attrs, None)));
    }
    printer.line(0, "}");
    printer.out
}

struct Printer<'a> {
    workflow: &'a Workflow,
    out: String,
    children: Vec<Vec<usize>>,
}

impl Printer<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", depth * 4);
    }

    fn node(&mut self, depth: usize, node: NodeIx) {
        let node = self.workflow.node(node);
        let attrs = attr_list(&node.attrs, Some(node));
        self.line(depth, &format!("{}{attrs}", quote(&node.id)));
    }

    /// Recursion ends: subgraphs are nested at most as deep as the parser allows.
    fn cluster(&mut self, depth: usize, at: usize) {
        let Cluster { name, label, nodes, .. } = &self.workflow.clusters[at];
        let name = if name.is_empty() { format!("cluster_{at}") } else { name.clone() };
        self.line(depth, &format!("subgraph {} {{", quote(&name)));
        if let Some(label) = label {
            self.line(depth + 1, &format!("label={}", quote(label)));
        }
        for node in nodes {
            self.node(depth + 1, *node);
        }
        for child in std::mem::take(&mut self.children[at]) {
            self.cluster(depth + 1, child);
        }
        self.line(depth, "}");
    }
}

/// ` [a="1", b="2"]`, or nothing. A node gets the shape of its handler when it has no shape that
/// stands for it.
fn attr_list(attrs: &Attrs, node: Option<&Node>) -> String {
    let mut items: Vec<String> = attrs.iter().map(item).collect();
    if let Some(node) = node
        && attrs.get("shape").is_none()
    {
        items.push(format!("shape={}", node.kind.shape()));
    }
    if items.is_empty() { String::new() } else { format!(" [{}]", items.join(", ")) }
}

fn item(attr: &Attr) -> String {
    let text = match &attr.file {
        Some(file) => format!("@{file}").into(),
        None => attr.value.as_text(),
    };
    format!("{}={}", quote(&attr.name), quote(&text))
}
