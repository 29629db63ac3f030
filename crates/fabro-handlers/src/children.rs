//! Where the workflows of manager nodes come from.

use fabro_engine::{Plan, Stage};
use fabro_types::{Failure, FailureClass};
use serde_json::{Map, Value};

/// Loads the workflow that a manager node names.
pub trait ChildWorkflows: Send + Sync {
    /// The workflow of this stage's node, in the version that belongs to the stage's run; its goal is
    /// rendered with these inputs.
    ///
    /// # Errors
    ///
    /// The node names no workflow, or one that cannot run.
    fn load(&self, stage: &Stage, inputs: &Map<String, Value>) -> Result<ChildWorkflow, Failure>;
}

/// A sub-workflow, ready to run.
#[derive(Debug)]
pub struct ChildWorkflow {
    /// The compiled workflow.
    pub plan: Plan,
    /// The goal that the workflow itself states, rendered; the parent's goal applies otherwise.
    pub goal: Option<String>,
    /// What the child's run keeps of its workflow, so that it can be resumed without the files.
    pub bundle: Vec<u8>,
}

/// Loads none: for runs without sub-workflows.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoChildren;

impl ChildWorkflows for NoChildren {
    fn load(&self, stage: &Stage, _: &Map<String, Value>) -> Result<ChildWorkflow, Failure> {
        let message = format!("`{}`: there are no sub-workflows here", stage.at.node);
        Err(Failure::new(FailureClass::Structural, message))
    }
}
