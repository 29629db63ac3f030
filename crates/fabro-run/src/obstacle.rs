//! What keeps a valid workflow from being run: that it asks for what is not configured.

use fabro_graph::{Node, NodeKind, Workflow};

use crate::bundle::{Bundle, BundleError};

/// Why a valid workflow cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
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
const MAX_DEPTH: usize = fabro_types::MAX_SUB_WORKFLOW_DEPTH;

fn obstacle_below(
    bundle: &Bundle,
    workflow: &Workflow,
    depth: usize,
) -> Result<Option<Obstacle>, BundleError> {
    let settings = &bundle.settings;
    let has_model = settings.model_script.is_some() || !settings.providers.is_empty();
    if !has_model && workflow.nodes().any(asks_a_model) {
        return Ok(Some(Obstacle::NoModel { file: bundle.file.clone() }));
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

/// Other programs bring their own models.
fn asks_a_model(node: &Node) -> bool {
    let chooses = node.kind == NodeKind::FanIn && node.attrs.get("prompt").is_some();
    let is_own = matches!(node.attrs.text("backend"), Some("cli" | "acp"));
    chooses || (node.kind.is_llm() && !is_own)
}
