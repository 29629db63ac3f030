//! Agents that talk to a model and use tools.

use anyhow::Result;

use crate::check::Snapshot;
use crate::work::Work;

mod conversations;
mod workflow;

use crate::model::Model;

/// The workflow of agents; each run of it asks a server of its own.
pub(super) fn work() -> Result<Work> {
    Ok(workflow::work(Model::start()?))
}

/// What is wrong with the conversations of a run that was disturbed so many times.
pub(super) fn wrong(model: &Model, kills: usize, last: &Snapshot) -> Vec<String> {
    let log = model.log();
    conversations::Conversations::new(last.all_events(), &log).wrong(kills, &last.effects)
}
