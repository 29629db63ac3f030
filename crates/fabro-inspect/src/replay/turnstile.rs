//! Lets stages go on in the order in which the record says that they did.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use crate::replay::record::Key;

/// How often the driver gets a chance to start another stage before the first in line goes on.
const PATIENCE: u32 = 64;

/// A place where the recorded run was left, and resumed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Resumption {
    /// The place in the log.
    pub(crate) seq: u64,
    pub(crate) max_cost: Option<f64>,
}

/// Stages wait here for the place in the record at which they did what they are about to do. The
/// one with the earliest goes on when all that are at work wait. Before that, the run is stopped
/// where the recorded one was.
pub(crate) struct Turnstile {
    state: Mutex<State>,
    moved: Notify,
}

#[derive(Default)]
struct State {
    resumptions: VecDeque<Resumption>,
    stop: CancellationToken,
    /// Stages at work.
    inside: usize,
    /// What they wait for.
    waiting: BTreeMap<u64, Key>,
    /// Counts whatever happens.
    moves: u64,
}

impl Turnstile {
    pub(crate) fn new(resumptions: impl IntoIterator<Item = Resumption>) -> Self {
        let state = State { resumptions: resumptions.into_iter().collect(), ..State::default() };
        Self { state: Mutex::new(state), moved: Notify::new() }
    }

    /// A new driver begins; gives what stops it.
    pub(crate) fn open(&self) -> CancellationToken {
        let mut state = self.state();
        state.stop = CancellationToken::new();
        state.stop.clone()
    }

    /// The next place at which the run is resumed, each once.
    pub(crate) fn resumption(&self) -> Option<Resumption> {
        self.state().resumptions.pop_front()
    }

    /// A stage begins to work, until what this gives is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Inside {
        self.change(|state| state.inside += 1);
        Inside(Arc::clone(self))
    }

    /// Waits until it is this event's turn.
    pub(crate) async fn wait(&self, key: &Key, seq: u64) {
        self.change(|state| state.waiting.insert(seq, key.clone()));
        let _waiting = Waiting { turnstile: self, seq };
        let (mut seen, mut patience) = (0, PATIENCE);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // From here on no move is missed.
            moved.as_mut().enable();
            let turn = self.state().turn(seq);
            let Some((count, stop)) = turn else {
                patience = PATIENCE;
                moved.await;
                continue;
            };
            if count != seen {
                (seen, patience) = (count, PATIENCE);
            }
            if patience > 0 {
                patience -= 1;
                yield_now().await;
                continue;
            }
            let Some(stop) = stop else { return };
            stop.cancel();
            pending::<()>().await;
        }
    }

    /// Waits only if the recorded run was left before this event.
    pub(crate) async fn pass(&self, key: &Key, seq: u64) {
        let is_behind = self.state().resumptions.front().is_some_and(|next| next.seq < seq);
        if is_behind {
            self.wait(key, seq).await;
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        {
            let mut state = self.state();
            change(&mut state);
            state.moves += 1;
        }
        self.moved.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether this one would be the next: how much has happened by now, and what stops the run if
    /// it was left before.
    fn turn(&self, seq: u64) -> Option<(u64, Option<CancellationToken>)> {
        let is_first = self.waiting.keys().next() == Some(&seq);
        let stages: BTreeSet<&Key> = self.waiting.values().collect();
        let all_wait = stages.len() >= self.inside;
        let was_left = self.resumptions.front().is_some_and(|next| next.seq < seq);
        (is_first && all_wait).then(|| (self.moves, was_left.then(|| self.stop.clone())))
    }
}

/// A stage at work.
pub(crate) struct Inside(Arc<Turnstile>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.change(|state| state.inside -= 1);
    }
}

struct Waiting<'a> {
    turnstile: &'a Turnstile,
    seq: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turnstile.change(|state| state.waiting.remove(&self.seq));
    }
}
