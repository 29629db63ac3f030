//! One attempt of a stage, with its delay, its timeout and its watchdog.

use std::sync::Arc;
use std::time::Duration;

use fabro_events::PauseReason;
use fabro_types::{Failure, FailureClass, NodeKind, Outcome, Status};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::clock::{Clock, duration_ms};
use crate::handler::{Handler, Stage, StageEnd};
use crate::input::Finished;
use crate::retry::timed_out;

/// How long a handler may take to end after it was canceled.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) struct Attempt {
    pub(crate) stage: Stage,
    pub(crate) delay: Duration,
    pub(crate) timeout: Option<Duration>,
    /// How long it may show no activity.
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) activity: Arc<Notify>,
}

pub(crate) enum AttemptResult {
    Finished(Box<Finished>),
    Suspended(PauseReason),
    CannotRecord(String),
    /// It was canceled before it began.
    Canceled,
    /// It is a fan-out whose retry delay has passed: its branches may start.
    Due,
    /// It is a fan-out that has reached this timeout.
    Overdue(Duration),
}

impl Attempt {
    #[expect(clippy::expect_used, reason = "no semaphore of a handler is ever closed")]
    pub(crate) async fn run(mut self, handler: &dyn Handler, clock: &dyn Clock) -> AttemptResult {
        let cancel = self.stage.cancel.clone();
        if !self.delay.is_zero() {
            tokio::select! {
                () = sleep(self.delay) => {}
                () = cancel.cancelled() => return AttemptResult::Canceled,
            }
        }
        let kind = self.stage.spec().kind;
        if kind == NodeKind::Parallel {
            return AttemptResult::Due;
        }
        if self.stage.spec().llm().is_some() {
            tokio::select! {
                () = self.stage.budget.wait_until_known() => {}
                () = cancel.cancelled() => return AttemptResult::Canceled,
            }
        }
        let _permit = match handler.places(kind) {
            None => None,
            Some(semaphore) => tokio::select! {
                permit = semaphore.acquire_owned() => Some(permit.expect("it is never closed")),
                () = cancel.cancelled() => return AttemptResult::Canceled,
            },
        };
        self.stage.started_ms = clock.now_ms();
        let started_ms = clock.steady_ms();
        let mut work = handler.execute(self.stage);
        let failure = tokio::select! {
            biased;
            end = &mut work => return finish(end, started_ms, clock),
            limit = elapsed(self.timeout) => timed_out(limit),
            limit = stalled(self.stall_timeout, &self.activity) => {
                let message = format!("no activity for {limit:?}");
                let remedy = "raise the graph's `stall_timeout` if that is normal here";
                Failure {
                    details: Some(remedy.to_owned()),
                    ..Failure::new(FailureClass::TransientInfra, message)
                }
            }
        };
        cancel.cancel();
        let mut finished = match timeout(GRACE, work).await {
            Ok(StageEnd::Finished(finished)) if finished.in_time => {
                return with_duration(finished, started_ms, clock);
            }
            Ok(StageEnd::Finished(finished)) => finished,
            Ok(StageEnd::CannotRecord { message }) => return AttemptResult::CannotRecord(message),
            Ok(StageEnd::Suspended(_)) | Err(_) => {
                Box::new(Outcome::failed(failure.clone()).into())
            }
        };
        finished.outcome.status = Status::Failed;
        finished.outcome.failure = Some(failure);
        with_duration(finished, started_ms, clock)
    }
}

/// Waits for the `timeout` of a stage, or forever without one, and returns it.
async fn elapsed(limit: Option<Duration>) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    sleep(limit).await;
    limit
}

/// The `stall_timeout` watchdog: waits until there has been no activity for so long, and returns how long.
async fn stalled(limit: Option<Duration>, activity: &Notify) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    while timeout(limit, activity.notified()).await.is_ok() {}
    limit
}

/// The result of an attempt that its handler ended in time.
fn finish(end: StageEnd, started_ms: i64, clock: &dyn Clock) -> AttemptResult {
    match end {
        StageEnd::Finished(finished) => match &finished.outcome.failure {
            Some(failure) if failure.damage => AttemptResult::CannotRecord(failure.message.clone()),
            _ => with_duration(finished, started_ms, clock),
        },
        StageEnd::CannotRecord { message } => AttemptResult::CannotRecord(message),
        StageEnd::Suspended(reason) => AttemptResult::Suspended(reason),
    }
}

fn with_duration(mut finished: Box<Finished>, started_ms: i64, clock: &dyn Clock) -> AttemptResult {
    finished.outcome.duration_ms = duration_ms(started_ms, clock.steady_ms());
    AttemptResult::Finished(finished)
}
