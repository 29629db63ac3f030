use std::collections::HashMap;

use fabro_condition::{Condition, ConditionError};
use fabro_graph::{Attr, Diagnostic, Document, EdgeIx, Sources, Span, Workflow};
use fabro_stylesheet::Stylesheet;
use serde_json::{Map, Value};

use crate::load::Read;
use crate::places::Places;

/// What every lint looks at, made once.
pub(crate) struct Checking<'a> {
    pub(crate) source: &'a str,
    pub(crate) document: &'a Document,
    pub(crate) workflow: &'a Workflow,
    pub(crate) stylesheet: &'a Stylesheet,
    pub(crate) sources: &'a dyn Sources,
    pub(crate) inputs: Option<&'a Map<String, Value>>,
    /// Each condition text once, however many edges share it.
    parsed: Vec<Result<Condition, ConditionError>>,
    /// By edge: which of `parsed` is its condition.
    of_edge: Vec<Option<usize>>,
}

impl<'a> Checking<'a> {
    pub(crate) fn new(
        source: &'a str,
        read: &'a Read,
        sources: &'a dyn Sources,
        inputs: Option<&'a Map<String, Value>>,
    ) -> Self {
        let Read { document, workflow, stylesheet } = read;
        let mut parsed = Vec::new();
        let mut by_span: HashMap<Span, usize> = HashMap::new();
        let of_edge = workflow.edges().map(|edge| {
            let attr = edge.attrs.get("condition")?;
            edge.condition()?;
            Some(*by_span.entry(attr.span).or_insert_with(|| {
                parsed.push(Condition::parse(&attr.value.as_text()));
                parsed.len() - 1
            }))
        });
        let of_edge = of_edge.collect();
        Self { source, document, workflow, stylesheet, sources, inputs, parsed, of_edge }
    }

    /// The condition of an edge; `None` for a plain edge, an error for one that does not parse.
    pub(crate) fn condition(&self, edge: EdgeIx) -> Option<&Result<Condition, ConditionError>> {
        self.of_edge[edge.index()].map(|at| &self.parsed[at])
    }

    /// An error at a place in the text of an attribute.
    pub(crate) fn error_in(
        &self,
        rule: &'static str,
        attr: &Attr,
        span: Span,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::error(rule, Places::new(self.source, attr).span(span), message)
    }
}
