//! The one way a workflow is read, whether to be checked or to be run.

use fabro_graph::{
    Attr, Diagnostic, NodeKind, Origin, Sources, Value, Workflow, expand_imports, resolve_files,
};
use fabro_plan::attribute_error;
use fabro_stylesheet::{Stylesheet, Subject};

/// A workflow that parses.
pub(crate) struct Read {
    /// With its other errors among its [findings](Workflow::findings).
    pub(crate) workflow: Workflow,
    /// Empty when there is none, or when it does not parse.
    pub(crate) stylesheet: Stylesheet,
}

/// Parses, applies defaults, reads files, applies the stylesheet. `Err` is a syntax error.
pub(crate) fn load(name: &str, source: &str, sources: &dyn Sources) -> Result<Read, Diagnostic> {
    let mut workflow = Workflow::from_source(name, source)?;
    expand_imports(&mut workflow, sources);
    resolve_files(&mut workflow, sources);
    let parsed = match workflow.attrs().get("model_stylesheet") {
        Some(attr) => parse_stylesheet(source, attr),
        None => Ok(Stylesheet::default()),
    };
    let error = parsed.as_ref().err().cloned();
    let stylesheet = parsed.unwrap_or_default();
    apply(&stylesheet, &mut workflow);
    workflow.finish_stylesheet(error);
    Ok(Read { workflow, stylesheet })
}

fn parse_stylesheet(source: &str, attr: &Attr) -> Result<Stylesheet, Diagnostic> {
    Stylesheet::parse(&attr.value.as_text())
        .map_err(|error| attribute_error(source, "stylesheet-syntax", attr, &error))
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
