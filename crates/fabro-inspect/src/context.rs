use fabro_context::{Change, Context};
use fabro_engine::{RunState, checkpoint};
use fabro_events::Event;

use crate::ReportError;
use crate::at::{end_of, find};

/// The context as it was when a stage, named as [`StageName`](checkpoint::StageName) has it, had
/// ended, as that stage's line of the run saw it; without a stage, the main line's as it is now.
/// Large values are references to blobs.
pub fn context_at(events: &[Event], at: Option<&str>) -> Result<Context, ReportError> {
    let first = events.first().ok_or(ReportError::Empty)?;
    let events = checkpoint::effective(events);
    let (end, branch) = match at {
        None => (events.len(), None),
        Some(text) => {
            let key = find(&events, text)?;
            let end =
                end_of(&events, &key).ok_or_else(|| ReportError::NotEnded { stage: key.name() })?;
            (end + 1, key.branch)
        }
    };
    let mut state = RunState::new(first.run_id);
    for event in &events[..end] {
        state.apply(event);
    }
    let cursor = state.cursor(branch.as_deref()).ok_or(ReportError::Empty)?;
    Ok(cursor.context.clone())
}

/// What changed from the end of one stage to the end of another, in key order.
pub fn diff(events: &[Event], before: &str, after: &str) -> Result<Vec<Change>, ReportError> {
    let before = context_at(events, Some(before))?;
    let after = context_at(events, Some(after))?;
    Ok(before.diff(&after))
}
