//! Agents that talk to a model and use tools.

use std::path::Path;

use anyhow::Result;

use crate::Kind;
use crate::case::Case;
use crate::check::Snapshot;

mod model;
mod talks;
mod workflow;

use model::Model;

/// Runs of the workflow of agents.
pub(super) struct Agents {
    model: Model,
}

impl Agents {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { model: Model::start()? })
    }
}

impl Kind for Agents {
    fn flags(&self) -> &'static str {
        " --agents"
    }

    fn case(&mut self, fabro: &Path, name: &str) -> Result<Case> {
        // Each run asks a server of its own.
        self.model = Model::start()?;
        Case::of(workflow::work(self.model.url()), fabro, name)
    }

    fn judge(&self, seen: &[Snapshot], last: &Snapshot) -> Vec<String> {
        let log = self.model.log();
        let talks = talks::Talks::new(last.all_events(), &log);
        talks.wrong(seen.len(), &last.effects)
    }
}
