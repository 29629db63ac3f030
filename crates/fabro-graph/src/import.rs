//! `import="./x.fabro"`: the body of another file in the place of a node.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use fabro_types::{Diagnostic, LineIndex, NodeKind, Span, excerpt};
use petgraph::graph::DiGraph;

use crate::attrs::{Attr, Attrs, Origin};
use crate::renamed::Renamed;
use crate::schema::{self, Place};
use crate::sources::{Sources, join_path};
use crate::value::Value;
use crate::workflow::{Adjacency, Cluster, Edge, ImportedFile, Node, NodeIx, Workflow};

/// How deep imports nest.
const MAX_DEPTH: usize = 16;

/// How many nodes, with the defaults that they have, imports may make in all.
const MAX_NODES: usize = 200_000;

const MAX_ID_CHARACTERS: usize = 128;

const RULE: &str = "import";

/// Attributes of an importing node that are defaults of the nodes that it imports.
const PASSED_ON: [&str; 10] = [
    "acp.command",
    "acp.config",
    "backend",
    "fidelity",
    "max_retries",
    "model",
    "provider",
    "reasoning_effort",
    "speed",
    "thread_id",
];

/// Attributes that name a node of their own workflow.
const TARGETS: [&str; 3] = ["retry_target", "fallback_retry_target", "human.default_choice"];

/// Puts the files that nodes import in the place of these nodes, and those that the files import. What
/// is wrong is among the [findings](Workflow::findings). The spans of what comes from a file point
/// behind the workflow's own text: see [`Workflow::place`].
pub fn expand_imports(workflow: &mut Workflow, sources: &dyn Sources) {
    if std::mem::replace(&mut workflow.imports_read, true) {
        return;
    }
    if !workflow.nodes().any(|node| node.attrs.get("import").is_some()) {
        return;
    }
    let mut importer = Importer {
        sources,
        text: workflow.source.to_string(),
        files: Vec::new(),
        bodies: HashMap::new(),
        written: Vec::new(),
        findings: Vec::new(),
        nodes: 0,
    };
    importer.expand(workflow, &mut Vec::new());
    let Importer { text, files, written, findings, .. } = importer;
    workflow.own_bytes = workflow.source.len();
    workflow.source = text.into();
    workflow.imported = files;
    workflow.written.extend(written);
    workflow.findings.extend(findings);
}

impl Workflow {
    /// Findings about imported files at the attribute that imports them, with file, line and column in
    /// the message: what the workflow's own text does not have cannot be underlined in it.
    pub fn place(&self, findings: &mut [Diagnostic]) {
        for finding in findings {
            let Some(file) = self.file_at(finding.span) else { continue };
            let text = &self.source[file.start..file.end];
            let at = LineIndex::new(text).position(finding.span.start - file.start);
            finding.message =
                format!("{}:{}:{}: {}", file.path, at.line, at.column, finding.message);
            let mut by = file.by;
            while let Some(outer) = self.file_at(by) {
                by = outer.by;
            }
            finding.span = by;
        }
    }

    fn file_at(&self, span: Span) -> Option<&ImportedFile> {
        let after = self.imported.partition_point(|file| file.start <= span.start);
        after.checked_sub(1).map(|at| &self.imported[at])
    }

    /// The workflow's own text and those of the files that it imports, in the order of [`source`](Self::source), each
    /// with its path; that of the workflow is empty.
    pub fn texts(&self) -> Vec<(&str, &str)> {
        let imported = self.imported.iter().map(|it| (&*it.path, &self.source[it.start..it.end]));
        std::iter::once(("", self.own_source())).chain(imported).collect()
    }

    /// Where a node is defined: the index of its text in [`texts`](Self::texts), and the byte offset in that text of
    /// the statement with its first attribute, or else of its first mention.
    pub fn place_of(&self, node: &Node) -> (usize, usize) {
        let file_of = |start: usize| self.imported.partition_point(|file| file.start <= start);
        let file = file_of(node.span.start);
        let own = node.attrs.own().filter(|attr| attr.origin == Origin::Own);
        // Attributes that the importing node passes on are written in another text.
        let places = own.map(|attr| attr.key_span.start).filter(|start| file_of(*start) == file);
        let first = places.min().filter(|_| node.has_statement);
        let start = first.map_or(node.span.start, |attr| self.statement_before(attr));
        let of_file = file.checked_sub(1).map_or(0, |at| self.imported[at].start);
        (file, start.saturating_sub(of_file))
    }

    /// Where the id stands before the `[` that opens the list of an attribute; the attribute where something else is
    /// between them.
    fn statement_before(&self, attr: usize) -> usize {
        let Some(head) = self.source[..attr].trim_end().strip_suffix('[') else { return attr };
        let head = head.trim_end();
        let is_before = |it: char| it.is_whitespace() || matches!(it, ';' | '{' | '}' | ']');
        match head.char_indices().rfind(|(_, it)| is_before(*it)) {
            Some((at, it)) if at + it.len_utf8() < head.len() => at + it.len_utf8(),
            Some(_) => attr,
            None => 0,
        }
    }

    /// The workflow's own text, without that of files that it imports.
    pub fn own_source(&self) -> &str {
        if self.imported.is_empty() { &self.source } else { &self.source[..self.own_bytes] }
    }
}

/// A file that can be imported.
struct Body {
    workflow: Workflow,
    /// Where the edge out of its start leads.
    entry: NodeIx,
    /// Where the edge into its exit comes from.
    last: NodeIx,
}

struct Importer<'s> {
    sources: &'s dyn Sources,
    /// Everything that was read.
    text: String,
    files: Vec<ImportedFile>,
    /// By path; `None` for a file that cannot be imported.
    bodies: HashMap<Arc<str>, Option<Rc<Body>>>,
    written: Vec<(Place, Arc<Attr>)>,
    findings: Vec<Diagnostic>,
    nodes: usize,
}

/// Where a node of the importing workflow is in the new one.
enum Now {
    Node(NodeIx),
    Part { entry: NodeIx, last: NodeIx, all: Vec<NodeIx> },
}

impl Now {
    fn entry(&self) -> NodeIx {
        match self {
            Self::Node(ix) | Self::Part { entry: ix, .. } => *ix,
        }
    }

    fn last(&self) -> NodeIx {
        match self {
            Self::Node(ix) | Self::Part { last: ix, .. } => *ix,
        }
    }
}

impl Importer<'_> {
    /// The recursion ends at `MAX_DEPTH`.
    fn expand(&mut self, workflow: &mut Workflow, stack: &mut Vec<Arc<str>>) {
        let bodies: Vec<Option<Rc<Body>>> =
            workflow.graph.node_weights().map(|node| self.body_of(node, stack)).collect();
        if bodies.iter().all(Option::is_none) {
            return;
        }
        let mut graph: DiGraph<Node, Edge> = DiGraph::new();
        let mut edges = Vec::new();
        let mut now = Vec::with_capacity(bodies.len());
        for (node, body) in workflow.graph.node_weights().zip(&bodies) {
            now.push(match body {
                Some(body) => Self::add(node, body, &mut graph, &mut edges),
                None => Now::Node(graph.add_node(node.clone())),
            });
        }
        for edge in workflow.graph.edge_weights() {
            let from = now[edge.from.index()].last();
            let to = now[edge.to.index()].entry();
            edges.push(Edge { from, to, ..edge.clone() });
        }
        for edge in edges {
            graph.add_edge(edge.from, edge.to, edge);
        }
        follow(workflow, &mut graph, &now);
        follow_exits(workflow, &bodies, &mut graph, &now);
        move_clusters(workflow, &bodies, &now);
        workflow.by_id = graph.node_indices().map(|ix| (graph[ix].id.clone(), ix)).collect();
        workflow.outgoing = Adjacency::new(&graph, |edge| edge.from);
        workflow.incoming = Adjacency::new(&graph, |edge| edge.to);
        workflow.graph = graph;
    }

    /// The file that a node imports; `None` when it imports none, or has an error.
    fn body_of(&mut self, node: &Node, stack: &mut Vec<Arc<str>>) -> Option<Rc<Body>> {
        let attr = node.attrs.get("import")?;
        let written = attr.value.as_text();
        let written = written.trim();
        let path: Arc<str> = join_path("", written.strip_prefix('@').unwrap_or(written)).into();
        if written.is_empty() || !self.check_attributes(node) {
            return None;
        }
        if stack.contains(&path) {
            let round: Vec<&str> = stack.iter().map(AsRef::as_ref).collect();
            let message = format!("imports go round: {} -> {path}", round.join(" -> "));
            self.error(attr.span, message, "take one of these imports out");
            return None;
        }
        if stack.len() >= MAX_DEPTH {
            let message = format!("imports are nested more than {MAX_DEPTH} deep");
            self.error(attr.span, message, "import the innermost files directly");
            return None;
        }
        let known = self.bodies.get(&path).cloned();
        let body = known.unwrap_or_else(|| {
            stack.push(path.clone());
            let body = self.read(&path, attr, stack).map(Rc::new);
            stack.pop();
            self.bodies.insert(path.clone(), body.clone());
            body
        })?;
        let nodes = body.workflow.graph.node_weights();
        self.nodes += nodes.map(|node| 1 + node.attrs.iter().count()).sum::<usize>();
        if self.nodes > MAX_NODES {
            let message = format!("imports make more than {MAX_NODES} nodes and attributes");
            let finding = Diagnostic::error("too-large", attr.span, message);
            self.findings.push(finding.with_fix("import fewer or smaller files"));
            return None;
        }
        let longest = body.workflow.nodes().map(|inner| inner.id.chars().count()).max();
        if node.id.chars().count() + 1 + longest.unwrap_or_default() > MAX_ID_CHARACTERS {
            let message = format!(
                "the ids of nodes imported here have more than {MAX_ID_CHARACTERS} characters"
            );
            self.error(attr.span, message, "choose a shorter id for the importing node");
            return None;
        }
        Some(body)
    }

    /// An importing node has what it passes on, and nothing else of ours.
    fn check_attributes(&mut self, node: &Node) -> bool {
        let is_ours =
            |name: &str| schema::find(Place::Node, name).is_some() || schema::is_keyed(name);
        let wrong = node.attrs.own().filter(|attr| {
            attr.origin == Origin::Own
                && is_ours(&attr.name)
                && !PASSED_ON.contains(&&*attr.name)
                && !["import", "class"].contains(&&*attr.name)
        });
        let wrong: Vec<(Span, String)> = wrong
            .map(|attr| {
                let message = format!(
                    "`{}` cannot stand on `{}`, which imports a file",
                    attr.written, node.id
                );
                (attr.key_span, message)
            })
            .collect();
        let is_right = wrong.is_empty();
        for (span, message) in wrong {
            let fix =
                format!("write it in the file; here may stand class, {}", PASSED_ON.join(", "));
            self.error(span, message, fix);
        }
        is_right
    }

    fn read(&mut self, path: &Arc<str>, attr: &Attr, stack: &mut Vec<Arc<str>>) -> Option<Body> {
        let text = match self.sources.read(path) {
            Ok(text) => text,
            Err(reason) => {
                let message = format!("`import` names the file `{}`: {reason}", excerpt(path, 100));
                let finding = Diagnostic::error("missing-file", attr.span, message);
                let fix = "create the file, or correct the path, which is relative to the file that it stands in";
                self.findings.push(finding.with_fix(fix));
                return None;
            }
        };
        let start = self.text.len() + 1;
        self.text.push('\n');
        self.text.push_str(&text);
        let file = ImportedFile { path: path.clone(), start, end: self.text.len(), by: attr.span };
        self.files.push(file);
        let stem = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
        let mut workflow = match Workflow::from_source(stem, &text) {
            Ok(workflow) => workflow,
            Err(finding) => {
                self.findings.push(moved(finding, start));
                return None;
            }
        };
        let folder = path.rfind(['/', '\\']).map_or("", |slash| &path[..=slash]);
        move_spans(&mut workflow, start, folder);
        self.written.append(&mut workflow.written);
        let findings = std::mem::take(&mut workflow.findings);
        self.findings.extend(findings.into_iter().map(|finding| moved(finding, start)));
        self.ignored(&workflow);
        let ends = self.ends(&workflow, attr.span, path);
        self.expand(&mut workflow, stack);
        let (entry, last) = ends?;
        let [entry, last] = [entry, last].map(|id| workflow.find(&id));
        // An end that imports a file is now several nodes.
        let inner = |kind| {
            workflow.nodes().zip(workflow.node_indices()).find(|(node, _)| node.kind == kind)
        };
        let after_start = || {
            let (_, start) = inner(NodeKind::Start)?;
            Some(workflow.edge(workflow.outgoing(start).next()?).to)
        };
        let before_exit = || {
            let (_, exit) = inner(NodeKind::Exit)?;
            Some(workflow.edge(workflow.incoming(exit).next()?).from)
        };
        let entry = entry.or_else(after_start)?;
        let last = last.or_else(before_exit)?;
        Some(Body { workflow, entry, last })
    }

    /// Attributes of the graph that mean nothing in an imported file.
    fn ignored(&mut self, workflow: &Workflow) {
        for attr in workflow.attrs.iter() {
            let is_ours = schema::find(Place::Graph, &attr.name).is_some();
            if is_ours && !["goal", "label", "rankdir"].contains(&&*attr.name) {
                let message = format!("`{}` has no effect in an imported file", attr.written);
                let finding = Diagnostic::warning(RULE, attr.key_span, message);
                self.findings
                    .push(finding.with_fix("write it in the graph of the importing workflow"));
            }
        }
    }

    /// The ids of the first and the last node of a file.
    fn ends(
        &mut self,
        workflow: &Workflow,
        span: Span,
        path: &str,
    ) -> Option<(Arc<str>, Arc<str>)> {
        let of_kind = |kind| -> Vec<NodeIx> {
            workflow.node_indices().filter(|ix| workflow.node(*ix).kind == kind).collect()
        };
        let plain = |edges: Vec<crate::EdgeIx>| match &edges[..] {
            [edge] if !has_attributes(workflow.edge(*edge)) => Some(*edge),
            _ => None,
        };
        let starts = of_kind(NodeKind::Start);
        let exits = of_kind(NodeKind::Exit);
        let ([start], [exit]) = (&starts[..], &exits[..]) else {
            let message = format!("`{path}` has not exactly one start and one exit");
            self.error(span, message, "give it one start node and one exit node");
            return None;
        };
        let first = plain(workflow.outgoing(*start).collect()).map(|edge| workflow.edge(edge).to);
        let last = plain(workflow.incoming(*exit).collect()).map(|edge| workflow.edge(edge).from);
        let (Some(first), Some(last)) = (first, last) else {
            let message = format!(
                "`{path}` cannot be imported: it needs one edge out of its start and one into its exit, both without attributes"
            );
            self.error(span, message, "lead its ways together in one node before the exit, and its beginnings behind one node after the start");
            return None;
        };
        if first == *exit || workflow.outgoing(*exit).len() + workflow.incoming(*start).len() > 0 {
            let message = format!(
                "`{path}` cannot be imported: no stage is between its start and its exit, or edges lead into its start or out of its exit"
            );
            self.error(span, message, "correct the file: `start -> first … last -> exit`");
            return None;
        }
        let id = |ix| workflow.node(ix).id.clone();
        Some((id(first), id(last)))
    }

    /// Adds the nodes and the inner edges of a file in the place of a node.
    fn add(
        node: &Node,
        body: &Body,
        graph: &mut DiGraph<Node, Edge>,
        edges: &mut Vec<Edge>,
    ) -> Now {
        let Body { workflow, entry, last } = body;
        let is_end =
            |ix: NodeIx| matches!(workflow.node(ix).kind, NodeKind::Start | NodeKind::Exit);
        let ids = workflow.node_indices().filter(|ix| !is_end(*ix));
        let ids = ids.map(|ix| workflow.node(ix).id.clone()).collect();
        let renamed = Arc::new(Renamed { prefix: node.id.clone(), ids });
        let mut places = HashMap::new();
        let mut all = Vec::new();
        for ix in workflow.node_indices().filter(|ix| !is_end(*ix)) {
            let ix_now =
                graph.add_node(imported(node, workflow.node(ix), &renamed, workflow, *entry));
            places.insert(ix, ix_now);
            all.push(ix_now);
        }
        for edge in workflow.edges() {
            if let (Some(from), Some(to)) = (places.get(&edge.from), places.get(&edge.to)) {
                let mut attrs = edge.attrs.clone();
                if let Some(attr) = attrs.get("condition")
                    && let Some(text) = attr.value.text()
                    && let Cow::Owned(text) = renamed.keys(text)
                {
                    let value = Value::String(text.into());
                    attrs.set(Attr { value, ..attr.clone() });
                }
                edges.push(Edge { from: *from, to: *to, attrs, span: edge.span });
            }
        }
        Now::Part { entry: places[entry], last: places[last], all }
    }

    fn error(&mut self, span: Span, message: impl Into<String>, fix: impl Into<String>) {
        self.findings.push(Diagnostic::error(RULE, span, message).with_fix(fix));
    }
}

/// Retry targets that name an importing node mean the first node of its file.
fn follow(workflow: &mut Workflow, graph: &mut DiGraph<Node, Edge>, now: &[Now]) {
    let entries: HashMap<Arc<str>, Arc<str>> = workflow
        .graph
        .node_weights()
        .zip(now)
        .filter(|(_, now)| matches!(now, Now::Part { .. }))
        .map(|(node, now)| (node.id.clone(), graph[now.entry()].id.clone()))
        .collect();
    let renamed = |name: &str| entries.get(name).cloned();
    rename_targets(&mut workflow.attrs, renamed);
    for place in now {
        if let Now::Node(ix) = place {
            rename_targets(&mut graph[*ix].attrs, renamed);
        }
    }
}

/// The default choice of a last node that names the exit of its file: where the importing node leads.
fn follow_exits(
    workflow: &Workflow,
    bodies: &[Option<Rc<Body>>],
    graph: &mut DiGraph<Node, Edge>,
    now: &[Now],
) {
    for ((ix, body), part) in workflow.node_indices().zip(bodies).zip(now) {
        let (Some(body), Now::Part { last, .. }) = (body, part) else { continue };
        let mut outgoing = workflow.outgoing(ix).map(|edge| workflow.edge(edge).to);
        let Some(to) = outgoing.next() else { continue };
        let prefix = workflow.node(ix).id.clone();
        let to = graph[now[to.index()].entry()].id.clone();
        rename_targets(&mut graph[*last].attrs, |name| {
            let name = name.strip_prefix(&*prefix)?.strip_prefix('.')?;
            let exit = body.workflow.find(name)?;
            let is_exit = body.workflow.node(exit).kind == NodeKind::Exit;
            is_exit.then(|| to.clone())
        });
    }
}

/// The edge has attributes of ours, which would be lost with it.
fn has_attributes(edge: &Edge) -> bool {
    edge.attrs.iter().any(|attr| schema::find(Place::Edge, &attr.name).is_some())
}

/// A node of a file in the place of the node that imports the file.
fn imported(
    by: &Node,
    node: &Node,
    renamed: &Arc<Renamed>,
    workflow: &Workflow,
    entry: NodeIx,
) -> Node {
    let prefix = &by.id;
    let mut attrs = node.attrs.clone();
    rename_targets(&mut attrs, |name| {
        let target = workflow.find(name)?;
        let is_start = workflow.node(target).kind == NodeKind::Start;
        let id = if is_start { &workflow.node(entry).id } else { &workflow.node(target).id };
        Some(format!("{prefix}.{id}").into())
    });
    for name in PASSED_ON {
        if attrs.get(name).is_none()
            && let Some(attr) = by.attrs.get(name)
        {
            attrs.set(Attr { origin: Origin::Default, ..attr.clone() });
        }
    }
    let mut classes = node.classes.clone();
    for class in std::iter::once(prefix.as_ref()).chain(by.classes.iter().map(String::as_str)) {
        if !classes.iter().any(|own| own == class) {
            classes.push(class.to_owned());
        }
    }
    let mut all_renamed = node.renamed.clone();
    all_renamed.push(Arc::clone(renamed));
    let id: Arc<str> = format!("{prefix}.{}", node.id).into();
    Node { id, classes, attrs, renamed: all_renamed, ..node.clone() }
}

fn rename_targets(attrs: &mut Attrs, renamed: impl Fn(&str) -> Option<Arc<str>>) {
    for name in TARGETS {
        if let Some(attr) = attrs.get(name)
            && let Some(id) = renamed(attr.value.as_text().trim())
        {
            attrs.set(Attr { value: Value::String(id), ..attr.clone() });
        }
    }
}

/// The subgraphs of the importing workflow, then a subgraph for each file with its own in it.
fn move_clusters(workflow: &mut Workflow, bodies: &[Option<Rc<Body>>], now: &[Now]) {
    let mut moved = std::mem::take(&mut workflow.clusters);
    let mut parents: HashMap<usize, usize> = HashMap::new();
    for (at, cluster) in moved.iter_mut().enumerate() {
        let mut nodes = Vec::new();
        for node in std::mem::take(&mut cluster.nodes) {
            match &now[node.index()] {
                Now::Node(ix) => nodes.push(*ix),
                Now::Part { .. } => {
                    parents.insert(node.index(), at);
                }
            }
        }
        cluster.nodes = nodes;
    }
    for (index, (body, part)) in bodies.iter().zip(now).enumerate() {
        let (Some(body), Now::Part { all, .. }) = (body, part) else { continue };
        let id = workflow.graph[NodeIx::new(index)].id.to_string();
        let outer = moved.len();
        let name = format!("cluster_{id}");
        let parent = parents.get(&index).copied();
        moved.push(Cluster { name: name.clone(), label: Some(id), parent, nodes: all.clone() });
        let is_end =
            |ix: &NodeIx| matches!(body.workflow.node(*ix).kind, NodeKind::Start | NodeKind::Exit);
        let inner: Vec<NodeIx> = body.workflow.node_indices().filter(|ix| !is_end(ix)).collect();
        let places: HashMap<NodeIx, NodeIx> = inner.into_iter().zip(all.iter().copied()).collect();
        for cluster in &body.workflow.clusters {
            let nodes = cluster.nodes.iter().filter_map(|ix| places.get(ix).copied()).collect();
            let parent = Some(cluster.parent.map_or(outer, |parent| outer + 1 + parent));
            // Subgraphs of one name are one subgraph to Graphviz.
            let own = Some(&cluster.name).filter(|own| !own.is_empty());
            let name = own.map(|own| format!("{name}.{own}")).unwrap_or_default();
            moved.push(Cluster { name, parent, nodes, label: cluster.label.clone() });
        }
    }
    workflow.clusters = moved;
}

fn moved(finding: Diagnostic, by: usize) -> Diagnostic {
    Diagnostic { span: shifted(finding.span, by), ..finding }
}

fn shifted(span: Span, by: usize) -> Span {
    Span::new(span.start + by, span.end + by)
}

/// Spans as they are in the text of everything, and paths as seen from the importing workflow.
fn move_spans(workflow: &mut Workflow, by: usize, folder: &str) {
    let mut known: HashMap<*const Attr, Arc<Attr>> = HashMap::new();
    let mut map = |attr: &Arc<Attr>| {
        let moved = known.entry(Arc::as_ptr(attr)).or_insert_with(|| {
            Arc::new(Attr {
                span: shifted(attr.span, by),
                key_span: shifted(attr.key_span, by),
                value: beside(attr, folder).unwrap_or_else(|| attr.value.clone()),
                ..Attr::clone(attr)
            })
        });
        Arc::clone(moved)
    };
    for node in workflow.graph.node_weights_mut() {
        node.span = shifted(node.span, by);
        node.attrs = node.attrs.mapped(&mut map);
    }
    for edge in workflow.graph.edge_weights_mut() {
        edge.span = shifted(edge.span, by);
        edge.attrs = edge.attrs.mapped(&mut map);
    }
    workflow.attrs = workflow.attrs.mapped(&mut map);
    for (_, attr) in &mut workflow.written {
        *attr = map(attr);
    }
}

/// The value of an attribute that names a file, as seen from the importing workflow.
fn beside(attr: &Attr, folder: &str) -> Option<Value> {
    let text = attr.value.text()?;
    let joined = |path: &str| join_path(folder, path.trim());
    if matches!(&*attr.name, "import" | "stack.child_workflow") && !text.trim().is_empty() {
        return Some(Value::String(joined(text.trim().trim_start_matches('@')).into()));
    }
    let takes_file = schema::find(Place::Node, &attr.name).is_some_and(|known| known.file);
    let path = attr.file_path().filter(|_| takes_file)?;
    Some(Value::String(format!("@{}", joined(path)).into()))
}
