use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_engine::{RunState, checkpoint};
use fabro_events::{Event, EventBody};
use fabro_run::{Gate, open_gates};

use crate::at::StageKey;
use crate::explain::explain_of;
use crate::inspect::rows;
use crate::stage::report_of;
use crate::{Explain, ReportError, StageReport, StageRow};

/// All stages of a run, for reports about many of them: [`stage()`](crate::stage()) and
/// [`explain()`](crate::explain()) read the whole log for each, and this reads it once.
pub struct Stages<'e> {
    rows: Vec<StageRow>,
    /// The events of each visit, after the first of the run and before the one that ended its line.
    events: BTreeMap<StageKey, Vec<&'e Event>>,
    gates: Vec<Gate>,
}

impl<'e> Stages<'e> {
    /// Reads a whole log. `driven` tells whether the run has a driver.
    ///
    /// # Errors
    ///
    /// The log is empty.
    pub fn new(events: &'e [Event], driven: bool) -> Result<Self, ReportError> {
        let gates = open_gates(events);
        let events = checkpoint::effective(events);
        let first = *events.first().ok_or(ReportError::Empty)?;
        let mut state = RunState::new(first.run_id);
        let mut of_stage: BTreeMap<StageKey, Vec<&Event>> = BTreeMap::new();
        // The stage of each line that has just ended.
        let mut ended: BTreeMap<Option<Arc<str>>, StageKey> = BTreeMap::new();
        for event in &events {
            state.apply(event);
            let body = &event.entry.body;
            if let Some(key) = ended.remove(&event.entry.branch)
                && matches!(body, EventBody::RunFailed { .. } | EventBody::BranchCompleted { .. })
                && let Some(own) = of_stage.get_mut(&key)
            {
                own.push(event);
            }
            let Some(key) = StageKey::of(event) else { continue };
            of_stage.entry(key.clone()).or_insert_with(|| vec![first]).push(event);
            if matches!(body, EventBody::StageCompleted(_) | EventBody::StageFailed(_)) {
                ended.insert(key.branch.clone(), key);
            }
        }
        Ok(Self { rows: rows(&events, state.status(driven)), events: of_stage, gates })
    }

    /// The stages, by rank.
    pub fn rows(&self) -> &[StageRow] {
        &self.rows
    }

    /// The report of a stage.
    ///
    /// # Errors
    ///
    /// A large value cannot be read back.
    pub fn report(
        &self,
        row: &StageRow,
        blobs: &dyn BlobStore,
    ) -> Result<StageReport, ReportError> {
        let key = row.key();
        report_of(self.of(&key), &key, row.clone(), self.gates.iter().cloned(), blobs)
    }

    /// Why the run took an edge after a stage, or none; `None` for a stage that was not left.
    pub fn explain(&self, row: &StageRow) -> Option<Explain> {
        let key = row.key();
        explain_of(self.of(&key), &key).ok()
    }

    fn of(&self, key: &StageKey) -> &[&'e Event] {
        self.events.get(key).map_or(&[], Vec::as_slice)
    }
}
