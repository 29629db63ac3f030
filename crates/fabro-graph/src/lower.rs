//! From the syntax tree to the typed graph: scopes, defaults, chains, groups, classes, kinds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fabro_types::{Diagnostic, LineIndex, Span};
use petgraph::graph::DiGraph;
use smallvec::{SmallVec, smallvec};

use crate::ast::{self, AttributeList, DefaultsOf, End, Group, Statement, StatementKind};
use crate::attrs::{Attr, Attrs, Defaults, Origin, settle};
use crate::schema::{self, Place};
use crate::value::quote;
use crate::workflow::{Adjacency, Cluster, Edge, Node, NodeIx, Workflow};
use crate::{parse, refusal, scan, typing};
use fabro_types::NodeKind;

/// How many edges groups such as `{a; b} -> {c; d}` may make in one workflow, and how many
/// classes the labels of subgraphs may give: both grow with the product of what is written.
const MAX_PRODUCT: usize = 200_000;

/// How many findings one workflow gives: more of them do not help.
const MAX_FINDINGS: usize = 1_000;

/// How many attributes all nodes may have by defaults of their scopes: it grows with the product of what is written.
const MAX_INHERITED: usize = 10_000_000;

/// Attributes of a subgraph that mean something, or that are about its drawing.
const DRAWN_IN_SUBGRAPHS: [&str; 4] = ["label", "rankdir", "shape", "weight"];

const MAX_ID_CHARACTERS: usize = 128;

impl Workflow {
    /// Parses and lowers a file. `name_if_missing` is the name of a graph without one (the file's
    /// stem). `Err` is a syntax error; [`Workflow::findings`] has the errors and warnings found
    /// afterwards. Files named by `@path` are not read: see
    /// [`resolve_files`](crate::resolve_files).
    pub fn from_source(name_if_missing: &str, source: &str) -> Result<Self, Diagnostic> {
        lower(name_if_missing, source)
    }
}

/// Each statement is lowered as soon as it is read, and then forgotten.
fn lower(name_if_missing: &str, source: &str) -> Result<Workflow, Diagnostic> {
    let scanned = scan::scan(source)?;
    let mut lowering = Lowering::with_room(source.len());
    let mut scope = Scope::default();
    let take = |statement: Statement<'_>| lowering.statement(&statement, &mut scope);
    if let Some(frame) = parse::by_statements(source, &scanned, take) {
        return Ok(lowering.finish(source, frame.name, frame.strict, name_if_missing));
    }
    let document = parse::at_once(source, &scanned)?;
    let mut lowering = Lowering::default();
    lowering.body(&document.body, Scope::default());
    Ok(lowering.finish(source, document.name, document.strict, name_if_missing))
}

/// What holds for the nodes and edges of a subgraph.
#[derive(Clone, Default)]
struct Scope {
    node: Defaults,
    edge: Defaults,
    cluster: Option<usize>,
    is_subgraph: bool,
}

#[derive(Default)]
struct Lowering {
    graph: DiGraph<Node, Edge>,
    by_id: HashMap<Arc<str>, NodeIx>,
    graph_attrs: Vec<Arc<Attr>>,
    // By node: what its own statements say, and the defaults of where it was first mentioned.
    nodes: Vec<(Vec<Arc<Attr>>, Defaults)>,
    // Every mention in file order: the nodes of a subgraph are a stretch of it.
    mentions: Vec<NodeIx>,
    subgraph_classes: Vec<(NodeIx, Arc<str>)>,
    clusters: Vec<Cluster>,
    clustered: HashSet<(usize, NodeIx)>,
    written: Vec<(Place, Arc<Attr>)>,
    product: usize,
    // How many attributes nodes have by defaults.
    inherited: usize,
    // Defaults that do not reach a node declared after them, since it was mentioned before.
    late: Vec<(NodeIx, Arc<Attr>)>,
    // The first script and prompt of nodes with several statements.
    first_texts: HashMap<(NodeIx, Cow<'static, str>), Arc<Attr>>,
    // Nodes whose later statements have a different script or prompt: first, later.
    redefined: Vec<(NodeIx, Arc<Attr>, Arc<Attr>)>,
    // The first port, and how many there are.
    ports: Option<(Span, usize)>,
    // Types of handlers of others that were reported.
    foreign_types: HashSet<Arc<str>>,
    findings: Vec<Diagnostic>,
}

impl Lowering {
    /// With room for what a file of so many bytes usually has.
    fn with_room(bytes: usize) -> Self {
        let mut lowering = Self::default();
        let count = (bytes / 48).min(4_096);
        lowering.by_id.reserve(count);
        lowering.nodes.reserve(count);
        lowering.mentions.reserve(count);
        lowering.written.reserve(count);
        lowering.graph.reserve_nodes(count);
        lowering.graph.reserve_edges(count);
        lowering
    }

    /// The recursion through groups ends at `scan::MAX_NESTING`.
    fn body(&mut self, body: &ast::Body<'_>, mut scope: Scope) {
        for statement in &body.statements {
            self.statement(statement, &mut scope);
        }
    }

    fn statement(&mut self, statement: &Statement<'_>, scope: &mut Scope) {
        match &statement.kind {
            StatementKind::Assignment(attribute) if !scope.is_subgraph => {
                let attr = self.attr(Place::Graph, attribute, Origin::Own);
                self.graph_attrs.push(attr);
            }
            StatementKind::Assignment(attribute) => self.note_subgraph_attribute(attribute),
            StatementKind::Defaults(of, list) => self.defaults(*of, list, scope),
            StatementKind::Chain(ends, list) => match &ends[..] {
                [End::Node(name, ports)] => {
                    let node = self.mention(name, ports, scope);
                    let is_first = !std::mem::replace(&mut self.graph[node].has_statement, true);
                    if is_first {
                        self.note_late_defaults(node, scope, name.span);
                    }
                    let attrs = self.attrs(Place::Node, list, Origin::Own);
                    if !is_first {
                        self.note_redefinitions(node, &attrs);
                    }
                    let (own, _) = &mut self.nodes[node.index()];
                    if own.is_empty() { *own = attrs } else { own.extend(attrs) }
                }
                [End::Group(group)] => {
                    self.group(group, scope);
                }
                ends => self.chain(ends, list, scope),
            },
        }
    }

    fn defaults(&mut self, of: DefaultsOf, list: &AttributeList<'_>, scope: &mut Scope) {
        let (place, defaults) = match of {
            DefaultsOf::Graph if scope.is_subgraph => {
                return list.items.iter().for_each(|it| self.note_subgraph_attribute(it));
            }
            DefaultsOf::Graph => {
                let attrs = self.attrs(Place::Graph, list, Origin::Own);
                return self.graph_attrs.extend(attrs);
            }
            DefaultsOf::Node => (Place::Node, &mut scope.node),
            DefaultsOf::Edge => (Place::Edge, &mut scope.edge),
        };
        for attr in settle(self.attrs(place, list, Origin::Default)) {
            defaults.insert(attr);
        }
    }

    fn chain(&mut self, ends: &[End<'_>], list: &AttributeList<'_>, scope: &Scope) {
        let attrs = Attrs::new(self.attrs(Place::Edge, list, Origin::Own), scope.edge.clone());
        let mut sources: Option<(&End<'_>, SmallVec<[NodeIx; 1]>)> = None;
        for end in ends {
            let targets = match end {
                End::Node(name, ports) => smallvec![self.mention(name, ports, scope)],
                End::Group(group) => {
                    let first = self.group(group, scope);
                    self.mentioned_since(first)
                }
            };
            if let Some((source, sources)) = sources {
                let span = source.span().to(end.span());
                let count = sources.len().saturating_mul(targets.len());
                if count == 1 || self.may_grow(count, span) {
                    for &from in &sources {
                        for &to in &targets {
                            let attrs = attrs.clone();
                            self.graph.add_edge(from, to, Edge { from, to, attrs, span });
                        }
                    }
                }
            }
            sources = Some((end, targets));
        }
    }

    /// Where in `mentions` the nodes of the subgraph begin.
    fn group(&mut self, group: &Group<'_>, scope: &Scope) -> usize {
        let label = label(group);
        let name = group.name.as_ref().map(|name| name.text.to_string());
        let class: Arc<str> = label.as_deref().map(class_of).unwrap_or_default().into();
        let mut inner = Scope { is_subgraph: true, ..scope.clone() };
        if label.is_some() || name.is_some() {
            inner.cluster = Some(self.clusters.len());
            let parent = scope.cluster;
            let nodes = Vec::new();
            self.clusters.push(Cluster { name: name.unwrap_or_default(), label, parent, nodes });
        }
        let first = self.mentions.len();
        self.body(&group.body, inner);
        if !class.is_empty() && self.may_grow(self.mentions.len() - first, group.span) {
            for node in self.mentioned_since(first) {
                self.subgraph_classes.push((node, class.clone()));
            }
        }
        first
    }

    /// The nodes mentioned from there on, each once, in the order of their mention.
    fn mentioned_since(&self, first: usize) -> SmallVec<[NodeIx; 1]> {
        let mut seen = HashSet::new();
        self.mentions[first..].iter().copied().filter(|node| seen.insert(*node)).collect()
    }

    fn mention(&mut self, name: &ast::Name<'_>, ports: &[ast::Name<'_>], scope: &Scope) -> NodeIx {
        if let Some(port) = ports.first() {
            let before = port.span.start.saturating_sub(1);
            let (_, count) = self.ports.get_or_insert((Span::new(before, port.span.end), 0));
            *count += 1;
        }
        let node = match self.by_id.get(&*name.text) {
            Some(node) => *node,
            None => self.new_node(name, scope),
        };
        self.mentions.push(node);
        if let Some(cluster) = scope.cluster
            && self.clustered.insert((cluster, node))
        {
            self.clusters[cluster].nodes.push(node);
        }
        node
    }

    fn new_node(&mut self, name: &ast::Name<'_>, scope: &Scope) -> NodeIx {
        if let Some(finding) = check_id(name) {
            self.report(finding);
        }
        let id: Arc<str> = name.text.as_ref().into();
        let node = self.graph.add_node(Node {
            id: id.clone(),
            kind: NodeKind::Agent,
            classes: Vec::new(),
            attrs: Attrs::default(),
            has_statement: false,
            span: name.span,
            renamed: Vec::new(),
        });
        self.by_id.insert(id, node);
        let inherits = self.may_inherit(scope, name.span);
        let defaults = if inherits { scope.node.clone() } else { Defaults::default() };
        self.nodes.push((Vec::new(), defaults));
        node
    }

    /// A node has the defaults of its first mention: those between it and its statement have no
    /// effect.
    fn note_late_defaults(&mut self, node: NodeIx, scope: &Scope, span: Span) {
        if !self.may_inherit(scope, span) {
            return;
        }
        let (_, inherited) = &self.nodes[node.index()];
        let room = MAX_FINDINGS.saturating_sub(self.late.len());
        let missing = scope.node.missing_in(inherited);
        let ours = missing.filter(|attr| schema::find(Place::Node, &attr.name).is_some());
        self.late.extend(ours.take(room).map(|attr| (node, attr.clone())));
    }

    /// Records a later statement with a different script or prompt: probably two nodes share an id.
    fn note_redefinitions(&mut self, node: NodeIx, attrs: &[Arc<Attr>]) {
        let texts = attrs.iter().filter(|attr| matches!(&*attr.name, "prompt" | "script"));
        for attr in texts {
            let (own, _) = &self.nodes[node.index()];
            let first = self.first_texts.entry((node, attr.name.clone())).or_insert_with(|| {
                own.iter().find(|own| own.name == attr.name).unwrap_or(attr).clone()
            });
            if first.value != attr.value && self.redefined.len() < MAX_FINDINGS {
                self.redefined.push((node, first.clone(), attr.clone()));
            }
        }
    }

    fn attrs(&mut self, place: Place, list: &AttributeList<'_>, origin: Origin) -> Vec<Arc<Attr>> {
        list.items.iter().map(|attribute| self.attr(place, attribute, origin)).collect()
    }

    /// One of our attributes that stands in a subgraph, and is no default there.
    fn note_subgraph_attribute(&mut self, attribute: &ast::Attribute<'_>) {
        let name = &*attribute.key.text;
        if DRAWN_IN_SUBGRAPHS.contains(&name) {
            return;
        }
        let place = [Place::Node, Place::Graph, Place::Edge].into_iter().find(|place| {
            let older = schema::older_name(*place, name, &attribute.value.value.as_text());
            schema::find(*place, older.map_or(name, |older| older.name)).is_some()
        });
        let (message, fix) = match place {
            Some(Place::Node) => (
                format!("`{name}` of a subgraph reaches none of its nodes"),
                format!("write node [{name}=…] in the subgraph, before its nodes"),
            ),
            Some(Place::Graph) => (
                format!("`{name}` has no effect in a subgraph"),
                "write it outside of the subgraph: it is an attribute of the graph".to_owned(),
            ),
            Some(Place::Edge) => (
                format!("`{name}` of a subgraph reaches none of its edges"),
                format!("write edge [{name}=…] in the subgraph, before its edges"),
            ),
            None => return,
        };
        let finding = Diagnostic::warning("subgraph-attribute", attribute.key.span, message);
        self.report(finding.with_fix(fix));
    }

    /// A `type` of others whose handler we do not have; once a file.
    fn note_foreign_type(&mut self, attribute: &ast::Attribute<'_>) {
        let name = attribute.value.value.as_text();
        let Some(finding) = typing::foreign_type(name.trim(), attribute.value.span) else { return };
        if self.foreign_types.insert(name.trim().into()) {
            self.report(finding);
        }
    }

    /// The attribute under its name of today, its value of the type that the schema asks for.
    fn attr(&mut self, place: Place, attribute: &ast::Attribute<'_>, origin: Origin) -> Arc<Attr> {
        let ast::Attribute { key, value: literal, .. } = attribute;
        let older = if schema::has_older_name(&key.text) {
            schema::older_name(place, &key.text, &literal.value.as_text())
        } else {
            None
        };
        let known = schema::find(place, older.map_or(&key.text, |older| older.name));
        let written = match (older, known) {
            (Some(older), _) => Cow::Borrowed(older.older),
            (None, Some(known)) => Cow::Borrowed(known.name),
            (None, None) => Cow::Owned(key.text.to_string()),
        };
        if place == Place::Node && matches!(&*key.text, "type" | "node_type") {
            self.note_foreign_type(attribute);
        }
        let value = match known {
            Some(known) => match typing::typed(known, literal) {
                Ok(value) => value,
                Err(finding) => {
                    self.report(finding);
                    literal.value.clone()
                }
            },
            None => literal.value.clone(),
        };
        let name = known.map_or_else(|| written.clone(), |known| Cow::Borrowed(known.name));
        let span = literal.span;
        let key_span = key.span;
        let attr = Arc::new(Attr { name, written, value, span, key_span, origin, file: None });
        self.written.push((place, attr.clone()));
        attr
    }

    /// Counts what a product adds; false, with an error the first time, once it is too much.
    fn may_grow(&mut self, by: usize, span: Span) -> bool {
        let before = self.product;
        self.product = before.saturating_add(by);
        if self.product <= MAX_PRODUCT {
            return true;
        }
        if before <= MAX_PRODUCT {
            let message = format!(
                "subgraphs make more than {MAX_PRODUCT} edges and classes in this workflow"
            );
            self.report(
                Diagnostic::error("too-large", span, message)
                    .with_fix("connect smaller groups, and label fewer nested subgraphs"),
            );
        }
        false
    }

    /// Counts the defaults of a node; false, with an error the first time, once they are too many.
    fn may_inherit(&mut self, scope: &Scope, span: Span) -> bool {
        let before = self.inherited;
        self.inherited = before.saturating_add(scope.node.len());
        if self.inherited <= MAX_INHERITED {
            return true;
        }
        if before <= MAX_INHERITED {
            let message = format!(
                "defaults make more than {MAX_INHERITED} attributes of nodes in this workflow"
            );
            self.report(
                Diagnostic::error("too-large", span, message)
                    .with_fix("write attributes on the nodes that need them"),
            );
        }
        false
    }

    fn report(&mut self, finding: Diagnostic) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        }
    }

    fn finish(
        mut self,
        source: &str,
        name: Option<ast::Name<'_>>,
        strict: Option<Span>,
        name_if_missing: &str,
    ) -> Workflow {
        if let Some(strict) = strict {
            self.report(refusal::strict(strict));
        }
        if let Some((first, count)) = self.ports {
            self.report(refusal::ports(first, count));
        }
        let mut graph = self.graph;
        for (node, (own, inherited)) in graph.node_weights_mut().zip(self.nodes) {
            node.attrs = Attrs::new(own, inherited);
            node.kind = kind(node);
            node.classes = classes(&node.attrs);
        }
        let mut seen: HashSet<(NodeIx, Arc<str>)> = HashSet::new();
        for (node, class) in self.subgraph_classes {
            if seen.insert((node, class.clone())) {
                let classes = &mut graph[node].classes;
                // Its own classes are few; `seen` finds duplicates among those of subgraphs.
                if !classes.iter().take(64).any(|own| **own == *class) {
                    classes.push(class.to_string());
                }
            }
        }
        let mut findings = self.findings;
        findings.extend(late_defaults(source, &graph, &self.late));
        findings.extend(redefinitions(source, &graph, &self.redefined));
        let outgoing = Adjacency::new(&graph, |edge| edge.from);
        let incoming = Adjacency::new(&graph, |edge| edge.to);
        let name_span = name.as_ref().map(|name| name.span);
        let name = name.map(|name| name.text).filter(|text| !text.is_empty());
        Workflow {
            source: source.into(),
            own_bytes: source.len(),
            imported: Vec::new(),
            imports_read: false,
            name: name.as_deref().unwrap_or(name_if_missing).to_owned(),
            name_span,
            attrs: Attrs::new(self.graph_attrs, Defaults::default()),
            graph,
            by_id: self.by_id,
            outgoing,
            incoming,
            clusters: self.clusters,
            written: self.written,
            findings,
            files_resolved: false,
            stylesheet_applied: false,
        }
    }
}

/// The type, else the node's own shape, else its id, else its own script, else the shape of its scope.
/// So a `node [shape=box]` for the whole file turns neither `start` nor a script node into an agent.
fn kind(node: &Node) -> NodeKind {
    let own = |name| node.attrs.get(name).filter(|attr: &&Attr| attr.origin == Origin::Own);
    let shape = node.attrs.get("shape");
    let of_shape = |attr: &Attr| NodeKind::from_shape(attr.value.text()?);
    let by_type = || NodeKind::from_type(node.attrs.text("type")?);
    let by_script = || {
        let is_explicit = own("shape").or(node.attrs.get("type")).is_some();
        let script = if shape.is_some() { own("script") } else { node.attrs.get("script") };
        let script = script.filter(|script| !script.value.as_text().trim().is_empty());
        (script.is_some() && !is_explicit).then_some(NodeKind::Command)
    };
    by_type()
        .or_else(|| own("shape").and_then(of_shape))
        .or_else(|| NodeKind::from_id(&node.id))
        .or_else(by_script)
        .or_else(|| shape.and_then(of_shape))
        .unwrap_or(NodeKind::Agent)
}

/// One warning for each default that some nodes would have had.
fn late_defaults(
    source: &str,
    graph: &DiGraph<Node, Edge>,
    late: &[(NodeIx, Arc<Attr>)],
) -> Vec<Diagnostic> {
    let mut by_default: BTreeMap<usize, (&Attr, Vec<&Node>)> = BTreeMap::new();
    for (ix, attr) in late {
        let node = &graph[*ix];
        let runs_nothing =
            matches!(node.kind, NodeKind::Start | NodeKind::Exit | NodeKind::Conditional);
        let has_own = node.attrs.own().any(|own| own.name == attr.name);
        let is_same = match node.attrs.get(&attr.name) {
            Some(other) => other.value == attr.value,
            None => attr.name == "shape" && attr.value.text() == Some(node.kind.shape()),
        };
        if !runs_nothing && !has_own && !is_same {
            let entry = by_default.entry(attr.key_span.start).or_insert((attr, Vec::new()));
            entry.1.push(node);
        }
    }
    if by_default.is_empty() {
        return Vec::new();
    }
    let lines = LineIndex::new(source);
    let finding = |(attr, nodes): (&Attr, Vec<&Node>)| {
        let first = nodes.first()?;
        let others = match nodes.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let line = lines.position(first.span.start).line;
        let message = format!(
            "the default `{}` does not reach `{}`{others}: first mentioned before it, in line {line}",
            attr.written, first.id
        );
        let fix = format!(
            "move the defaults before the first mention of `{}`, or write {} on the node",
            first.id, attr.written
        );
        Some(Diagnostic::warning("late-default", attr.key_span, message).with_fix(fix))
    };
    by_default.into_values().filter_map(finding).collect()
}

/// One error for each script or prompt that a later statement replaces.
fn redefinitions(
    source: &str,
    graph: &DiGraph<Node, Edge>,
    redefined: &[(NodeIx, Arc<Attr>, Arc<Attr>)],
) -> Vec<Diagnostic> {
    if redefined.is_empty() {
        return Vec::new();
    }
    let lines = LineIndex::new(source);
    let finding = |(node, first, again): &(NodeIx, Arc<Attr>, Arc<Attr>)| {
        let id = &graph[*node].id;
        let line = lines.position(first.key_span.start).line;
        let message = format!("`{id}` has another `{}` in line {line}", first.written);
        let fix =
            format!("give one of the two nodes another id, or remove one `{}`", again.written);
        Diagnostic::error("duplicate-node", again.key_span, message).with_fix(fix)
    };
    redefined.iter().map(finding).collect()
}

fn classes(attrs: &Attrs) -> Vec<String> {
    let Some(written) = attrs.text("class") else { return Vec::new() };
    let mut seen = HashSet::new();
    let words = written.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|word| !word.is_empty() && seen.insert(*word)).map(str::to_owned).collect()
}

/// The label of a subgraph; the last one wins.
fn label(group: &Group<'_>) -> Option<String> {
    let of = |attribute: &ast::Attribute<'_>| {
        (attribute.key.text == "label").then(|| attribute.value.value.as_text().into_owned())
    };
    let mut labels = group.body.statements.iter().filter_map(|statement| match &statement.kind {
        StatementKind::Assignment(attribute) => of(attribute),
        StatementKind::Defaults(DefaultsOf::Graph, list) => list.items.iter().rev().find_map(of),
        _ => None,
    });
    labels.next_back()
}

/// The class that a subgraph's label gives: `Loop A` gives `loop-a`.
fn class_of(label: &str) -> String {
    let lower = label.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

fn check_id(name: &ast::Name<'_>) -> Option<Diagnostic> {
    let characters = name.text.chars().count();
    if characters > MAX_ID_CHARACTERS {
        let message =
            format!("this node id has {characters} characters, the limit is {MAX_ID_CHARACTERS}");
        let finding = Diagnostic::error("node-id", name.span, message);
        return Some(finding.with_fix("choose a short id and put the text into its label"));
    }
    if is_plain_id(&name.text) {
        return None;
    }
    let message = format!("{} is not a node id", quote(&name.text));
    let finding = Diagnostic::error("node-id", name.span, message);
    Some(finding.with_fix(format!(
        "use letters, digits and `_`, not a digit first, such as `{}`, and put the text into its label",
        plain_id(&name.text)
    )))
}

/// `[A-Za-z_][A-Za-z0-9_]*`.
pub(crate) fn is_plain_id(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(is_word) && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

fn plain_id(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id = words.collect::<Vec<_>>().join("_");
    if is_plain_id(&id) { id } else { format!("n{id}") }
}
