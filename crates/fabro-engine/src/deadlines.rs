//! The time limits of the fan-outs at work. A driver that takes a run up again begins them anew.

use std::collections::BTreeMap;
use std::time::Duration;

use fabro_types::BranchPath;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::attempt::{Ended, Key};
use crate::cursor::Position;
use crate::drive::InFlight;
use crate::state::RunState;
use crate::{Plan, RunOptions};

/// One for each fan-out at work that has a limit.
#[derive(Default)]
pub(crate) struct Deadlines(BTreeMap<Key, Deadline>);

struct Deadline {
    limit: Duration,
    /// Ends the wait when it is dropped.
    _wait: DropGuard,
}

impl Deadlines {
    /// Begins to wait for the limits of fan-outs that have begun, and gives up those that are over.
    /// A plan without delays is not waited for: see [`first`](Self::first).
    pub(crate) fn watch(
        &mut self,
        state: &RunState,
        plan: &Plan,
        options: &RunOptions,
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
            let wait = given_up.clone().drop_guard();
            self.0.insert(key.clone(), Deadline { limit, _wait: wait });
            if options.has_delays() {
                in_flight.push(Box::pin(async move {
                    tokio::select! {
                        () = sleep(limit) => (key, Ended::Overdue(limit)),
                        () = given_up.cancelled() => (key, Ended::Canceled),
                    }
                }));
            }
        }
    }

    /// The one that the plan says is over first when nothing else can happen.
    pub(crate) fn first(&self, options: &RunOptions) -> Option<(&Key, Duration)> {
        let over = self.0.iter().filter_map(|it| Some((options.overdue_rank(&name(it.0))?, it)));
        over.min_by_key(|(at, _)| *at).map(|(_, (key, deadline))| (key, deadline.limit))
    }
}

/// What the names of its branches begin with.
fn name(Key { branch, node, visit, attempt }: &Key) -> String {
    BranchPath::new(branch).fan_out(node, *visit, *attempt)
}

/// Whether this attempt of a fan-out is not over.
pub(crate) fn is_at_work(key: &Key, state: &RunState) -> bool {
    match state.cursors.get(&key.branch).map(|cursor| &cursor.position) {
        Some(Position::Fanned(fan)) => Key::of(&key.branch, &fan.stage) == *key,
        _ => false,
    }
}
