//! The one way a workflow is read, whether to be checked or to be run.

use fabro_graph::{
    Attr, Diagnostic, NodeKind, Origin, Sources, Value, Workflow, expand_imports, resolve_files,
};
use fabro_plan::{Constants, attribute_error, is_jinja};
use fabro_stylesheet::{StyleRule, Stylesheet, Subject};
use fabro_template::{ReadTarget, Template};
use fabro_types::{Span, SyntaxError};

/// A workflow that parses.
pub(crate) struct Read {
    /// With its other errors among its [findings](Workflow::findings).
    pub(crate) workflow: Workflow,
    /// Empty when there is none, or when it does not parse.
    pub(crate) stylesheet: Stylesheet,
}

/// Parses, applies defaults, reads files, applies the stylesheet. `Err` is a syntax error. A stylesheet that
/// reads inputs is not applied while they are not known.
pub(crate) fn load(
    name: &str,
    source: &str,
    sources: &dyn Sources,
    constants: Option<&Constants>,
) -> Result<Read, Diagnostic> {
    let mut workflow = Workflow::from_source(name, source)?;
    expand_imports(&mut workflow, sources);
    resolve_files(&mut workflow, sources);
    let parsed = match workflow.attrs().get("model_stylesheet") {
        Some(attr) => parse_stylesheet(attr, constants)
            .map_err(|error| attribute_error(source, "stylesheet-syntax", attr, &error)),
        None => Ok(Stylesheet::default()),
    };
    let error = parsed.as_ref().err().cloned();
    let stylesheet = parsed.unwrap_or_default();
    apply(&stylesheet, &mut workflow);
    workflow.finish_stylesheet(error);
    Ok(Read { workflow, stylesheet })
}

fn parse_stylesheet(attr: &Attr, constants: Option<&Constants>) -> Result<Stylesheet, SyntaxError> {
    let text = attr.value.as_text();
    if !is_template(&text) {
        return Stylesheet::parse(&text);
    }
    let parsed =
        if is_jinja(attr, &text) { Template::parse_jinja(&text) } else { Template::parse(&text) };
    let reads_context = |template: &Template| {
        template.reads().iter().any(|read| matches!(read.target, ReadTarget::Context(_)))
    };
    // The compiler reports what is wrong with a template.
    let Some(template) = parsed.ok().filter(|template| !reads_context(template)) else {
        return Ok(Stylesheet::default());
    };
    let none = Constants::new("", &serde_json::Map::new());
    let constants = match constants {
        None if !template.reads().is_empty() => return Ok(Stylesheet::default()),
        known => known.unwrap_or(&none),
    };
    // `undefined-input` reports a missing input.
    let is_missing = |target: &ReadTarget| matches!(target, ReadTarget::Input(name) if !constants.has_input(name));
    if template.reads().iter().any(|read| !read.optional && is_missing(&read.target)) {
        return Ok(Stylesheet::default());
    }
    // Places in the rendered text are not in the file.
    let at_whole = |message: String| SyntaxError::new(message, Span::new(0, text.len()));
    let rendered = constants.render(&template).map_err(at_whole)?;
    let parsed = Stylesheet::parse(&rendered);
    let parsed = parsed.map_err(|error| at_whole(format!("rendered: {}", error.message)))?;
    // An input may be text of a model: it must not choose what runs on this machine.
    let sets_backend =
        |rule: &StyleRule| rule.declarations.iter().any(|it| it.property == "backend");
    if !template.reads().is_empty() && parsed.rules().iter().any(sets_backend) {
        let error = at_whole("a stylesheet that reads inputs cannot set `backend`".to_owned());
        return Err(error.with_fix("write backend=… on the nodes"));
    }
    Ok(parsed)
}

/// Whether a stylesheet is rendered before it is parsed.
pub(crate) fn is_template(text: &str) -> bool {
    text.contains("{{") || Template::has_blocks(text)
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

#[cfg(test)]
mod tests {
    use fabro_graph::MemorySources;
    use serde_json::{Map, json};

    /// The model of the node `a` under a stylesheet, or what is wrong with it.
    fn model(stylesheet: &str, inputs: Option<serde_json::Value>) -> String {
        let inputs: Option<Map<_, _>> = inputs.map(|it| it.as_object().unwrap().clone());
        let stylesheet = stylesheet.replace('"', "\\\"");
        let source = format!(
            "digraph {{ graph [model_stylesheet=\"{stylesheet}\"]; start -> a -> exit; a [prompt=x] }}"
        );
        let checked = crate::check("t", &source, &MemorySources::default(), inputs.as_ref());
        let findings =
            checked.findings.into_iter().map(|it| format!("{}: {}", it.rule, it.message));
        let workflow = checked.workflow.unwrap();
        let node = workflow.node(workflow.find("a").unwrap());
        let model = node.attrs.text("model").unwrap_or("none").to_owned();
        std::iter::once(model).chain(findings).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn stylesheets_are_templates_of_inputs() {
        let set = "{% set strong = \"opus\" %}* { model: {{ strong }}; }";
        assert_eq!(model(set, None), "opus");
        let read = "* { model: {{ inputs.model }}; }";
        assert_eq!(model(read, None), "none", "the inputs are not known");
        assert_eq!(model(read, Some(json!({"model": "fast"}))), "fast");
        let choice = "{% if inputs.fast | default(false) %}* { model: small; }{% else %}* { model: large; }{% endif %}";
        assert_eq!(model(choice, Some(json!({"fast": true}))), "small");
        assert_eq!(model(choice, Some(json!({}))), "large");
        insta::assert_snapshot!(model(read, Some(json!({}))), @"none; undefined-input: the input `model` is not given");
        insta::assert_snapshot!(model(read, Some(json!({"model": "m; backend: cli"}))), @"none; stylesheet-syntax: a stylesheet that reads inputs cannot set `backend`");
        insta::assert_snapshot!(model("* { model: {{ context.m }}; }", None), @"none; constant-template: `context.m` is read in `model_stylesheet`, which is settled when the run is created");
        insta::assert_snapshot!(model("{% if goal %}* { model: x; }", None), @"none; template-syntax: unexpected end of input, expected end of block");
        insta::assert_snapshot!(model("{% set x = 1 %}* { model x; }", None), @"none; stylesheet-syntax: rendered: expected `:`, found `x`");
    }
}
