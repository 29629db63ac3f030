//! Where the workflows of manager nodes come from.

use fabro_bundle::{Bundle, BundleError, render_goal};
use fabro_engine::{Plan, Stage};
use fabro_types::{Failure, FailureClass};

/// Loads the workflow that a manager node names.
pub trait ChildWorkflows: Send + Sync {
    /// The workflow of this stage's node, in the version that belongs to the stage's run.
    ///
    /// # Errors
    ///
    /// The node names no workflow, or one that cannot run.
    fn load(&self, stage: &Stage) -> Result<ChildWorkflow, Failure>;
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

/// Loads sub-workflows from the bundle that is kept with the parent's run.
#[derive(Clone, Copy, Debug, Default)]
pub struct BundledChildren;

impl ChildWorkflows for BundledChildren {
    fn load(&self, stage: &Stage) -> Result<ChildWorkflow, Failure> {
        load(stage).map_err(|error| Failure::new(FailureClass::Structural, error.to_string()))
    }
}

fn load(stage: &Stage) -> Result<ChildWorkflow, BundleError> {
    let parent = Bundle::load(&*stage.store, &stage.run.bundle)?;
    let bundle = parent.child(stage.node())?;
    let plan = bundle.plan()?;
    let goal = plan.graph().goal.as_ref();
    let goal = goal.map(|goal| render_goal(&goal.text, &stage.run.inputs)).transpose()?;
    Ok(ChildWorkflow { goal, bundle: bundle.to_bytes(), plan })
}
