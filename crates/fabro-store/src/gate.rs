//! Which gate a message answers and an event asks, so that a gate takes one answer.

use fabro_events::{Event, EventBody};

use crate::Message;

/// A gate at one visit, in one branch, as text that differs for different gates.
pub(crate) fn answered(message: &Message) -> Option<String> {
    match message {
        Message::Answer { node, visit, branch, .. } => {
            Some(key(node, *visit, branch.as_deref().unwrap_or_default()))
        }
        Message::Cancel { .. } | Message::Steer { .. } => None,
    }
}

/// What an event does to answers.
pub(crate) enum Effect {
    /// The gate of this key may be answered again.
    Asks(String),
    /// The log continues from an earlier point: all gates may be answered again.
    Rewinds,
}

/// What this event does to answers, if anything.
pub(crate) fn effect(event: &Event) -> Option<Effect> {
    let entry = &event.entry;
    match &entry.body {
        EventBody::GateAsked { .. } => {
            let node = entry.node_id.as_deref().unwrap_or_default();
            let branch = entry.branch.as_deref().unwrap_or_default();
            Some(Effect::Asks(key(node, entry.visit.unwrap_or(1), branch)))
        }
        EventBody::CheckpointForked(point) if point.in_place => Some(Effect::Rewinds),
        _ => None,
    }
}

fn key(node: &str, visit: u32, branch: &str) -> String {
    // Node ids have no `@`, so the first two say where the branch begins.
    format!("{node}@{visit}@{branch}")
}
