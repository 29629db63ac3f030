use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use fabro_condition::{Condition, SyntaxError};
use fabro_graph::{Attr, Attrs, Diagnostic, Edge, EdgeIx, Node, NodeIx, NodeKind, Span, Workflow};
use fabro_stylesheet::Stylesheet;
use fabro_template::{Template, TemplateError};
use serde_json::{Map, Value};

use crate::family::Family;
use crate::flow::Flow;
use crate::lints::phantoms;
use crate::load::Read;
use crate::near::Nearby;
use crate::places::Places;
use crate::relative::RelativeSources;

/// What every lint looks at, made once.
pub(crate) struct Checking<'a> {
    pub(crate) source: &'a str,
    pub(crate) workflow: &'a Workflow,
    pub(crate) stylesheet: &'a Stylesheet,
    pub(crate) sources: RelativeSources<'a>,
    pub(crate) inputs: Option<&'a Map<String, Value>>,
    pub(crate) family: &'a Family,
    /// Every text with a template in it, once, however many nodes share it.
    pub(crate) texts: Vec<Text<'a>>,
    /// Each condition text once, however many edges share it.
    conditions: Vec<Result<Condition, SyntaxError>>,
    nearby: Nearby,
    flow: OnceCell<Flow>,
    phantoms: OnceCell<BTreeMap<NodeIx, Option<&'a str>>>,
    /// By edge: which of `conditions` is its own.
    of_edge: Vec<Option<usize>>,
}

/// A goal, prompt or script that has a template in it.
pub(crate) struct Text<'a> {
    pub(crate) attr: &'a Attr,
    /// The nodes that render it; none for the goal.
    pub(crate) nodes: Vec<NodeIx>,
    pub(crate) template: Result<Template, TemplateError>,
}

impl<'a> Checking<'a> {
    pub(crate) fn new(
        source: &'a str,
        read: &'a Read,
        sources: RelativeSources<'a>,
        inputs: Option<&'a Map<String, Value>>,
        family: &'a Family,
    ) -> Self {
        let Read { workflow, stylesheet } = read;
        let (conditions, of_edge) = conditions(workflow);
        Self {
            source,
            workflow,
            stylesheet,
            sources,
            inputs,
            family,
            texts: texts(workflow),
            conditions,
            of_edge,
            nearby: Nearby::new(),
            flow: OnceCell::new(),
            phantoms: OnceCell::new(),
        }
    }

    /// The condition of an edge; `None` for a plain edge, an error for one that does not parse.
    pub(crate) fn condition(&self, edge: EdgeIx) -> Option<&Result<Condition, SyntaxError>> {
        self.condition_index(edge).map(|at| &self.conditions[at])
    }

    /// Edges that share one text have the same number.
    pub(crate) fn condition_index(&self, edge: EdgeIx) -> Option<usize> {
        self.of_edge[edge.index()]
    }

    /// How many different condition texts there are.
    pub(crate) fn condition_count(&self) -> usize {
        self.conditions.len()
    }

    /// The condition of an edge when it has one that parses.
    pub(crate) fn parsed(&self, edge: EdgeIx) -> Option<&Condition> {
        self.condition(edge)?.as_ref().ok()
    }

    /// Where a run can go.
    pub(crate) fn flow(&self) -> &Flow {
        self.flow.get_or_init(|| Flow::new(self.workflow))
    }

    /// Nodes that are there only because an edge misspells another; with that other one.
    pub(crate) fn phantoms(&self) -> &BTreeMap<NodeIx, Option<&'a str>> {
        self.phantoms.get_or_init(|| phantoms(self))
    }

    /// The edges that leave a node.
    pub(crate) fn outgoing(&self, node: NodeIx) -> impl Iterator<Item = (EdgeIx, &'a Edge)> + '_ {
        self.workflow.outgoing(node).map(|ix| (ix, self.workflow.edge(ix)))
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

    /// The place in the source of a place in the text of an attribute.
    pub(crate) fn place(&self, attr: &Attr, span: Span) -> Span {
        Places::new(self.source, attr).span(span)
    }

    /// The name that was probably meant by `word`. After too many questions there is no answer.
    pub(crate) fn nearest<'n>(
        &self,
        word: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        self.nearby.nearest(word, names)
    }

    /// For questions about other workflows.
    pub(crate) fn nearby(&self) -> &Nearby {
        &self.nearby
    }

    /// The id of the node that was probably meant.
    pub(crate) fn nearest_node(&self, word: &str) -> Option<&'a str> {
        self.nearest(word, self.workflow.nodes().map(|node| &*node.id))
    }

    /// The first word or the name of the graph, for findings about the workflow as a whole.
    pub(crate) fn head(&self) -> Span {
        if let Some(span) = self.workflow.name_span() {
            return span;
        }
        let start = self.source.find("digraph").unwrap_or_default();
        Span::new(start, self.source.len().min(start + "digraph".len()))
    }
}

/// The text of an attribute that is there and not blank; a blank value means none.
pub(crate) fn text<'a>(attrs: &'a Attrs, name: &str) -> Option<&'a str> {
    attrs.text(name).filter(|text| !text.trim().is_empty())
}

/// An error of one of the languages inside attributes, at its place in the file. In a text from
/// another file the message tells the line.
pub(crate) fn syntax_error(
    source: &str,
    rule: &'static str,
    attr: &Attr,
    error: (&str, Span, Option<&str>),
) -> Diagnostic {
    let (message, span, fix) = error;
    let message = match &attr.file {
        Some(file) => {
            let text = attr.value.as_text();
            let line =
                text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count();
            format!("{file}, line {}: {message}", line + 1)
        }
        None => message.to_owned(),
    };
    let fix = fix.unwrap_or(match rule {
        "condition-syntax" => "write clauses such as outcome=success, joined by && or ||",
        "stylesheet-syntax" => "write rules such as .hard { model: …; }",
        "template-syntax" => {
            "write {{ context.KEY }}, {{ inputs.NAME }} or {{ goal }}, with filters of Jinja"
        }
        _ => "correct it there",
    });
    Diagnostic::error(rule, Places::new(source, attr).span(span), message).with_fix(fix)
}

fn conditions(workflow: &Workflow) -> (Vec<Result<Condition, SyntaxError>>, Vec<Option<usize>>) {
    let mut conditions = Vec::new();
    let mut by_span: HashMap<Span, usize> = HashMap::new();
    let of_edge = workflow.edges().map(|edge| {
        let attr = edge.attrs.get("condition")?;
        edge.condition()?;
        Some(*by_span.entry(attr.span).or_insert_with(|| {
            conditions.push(Condition::parse(&attr.value.as_text()));
            conditions.len() - 1
        }))
    });
    let of_edge = of_edge.collect();
    (conditions, of_edge)
}

fn texts(workflow: &Workflow) -> Vec<Text<'_>> {
    let goal = workflow.attrs().get("goal").map(|attr| (attr, None));
    let of_nodes = workflow.node_indices().flat_map(|ix| {
        let node = workflow.node(ix);
        let prompt = node.attrs.get("prompt").filter(|_| text(&node.attrs, "prompt").is_some());
        let label = || node.attrs.get("label").filter(|_| node.kind.is_llm());
        [prompt.or_else(label), node.attrs.get("script")]
            .into_iter()
            .flatten()
            .map(move |attr| (attr, Some(ix)))
    });
    let mut texts: Vec<Text<'_>> = Vec::new();
    let mut by_span: HashMap<Span, usize> = HashMap::new();
    for (attr, node) in goal.into_iter().chain(of_nodes) {
        let Some(text) = attr.value.text() else { continue };
        let is_jinja = |file: &str| Path::new(file).extension().is_some_and(|end| end == "j2");
        let jinja = attr.file.as_deref().is_some_and(is_jinja);
        if !jinja && !text.contains("{{") {
            continue;
        }
        let at = *by_span.entry(attr.span).or_insert_with(|| {
            let template = if jinja { Template::parse_jinja(text) } else { Template::parse(text) };
            texts.push(Text { attr, nodes: Vec::new(), template });
            texts.len() - 1
        });
        texts[at].nodes.extend(node);
    }
    texts
}
