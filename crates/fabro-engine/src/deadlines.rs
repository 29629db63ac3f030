//! The timeouts of running fan-outs. A driver that resumes a run starts them again.

use std::collections::BTreeMap;

use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Plan;
use crate::attempt::AttemptResult;
use crate::cursor::Position;
use crate::in_flight::InFlight;
use crate::key::Key;
use crate::state::RunState;

/// A timer for each running fan-out that has a timeout; dropping its guard stops it.
#[derive(Default)]
pub(crate) struct Deadlines(BTreeMap<Key, DropGuard>);

impl Deadlines {
    /// Starts the timers of fan-outs that have begun, and stops those of fan-outs that have ended.
    pub(crate) fn watch(
        &mut self,
        state: &RunState,
        plan: &Plan,
        stop: &CancellationToken,
        in_flight: &InFlight,
    ) {
        self.0.retain(|key, _| state.is_running_fan_out(key));
        for (branch, cursor) in &state.cursors {
            let Position::Fanned(fan) = &cursor.position else { continue };
            let limit = plan.find(&fan.stage.node).and_then(|node| node.timeout);
            let Some(limit) = limit else { continue };
            let key = Key::of(branch, &fan.stage);
            if self.0.contains_key(&key) {
                continue;
            }
            let ended = stop.child_token();
            self.0.insert(key.clone(), ended.clone().drop_guard());
            in_flight.push(async move {
                tokio::select! {
                    () = sleep(limit) => (key, AttemptResult::Overdue(limit)),
                    () = ended.cancelled() => (key, AttemptResult::Canceled),
                }
            });
        }
    }
}
