//! How long a run was driven: the time between its events, without pauses and crashes.

use fabro_events::{Event, EventBody};

/// A clock that stands still while no process drives the run, and that is never set. Given the events of a run that count,
/// in order.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the unit is a part of each name")]
pub(crate) struct DrivenClock {
    /// The time of the last event, in milliseconds since 1970.
    pub(crate) last_ms: i64,
    /// By how much the clock of the events was set so far.
    set_ms: i64,
    driven_ms: u64,
}

impl DrivenClock {
    /// Takes account of the next event. The time before a resume counts for nothing, and neither
    /// does what is before a fork: the copied events have the times of the other run.
    pub(crate) fn apply(&mut self, event: &Event) {
        let set_ms = event.entry.clock_set_ms.unwrap_or(0);
        let passed = event.ts_ms.saturating_sub(self.last_ms).saturating_sub(set_ms);
        let passed = u64::try_from(passed).unwrap_or_default();
        match event.entry.body {
            EventBody::RunCreated(_)
            | EventBody::RunResumed { .. }
            | EventBody::CheckpointForked(_) => {}
            _ => self.driven_ms = self.driven_ms.saturating_add(passed),
        }
        self.last_ms = event.ts_ms;
        self.set_ms = self.set_ms.saturating_add(set_ms);
    }

    /// The time of the last event by a clock that was never set, in milliseconds since 1970.
    pub(crate) fn steady_ms(&self) -> i64 {
        self.last_ms.saturating_sub(self.set_ms)
    }

    /// The reading at the last event, in milliseconds; differences of readings are durations.
    pub(crate) fn now(&self) -> u64 {
        self.driven_ms
    }
}
