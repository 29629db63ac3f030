//! Running sub-workflows, and where their stages are shown.

use std::collections::BTreeMap;

use fabro_events::ParentStage;
use fabro_types::RunId;

use crate::story::{RunningStage, Story};

/// A running sub-workflow.
#[derive(Default)]
pub(crate) struct Child {
    pub(crate) story: Story,
    /// The stage that runs it, once that is known.
    pub(crate) parent: Option<ParentStage>,
}

/// Adds the running stages of a story, each followed by those of its sub-workflows among `left`, which are
/// taken out.
pub(crate) fn add_running<'a>(
    story: &'a Story,
    left: &mut BTreeMap<&'a RunId, &'a Child>,
    shown: &mut Vec<&'a RunningStage>,
) {
    for (branch, stage) in story.running_branches() {
        shown.push(stage);
        let is_below = |_: &&RunId, child: &mut &Child| {
            child.parent.as_ref().is_some_and(|parent| is_run_by(parent, branch, stage))
        };
        let below: Vec<&Child> = left.extract_if(.., is_below).map(|(_, child)| child).collect();
        for child in below {
            add_running(&child.story, left, shown);
        }
    }
}

/// Whether this stage runs the sub-workflow that has this parent.
pub(crate) fn is_run_by(parent: &ParentStage, branch: &str, stage: &RunningStage) -> bool {
    let place = &stage.place;
    let branch = (!branch.is_empty()).then_some(branch);
    parent.run_id == place.run && parent.is(branch, &place.node, place.visit)
}
