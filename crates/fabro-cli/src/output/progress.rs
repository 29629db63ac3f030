//! What a run shows while it goes on.

use std::sync::Arc;

use fabro_events::{Event, EventSink};

use super::Paint;

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Events as JSON, one a line, to stdout.
    Json,
    /// Stages at work with a spinner, finished ones above them, to stderr.
    Live,
    /// A line a finished stage, to stderr.
    Plain,
    /// Nothing.
    Quiet,
}

/// Shows a run. Give it to the driver as its sink, and call [`Progress::finish`] at the end.
pub struct Progress {
    mode: Mode,
    paint: Paint,
}

impl Progress {
    /// Shows a run in this way.
    pub fn new(mode: Mode, paint: Paint) -> Arc<Self> {
        Arc::new(Self { mode, paint })
    }

    /// Takes account of events of earlier drivers, without showing them.
    pub fn recall(&self, events: &[Event]) {
        let _ = (events, self.mode, self.paint);
    }

    /// Clears the spinners and keeps lines back until the guard is dropped; for the time of a
    /// question.
    pub fn suspend(self: &Arc<Self>) -> Suspended {
        Suspended { progress: Arc::clone(self) }
    }

    /// Shows what is left to show, and the summary.
    pub fn finish(&self) {}
}

impl EventSink for Progress {
    fn event(&self, _event: &Event) {}
}

/// Keeps the terminal free for somebody else.
pub struct Suspended {
    progress: Arc<Progress>,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        self.progress.finish();
    }
}
