use fabro_events::timestamp;
use fabro_store::RunSummary;
use fabro_types::{RunId, RunStatus};
use serde::Serialize;

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PsRow {
    /// The run.
    pub id: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Where it stands.
    pub status: RunStatus,
    /// When it was created, RFC 3339.
    pub started_at: String,
    /// When it ended; `None` while it has not.
    pub ended_at: Option<String>,
    /// The goal; empty when there is none.
    pub goal: String,
    /// The run whose sub-workflow it is; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
}

/// The list of runs, in the order they are given; those of sub-workflows only if `all`.
pub fn ps(runs: Vec<RunSummary>, all: bool) -> Vec<PsRow> {
    let shown = runs.into_iter().filter(|run| all || run.parent.is_none());
    shown
        .map(|run| PsRow {
            id: run.id,
            workflow: run.workflow,
            status: run.status,
            started_at: timestamp(run.started_at_ms),
            ended_at: run.ended_at_ms.map(timestamp),
            goal: run.goal,
            parent: run.parent,
        })
        .collect()
}
