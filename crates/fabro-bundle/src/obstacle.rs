//! What keeps a valid workflow from being run: what it asks for that this version does not do yet,
//! or that nothing is configured for.

use fabro_graph::{Attr, NodeKind, Span, Workflow};
use fabro_types::{LineIndex, Position};

use crate::bundle::{Bundle, BundleError};

/// An attribute whose meaning a run would need, and that this version does not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The node; `None` for the graph.
    pub node: Option<String>,
    /// The attribute.
    pub attribute: &'static str,
    /// Where its value stands.
    pub span: Span,
}

/// Attributes of LLM nodes that come with a later version. Limits, permissions and tool lists of
/// agents mean nothing without tools, so ignoring them changes nothing.
const LLM: [&str; 4] = ["output_schema", "rag", "memory", "acp.command"];

/// Why a valid workflow cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// This version does not do what an attribute asks for.
    Unsupported {
        /// The workflow file.
        file: String,
        /// Where the attribute's value stands in it.
        at: Position,
        /// The attribute.
        attribute: &'static str,
    },
    /// It has stages that ask a model, and no model is configured.
    NoModel {
        /// The workflow file.
        file: String,
    },
}

/// The first obstacle of a workflow or of its sub-workflows. The bundle is the workflow's.
pub fn obstacle(bundle: &Bundle, workflow: &Workflow) -> Result<Option<Obstacle>, BundleError> {
    obstacle_below(bundle, workflow, 0)
}

/// How deep sub-workflows nest in a valid workflow.
const MAX_DEPTH: usize = 8;

fn obstacle_below(
    bundle: &Bundle,
    workflow: &Workflow,
    depth: usize,
) -> Result<Option<Obstacle>, BundleError> {
    let file = bundle.file.clone();
    if let Some(first) = unsupported(workflow).first() {
        let at = LineIndex::new(&bundle.source).position(first.span.start);
        let attribute = first.attribute;
        return Ok(Some(Obstacle::Unsupported { file, at, attribute }));
    }
    if bundle.settings.model_script.is_none() && asks_a_model(workflow) {
        return Ok(Some(Obstacle::NoModel { file }));
    }
    let managers = workflow.nodes().filter(|node| node.kind == NodeKind::ManagerLoop);
    for node in managers.take_while(|_| depth < MAX_DEPTH) {
        let child = bundle.child(node)?;
        let found = obstacle_below(&child, child.plan()?.workflow(), depth + 1)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn asks_a_model(workflow: &Workflow) -> bool {
    workflow.nodes().any(|node| {
        let chooses = node.kind == NodeKind::FanIn && node.attrs.get("prompt").is_some();
        node.kind.is_llm() || chooses
    })
}

/// Everything in a workflow that a run would need and that this version does not do yet.
pub fn unsupported(workflow: &Workflow) -> Vec<Unsupported> {
    let mut found = Vec::new();
    let mut add = |node: Option<&str>, attribute, span| {
        found.push(Unsupported { node: node.map(str::to_owned), attribute, span });
    };
    if let Some(attr) = workflow.attrs().get("memory").filter(|attr| !is_off(attr)) {
        add(None, "memory", attr.span);
    }
    for node in workflow.nodes().filter(|node| node.kind.is_llm() || node.kind == NodeKind::FanIn) {
        for attribute in LLM {
            if let Some(attr) = node.attrs.get(attribute).filter(|attr| !is_off(attr)) {
                add(Some(&node.id), attribute, attr.span);
            }
        }
        if let Some(attr) = node.attrs.get("backend").filter(|a| a.value.text() != Some("api")) {
            add(Some(&node.id), "backend", attr.span);
        }
    }
    found
}

/// What is switched off, or empty, asks for nothing.
fn is_off(attr: &Attr) -> bool {
    matches!(attr.value.as_text().trim(), "" | "off" | "false")
}
