//! The attempts and timers that are running. They are polled whenever the driver waits for
//! anything: a slow commit stops no stream, no timeout and no cancellation.

use std::collections::VecDeque;
use std::pin::{Pin, pin};

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::attempt::AttemptResult;
use crate::key::Key;

/// Which attempt ended, and how.
pub(crate) type Done = (Key, AttemptResult);

#[derive(Default)]
pub(crate) struct InFlight {
    running: FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>,
    /// Those that ended while the driver waited for something else, in the order they ended.
    done: VecDeque<Done>,
}

impl InFlight {
    pub(crate) fn push(&self, attempt: impl Future<Output = Done> + Send + 'static) {
        self.running.push(Box::pin(attempt));
    }

    /// Waits for the next end; `None` when nothing is running.
    pub(crate) async fn next(&mut self) -> Option<Done> {
        match self.done.pop_front() {
            Some(done) => Some(done),
            None => self.running.next().await,
        }
    }

    /// The next end that needs no waiting.
    pub(crate) fn try_next(&mut self) -> Option<Done> {
        self.next().now_or_never().flatten()
    }

    /// The next one that ended while the driver waited for something else.
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Waits for `work` while everything that is running continues.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                Some(done) = self.running.next() => self.done.push_back(done),
            }
        }
    }
}
