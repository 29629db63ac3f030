use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_engine::{Phase, RunState, checkpoint};
use fabro_events::{CompletedStage, Event, EventBody, timestamp};
use fabro_run::{Gate, open_gates};
use fabro_types::{Failure, RunId, RunStatus, Usage};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::ReportError;
use crate::at::StageKey;

/// A run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspect {
    /// The run.
    pub id: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Its status.
    pub status: RunStatus,
    /// Why it failed; left out when it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The goal; empty when there is none.
    pub goal: String,
    /// The inputs.
    pub inputs: Map<String, Value>,
    /// What decides random choices.
    pub seed: u64,
    /// Its stages, by rank.
    pub stages: Vec<StageRow>,
    /// Model usage of the whole run.
    pub usage: Usage,
    /// Its gates that wait for an answer; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
}

/// One visit of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageRow {
    /// Order of scheduling.
    pub rank: u32,
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// The branch it ran in; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// How it ended; while it has not, `running`, `paused` or `interrupted` as the run is, and
    /// `canceled` when it never will.
    pub status: &'static str,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// How many attempts there were so far.
    pub attempts: u32,
    /// The next node.
    pub edge: Option<Arc<str>>,
}

/// A run as a whole. `driven` tells whether it has a driver.
pub fn inspect(events: &[Event], driven: bool) -> Result<Inspect, ReportError> {
    let first = events.first().ok_or(ReportError::Empty)?;
    let mut state = RunState::new(first.run_id);
    let mut rows = Rows::default();
    for event in checkpoint::effective(events) {
        state.apply(event);
        rows.apply(event);
    }
    let created = state.created.clone().ok_or(ReportError::Empty)?;
    let status = state.status(driven);
    Ok(Inspect {
        id: first.run_id,
        workflow: created.workflow.clone(),
        status,
        failure: match state.phase {
            Phase::Ended(_, failure) => failure,
            _ => None,
        },
        goal: created.goal.clone(),
        inputs: created.inputs.clone(),
        seed: created.seed,
        stages: rows.finish(status),
        gates: open_gates(events),
        usage: state.usage,
    })
}

#[derive(Default)]
struct Rows {
    list: Vec<StageRow>,
    by_key: BTreeMap<StageKey, usize>,
    /// The running stage of each line.
    running: BTreeMap<Arc<str>, usize>,
}

impl Rows {
    fn apply(&mut self, event: &Event) {
        match &event.entry.body {
            EventBody::StageStarted { rank, .. } => self.start(event, *rank),
            EventBody::StageRetrying { attempt, .. } => {
                if let Some(row) = self.row(event) {
                    row.attempts = attempt + 1;
                }
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => self.end(event, end),
            EventBody::EdgeSelected(choice) => {
                if let Some(row) = self.row(event) {
                    row.edge = Some(Arc::clone(&choice.to));
                }
            }
            EventBody::BranchCompleted { canceled: true, .. } => self.cancel(event),
            _ => {}
        }
    }

    fn start(&mut self, event: &Event, rank: u32) {
        let Some(key) = StageKey::of(event) else { return };
        let row = StageRow {
            rank,
            node: Arc::clone(&key.node),
            visit: key.visit,
            branch: key.branch.clone(),
            status: "",
            started_at: timestamp(event.ts_ms),
            ended_at: None,
            attempts: 1,
            edge: None,
        };
        self.running.insert(key.branch.clone().unwrap_or_default(), self.list.len());
        self.by_key.insert(key, self.list.len());
        self.list.push(row);
    }

    fn end(&mut self, event: &Event, end: &CompletedStage) {
        self.running.remove(event.entry.branch.as_deref().unwrap_or_default());
        if let Some(row) = self.row(event) {
            row.status = end.outcome.status.as_str();
            row.ended_at = Some(timestamp(event.ts_ms));
            row.attempts = end.attempts;
        }
    }

    /// Stages that a join does not wait for never end.
    fn cancel(&mut self, event: &Event) {
        let Some(name) = event.entry.branch.as_deref() else { return };
        // The branches inside it: `0` is the character after `/`.
        let inside = Arc::from(format!("{name}/"))..Arc::from(format!("{name}0"));
        let own = self.running.remove(name);
        let inside = self.running.extract_if(inside, |_, _| true).map(|(_, at)| at);
        for at in own.into_iter().chain(inside) {
            self.list[at].status = RunStatus::Canceled.as_str();
            self.list[at].ended_at = Some(timestamp(event.ts_ms));
        }
    }

    fn row(&mut self, event: &Event) -> Option<&mut StageRow> {
        let at = *self.by_key.get(&StageKey::of(event)?)?;
        self.list.get_mut(at)
    }

    fn finish(mut self, run: RunStatus) -> Vec<StageRow> {
        let unfinished = if run.is_final() { RunStatus::Canceled } else { run }.as_str();
        for row in self.list.iter_mut().filter(|row| row.status.is_empty()) {
            row.status = unfinished;
        }
        self.list.sort_by_key(|row| row.rank);
        self.list
    }
}
