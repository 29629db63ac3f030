//! What a run did, for people and programs: inspect, explain, context, lines.
//!
//! Everything here is a projection of a run's log: plain data out of events, with the shapes that
//! `--json` prints. Nothing is printed, and nothing is read but the store. [`load`] reads a log;
//! [`inspect()`], [`stage()`], [`explain()`], [`context_at`] and [`diff`] answer questions about
//! it; [`line()`] says one event in a sentence, and [`Story`] tells a run while it goes on.
//!
//! ```
//! use fabro_events::{Entry, Event, EventBody};
//! use fabro_types::RunId;
//!
//! let entry = Entry::new(EventBody::RunCanceled { reason: "not needed".into() });
//! let event = Event { run_id: RunId::from_parts(0, 7), seq: 1, ts_ms: 0, entry };
//! assert_eq!(fabro_report::line(&event).text, "run canceled: not needed");
//! ```
//!
//! Events that a rewind took back count for nothing but [`line()`] and [`Story`], which tell what
//! they are given.
//!
//! Limits: a log is held in memory as a whole; every report costs time linear in it.

mod at;
mod context;
mod error;
mod explain;
mod inspect;
mod line;
mod ps;
mod stage;
mod story;
mod summary;
mod text;

pub use at::{Gate, open_gates};
pub use context::{context_at, diff};
pub use error::ReportError;
pub use explain::{Considered, Explain, explain};
use fabro_events::Event;
use fabro_store::{RunLog, StoreError};
use fabro_types::RunId;
pub use inspect::{Inspect, StageRow, inspect};
pub use line::{Line, Mark, line, why};
pub use ps::{PsRow, ps};
pub use stage::{StageReport, stage};
pub use story::{AtWork, StageLine, Story, Told};
pub use summary::{Summary, SummaryRow};
pub use text::{one_line, took};

/// How many events are read at a time.
const PAGE: usize = 1_000;

/// The whole log of a run, oldest event first; empty for an unknown run.
pub fn load(store: &(impl RunLog + ?Sized), run: RunId) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::new();
    loop {
        let after = events.last().map_or(0, |event: &Event| event.seq);
        let page = store.read(run, after, PAGE)?;
        let is_last = page.len() < PAGE;
        events.extend(page);
        if is_last {
            return Ok(events);
        }
    }
}

#[cfg(test)]
mod tests;
