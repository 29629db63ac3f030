use std::sync::Arc;

use fabro_engine::checkpoint;
use fabro_events::{Candidate, Event, EventBody, Tier};
use fabro_types::{ClauseResult, Failure, Weight};
use serde::Serialize;

use crate::ReportError;
use crate::at::{StageKey, end_of, find_left};

/// Why a run took an edge after a stage, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explain {
    /// The next node; `None` when no edge could be taken.
    pub chosen: Option<Arc<str>>,
    /// The rule that decided; `None` when nothing was chosen.
    pub tier: Option<Tier>,
    /// The seed of a random choice among several edges; present only when there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The goal gate that was not met; present only when that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Arc<str>>,
    /// What the run, or the branch, failed with; present only when nothing was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Every edge that could have been taken, in the order of the file.
    pub candidates: Vec<Considered>,
}

/// An edge that could have been taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Considered {
    /// Where it leads.
    pub to: Arc<str>,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// Its condition, as written.
    pub condition: Option<Arc<str>>,
    /// Its weight.
    pub weight: Weight,
    /// Whether its condition held; true without one.
    pub holds: bool,
    /// What each clause of the condition saw.
    pub clauses: Vec<ClauseResult>,
}

impl From<&Candidate> for Considered {
    fn from(candidate: &Candidate) -> Self {
        Self {
            to: Arc::clone(&candidate.to),
            label: candidate.label.clone(),
            condition: candidate.condition.clone(),
            weight: candidate.weight,
            holds: candidate.holds,
            clauses: candidate.clauses.clone(),
        }
    }
}

/// Why the run took an edge after a stage, or none. The stage is named as
/// [`StageName`](checkpoint::StageName) has it. The exit that a goal gate kept the run from has an
/// explanation too.
pub fn explain(events: &[Event], stage: &str) -> Result<Explain, ReportError> {
    let events = checkpoint::effective(events);
    let key = find_left(&events, stage)?;
    let choice = events.iter().rev().find_map(|event| match &event.entry.body {
        EventBody::EdgeSelected(choice) if key.is(event) => Some(choice),
        _ => None,
    });
    let Some(choice) = choice else {
        return stuck(&events, &key);
    };
    let seed = events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => Some(created.seed),
        _ => None,
    });
    Ok(Explain {
        chosen: Some(Arc::clone(&choice.to)),
        tier: Some(choice.tier),
        seed: seed.filter(|_| choice.random),
        gate: choice.gate.clone(),
        candidates: choice.candidates.iter().map(Considered::from).collect(),
        ..Explain::default()
    })
}

/// The failure after a stage without a next edge.
fn stuck(events: &[&Event], key: &StageKey) -> Result<Explain, ReportError> {
    let no_edge = |ended| Err(ReportError::NoEdge { stage: key.name(), ended });
    let Some(end) = end_of(events, key) else { return no_edge(false) };
    // What ends the line is the next thing that happens in it.
    let next = events[end + 1..].iter().find(|event| event.entry.branch == key.branch);
    let (failure, candidates) = match next.map(|event| &event.entry.body) {
        Some(EventBody::RunFailed { failure, candidates, .. }) => (Some(failure), candidates),
        Some(EventBody::BranchCompleted { failure, candidates, .. }) => {
            (failure.as_ref(), candidates)
        }
        _ => return no_edge(true),
    };
    if candidates.is_empty() {
        return no_edge(true);
    }
    let candidates = candidates.iter().map(Considered::from).collect();
    Ok(Explain { failure: failure.cloned(), candidates, ..Explain::default() })
}
