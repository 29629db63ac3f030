//! The time limits of the fan-outs at work. A driver that takes a run up again begins them anew.

use std::collections::BTreeMap;

use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Plan;
use crate::attempt::{Ended, Key};
use crate::cursor::Position;
use crate::drive::InFlight;
use crate::state::RunState;

/// One for each fan-out at work that has a limit.
#[derive(Default)]
pub(crate) struct Deadlines(
    /// The wait ends when its guard is dropped.
    BTreeMap<Key, DropGuard>,
);

impl Deadlines {
    /// Begins to wait for the limits of fan-outs that have begun, and gives up those that are over.
    pub(crate) fn watch(
        &mut self,
        state: &RunState,
        plan: &Plan,
        stop: &CancellationToken,
        in_flight: &InFlight,
    ) {
        self.0.retain(|key, _| is_at_work(key, state));
        for (branch, cursor) in &state.cursors {
            let Position::Fanned(fan) = &cursor.position else { continue };
            let limit = plan.find(&fan.stage.node).and_then(|node| node.timeout);
            let Some(limit) = limit else { continue };
            let key = Key::of(branch, &fan.stage);
            if self.0.contains_key(&key) {
                continue;
            }
            let given_up = stop.child_token();
            self.0.insert(key.clone(), given_up.clone().drop_guard());
            in_flight.push(Box::pin(async move {
                tokio::select! {
                    () = sleep(limit) => (key, Ended::Overdue(limit)),
                    () = given_up.cancelled() => (key, Ended::Canceled),
                }
            }));
        }
    }
}

/// Whether this attempt of a fan-out is not over.
pub(crate) fn is_at_work(key: &Key, state: &RunState) -> bool {
    match state.cursors.get(&key.branch).map(|cursor| &cursor.position) {
        Some(Position::Fanned(fan)) => Key::of(&key.branch, &fan.stage) == *key,
        _ => false,
    }
}
