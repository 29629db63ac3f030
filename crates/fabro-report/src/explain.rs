use std::sync::Arc;

use fabro_engine::checkpoint;
use fabro_events::{Candidate, Event, EventBody, Tier};
use fabro_types::{ClauseVerdict, Weight};
use serde::Serialize;

use crate::ReportError;
use crate::at::{end_of, find};

/// Why a run went on as it did after a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explain {
    /// The node it went on to.
    pub chosen: Arc<str>,
    /// The rule that decided.
    pub tier: Tier,
    /// The goal gate that was not met; present only when that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Arc<str>>,
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
    pub clauses: Vec<ClauseVerdict>,
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

/// Why the run went on as it did after a stage: `NODE@VISIT`, or `NODE` for its last visit.
pub fn explain(events: &[Event], stage: &str) -> Result<Explain, ReportError> {
    let events = checkpoint::effective(events);
    let key = find(&events, stage)?;
    let choice = events.iter().rev().find_map(|event| match &event.entry.body {
        EventBody::EdgeSelected(choice) if key.is(event) => Some(choice),
        _ => None,
    });
    let Some(choice) = choice else {
        let ended = end_of(&events, &key).is_some();
        return Err(ReportError::NoEdge { stage: key.name(), ended });
    };
    Ok(Explain {
        chosen: Arc::clone(&choice.to),
        tier: choice.tier,
        gate: choice.gate.clone(),
        candidates: choice.candidates.iter().map(Considered::from).collect(),
    })
}
