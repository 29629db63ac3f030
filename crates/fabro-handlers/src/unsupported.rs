//! What a workflow asks for that this version does not do yet.

use fabro_graph::{Attr, NodeKind, Span, Workflow};

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
