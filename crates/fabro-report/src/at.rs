//! Finding stages in a log.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};

use crate::ReportError;

/// One visit of a node in one line of the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StageKey {
    pub(crate) branch: Option<Arc<str>>,
    pub(crate) node: Arc<str>,
    pub(crate) visit: u32,
}

impl StageKey {
    /// The stage an event concerns; `None` when it concerns none.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let entry = &event.entry;
        Some(Self {
            branch: entry.branch.clone(),
            node: entry.node_id.clone()?,
            visit: entry.visit.unwrap_or(1),
        })
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

/// The stage that `NODE@VISIT` means, or `NODE` its last visit. When several branches visited the
/// node, it is the one that started last.
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
    let (node, visit) = checkpoint::split(text.trim());
    let started = |event: &&&Event| counts(&event.entry.body);
    let wanted = |key: &StageKey| {
        Some(key.node.as_ref()) == node && visit.is_none_or(|visit| visit == key.visit)
    };
    let mut stages = events.iter().filter(started).filter_map(|event| StageKey::of(event));
    stages.clone().rfind(wanted).ok_or_else(|| {
        let mut known: Vec<String> = Vec::new();
        for key in stages.by_ref() {
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

/// Takes what a map holds of a branch and of the branches inside it, at a cost of these alone.
pub(crate) fn take_line<V>(map: &mut BTreeMap<Arc<str>, V>, branch: &str) -> Vec<V> {
    let below = format!("{branch}/");
    let inside = map.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
    let inside = inside.map(|(name, _)| name).take_while(|name| name.starts_with(&below));
    let inside: Vec<Arc<str>> = inside.map(Arc::clone).collect();
    let own = map.remove(branch);
    own.into_iter().chain(inside.iter().filter_map(|name| map.remove(name))).collect()
}
