//! The workflow of a scene, with its files and its sub-workflows.

use fabro_engine::Plan;
use fabro_graph::MemorySources;
use fabro_validate::RelativeSources;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{ChildWorkflow, ChildWorkflows};
use fabro_engine::{Stage, read_blob};
use fabro_types::{Failure, FailureClass};

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Bundle {
    pub(super) name: String,
    pub(super) base: String,
    pub(super) source: String,
    pub(super) files: BTreeMap<String, String>,
}

impl Bundle {
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let files = MemorySources(self.files.clone());
        let beside = RelativeSources::new(&files, &self.base);
        let workflow = fabro_validate::prepare(&self.name, &self.source, &beside, None)
            .map_err(|findings| format!("test.fabro is not valid: {}", findings[0].message))?;
        Plan::compile(workflow).map_err(|error| error.to_string())
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap()
    }
}

/// Loads children from the bundle of their parent.
pub(super) struct Children;

impl ChildWorkflows for Children {
    fn load(&self, stage: &Stage, _: &Map<String, Value>) -> Result<ChildWorkflow, Failure> {
        let failed = |message: String| Failure::new(FailureClass::Structural, message);
        let bundle = read_blob(&*stage.store, &stage.run.bundle).unwrap();
        let parent: Bundle = serde_json::from_value(bundle).unwrap();
        let manager = stage.spec().manager().unwrap();
        let source = manager.source.as_deref().ok_or_else(|| {
            failed(format!("`{}` names no workflow: set stack.child_workflow", stage.at.node))
        })?;
        let none = MemorySources::default();
        let beside = RelativeSources::new(&none, &parent.base);
        let child = Bundle {
            name: stage.at.node.to_string(),
            base: manager.file.as_deref().map_or(parent.base.clone(), |file| beside.join(file)),
            source: source.to_owned(),
            files: parent.files.clone(),
        };
        let plan = child.plan().map_err(failed)?;
        let goal = plan.graph().goal.as_ref().map(|goal| goal.text.to_string());
        Ok(ChildWorkflow { plan, goal, bundle: child.to_bytes() })
    }
}
