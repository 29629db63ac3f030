//! Finding stages in a log.

use std::sync::Arc;

use fabro_engine::checkpoint::{StageName, meant};
use fabro_events::{Event, EventBody, StageFailure};
use fabro_types::BranchPath;

use crate::ReportError;

/// One visit of a node in one line of the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageKey {
    /// The branch; `None` in the main line.
    pub branch: Option<Arc<str>>,
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it, from 1.
    pub visit: u32,
}

impl StageKey {
    /// The stage that failed.
    pub(crate) fn of_failure(stage: &StageFailure) -> Self {
        let node = Arc::clone(&stage.node);
        Self { branch: stage.branch.clone(), node, visit: stage.visit }
    }

    /// The stage an event concerns; `None` when it concerns none.
    pub fn of(event: &Event) -> Option<Self> {
        let entry = &event.entry;
        Some(Self {
            branch: entry.branch.clone(),
            node: entry.node_id.clone()?,
            visit: entry.visit.unwrap_or(1),
        })
    }

    /// Whether a name means it.
    pub fn is_called(&self, name: StageName<'_>) -> bool {
        let path = BranchPath::new(self.branch.as_deref().unwrap_or_default());
        *self.node == *name.node
            && name.visit.is_none_or(|visit| self.visit == visit)
            && name.branch.is_none_or(|branch| path.is_called(branch))
            && (name.elements.is_empty() || path.elements().ends_with(name.elements))
    }

    /// `BRANCH/NODE@VISIT`, without the branch in the main line.
    pub fn full_name(&self) -> String {
        BranchPath::new(self.branch.as_deref().unwrap_or_default()).stage(&self.node, self.visit)
    }

    /// `NODE@VISIT`.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.node, self.visit)
    }

    pub(crate) fn is(&self, event: &Event) -> bool {
        let entry = &event.entry;
        entry.node_id.as_deref() == Some(&self.node)
            && entry.visit.unwrap_or(1) == self.visit
            && entry.branch == self.branch
    }
}

/// Whether a name of a stage is one without a visit.
pub(crate) fn is_any_visit(text: &str) -> bool {
    StageName::parse(text.trim()).visit.is_none()
}

/// Checks that the name of a stage means one stage among the events that count: with a visit, but
/// without its branch, it may mean those of several branches.
///
/// # Errors
///
/// It means more than one: the error has their names in full. That there is none is no error here.
pub fn check_stage(events: &[&Event], stage: &str) -> Result<(), ReportError> {
    let name = StageName::parse(stage.trim());
    if name.visit.is_none() {
        return Ok(());
    }
    let stages = meant(events, name);
    if stages.len() > 1 {
        return Err(ReportError::SeveralStages { stage: stage.to_owned(), stages });
    }
    Ok(())
}

/// The stage of a [name](StageName); of those that one without a visit means, the one that started
/// last.
pub(crate) fn find(events: &[&Event], text: &str) -> Result<StageKey, ReportError> {
    find_among(events, text, |body| matches!(body, EventBody::StageStarted { .. }))
}

/// The same, where an exit counts that was left for a goal gate before it started.
pub(crate) fn find_left(events: &[&Event], text: &str) -> Result<StageKey, ReportError> {
    find_among(events, text, |body| {
        matches!(body, EventBody::StageStarted { .. } | EventBody::EdgeSelected(_))
    })
}

fn find_among(
    events: &[&Event],
    text: &str,
    counts: impl Fn(&EventBody) -> bool,
) -> Result<StageKey, ReportError> {
    check_stage(events, text)?;
    let name = StageName::parse(text.trim());
    let started = events.iter().filter(|event| counts(&event.entry.body));
    let last = started.clone().rfind(|event| name.is_of(&event.entry));
    last.and_then(|event| StageKey::of(event)).ok_or_else(|| {
        let mut known: Vec<String> = Vec::new();
        for key in started.filter_map(|event| StageKey::of(event)) {
            // A loop visits the same few nodes again and again.
            if known.len() <= 8 && !known.iter().any(|name| *name == *key.node) {
                known.push(key.node.to_string());
            }
        }
        ReportError::NoStage { stage: text.to_owned(), stages: known }
    })
}

/// The place in `events` of the stage's end.
pub(crate) fn end_of(events: &[&Event], key: &StageKey) -> Option<usize> {
    events.iter().rposition(|event| {
        matches!(event.entry.body, EventBody::StageCompleted(_) | EventBody::StageFailed(_))
            && key.is(event)
    })
}
