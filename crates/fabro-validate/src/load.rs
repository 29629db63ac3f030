//! The one way a workflow is read, whether to be checked or to be run.

use fabro_graph::{Attr, Diagnostic, NodeKind, Origin, Sources, Value, Workflow, resolve_files};
use fabro_plan::attribute_error;
use fabro_stylesheet::{Stylesheet, Subject};

/// A workflow as far as it could be read.
pub(crate) struct Loaded {
    /// `None` after a syntax error.
    pub(crate) read: Option<Read>,
    pub(crate) findings: Vec<Diagnostic>,
}

/// A workflow that parses.
pub(crate) struct Read {
    pub(crate) workflow: Workflow,
    /// Empty when there is none, or when it does not parse.
    pub(crate) stylesheet: Stylesheet,
}

/// Parses, applies defaults, reads files, applies the stylesheet.
pub(crate) fn load(name: &str, source: &str, sources: &dyn Sources) -> Loaded {
    let (mut workflow, mut findings) = match Workflow::from_source(name, source) {
        Ok(lowered) => lowered,
        Err(finding) => return Loaded { read: None, findings: vec![finding] },
    };
    findings.extend(resolve_files(&mut workflow, sources));
    let stylesheet = match workflow.attrs().get("model_stylesheet") {
        Some(attr) => parse_stylesheet(source, attr, &mut findings),
        None => Stylesheet::default(),
    };
    apply(&stylesheet, &mut workflow);
    Loaded { read: Some(Read { workflow, stylesheet }), findings }
}

fn parse_stylesheet(source: &str, attr: &Attr, findings: &mut Vec<Diagnostic>) -> Stylesheet {
    let text = attr.value.as_text();
    Stylesheet::parse(&text).unwrap_or_else(|error| {
        findings.push(attribute_error(source, "stylesheet-syntax", attr, &error));
        Stylesheet::default()
    })
}

/// Gives the stylesheet's properties to the nodes that ask a model and do not set them themselves.
fn apply(stylesheet: &Stylesheet, workflow: &mut Workflow) {
    if stylesheet.rules().is_empty() {
        return;
    }
    for ix in workflow.node_indices() {
        let node = workflow.node(ix);
        if !(node.kind.is_llm() || node.kind == NodeKind::FanIn) {
            continue;
        }
        let shape = node.attrs.text("shape").unwrap_or(node.kind.shape());
        let subject = Subject { id: &node.id, shape, classes: &node.classes };
        for (property, value) in stylesheet.properties(&subject) {
            let value = match property {
                "max_tokens" => Value::from_word(value),
                _ => Value::from(value),
            };
            workflow.set_default(ix, property, value, Origin::Stylesheet);
        }
    }
}
