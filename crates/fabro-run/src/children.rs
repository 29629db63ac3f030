//! The workflows of manager nodes, from the bundle of their run.

use fabro_engine::{Constants, Stage};
use fabro_handlers::{ChildWorkflow, ChildWorkflows};
use fabro_types::{Failure, FailureClass};
use serde_json::{Map, Value};

use crate::bundle::{Bundle, BundleError};
use crate::goal::render_goal;

/// Loads sub-workflows from the bundle that is kept with the parent's run.
#[derive(Clone, Copy, Debug, Default)]
pub struct BundledChildren;

impl ChildWorkflows for BundledChildren {
    fn load(&self, stage: &Stage, inputs: &Map<String, Value>) -> Result<ChildWorkflow, Failure> {
        load(stage, inputs)
            .map_err(|error| Failure::new(FailureClass::Structural, error.to_string()))
    }
}

fn load(stage: &Stage, inputs: &Map<String, Value>) -> Result<ChildWorkflow, BundleError> {
    let parent = Bundle::load(&*stage.store, &stage.run)?;
    let mut bundle = parent.child(stage.node())?;
    let mut plan = bundle.plan()?;
    let goal = plan.graph().goal.as_ref();
    let goal = goal.map(|goal| render_goal(&goal.text, inputs)).transpose()?;
    if plan.reads_constants() {
        bundle.constants = Some(Constants::new(goal.as_deref().unwrap_or_default(), inputs));
        plan = bundle.plan()?;
    }
    Ok(ChildWorkflow { goal, bundle: bundle.to_bytes(), plan })
}
