//! One attempt of a stage, with its delay, its time limit and its watchdog.

use std::sync::Arc;
use std::time::Duration;

use fabro_events::PauseReason;
use fabro_graph::NodeKind;
use fabro_types::{Failure, FailureClass, Outcome, Status};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::cursor::{ActiveStage, Position};
use crate::drive::Clock;
use crate::handler::{Handler, Stage, StageEnd};
use crate::input::Finished;
use crate::state::RunState;

/// How long a handler may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(10);

/// One attempt of one stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) branch: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) visit: u32,
    pub(crate) attempt: u32,
}

impl Key {
    pub(crate) fn of(branch: &Arc<str>, at: &ActiveStage) -> Self {
        Self {
            branch: Arc::clone(branch),
            node: Arc::clone(&at.node),
            visit: at.visit,
            attempt: at.attempt,
        }
    }

    pub(crate) fn is_current(&self, state: &RunState) -> bool {
        match state.cursors.get(&self.branch).map(|cursor| &cursor.position) {
            Some(Position::Active(at)) => Self::of(&self.branch, at) == *self,
            _ => false,
        }
    }
}

pub(crate) struct Attempt {
    pub(crate) stage: Stage,
    pub(crate) delay: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) silence: Option<Duration>,
    pub(crate) activity: Arc<Notify>,
}

pub(crate) enum Ended {
    Finished(Box<Finished>),
    Suspended(PauseReason),
    CannotRecord(String),
    /// It was called off before it began.
    Canceled,
    /// It is a fan-out that may begin again: its stages are what is run.
    Due,
    /// It is a fan-out that has had this long, which is all it may.
    Overdue(Duration),
}

impl Attempt {
    pub(crate) async fn run(mut self, handler: &dyn Handler, clock: &dyn Clock) -> Ended {
        let cancel = self.stage.cancel.clone();
        if !self.delay.is_zero() {
            tokio::select! {
                () = sleep(self.delay) => {}
                () = cancel.cancelled() => return Ended::Canceled,
            }
        }
        if self.stage.spec().kind == NodeKind::Parallel {
            return Ended::Due;
        }
        let started_ms = clock.now_ms();
        self.stage.started_ms = started_ms;
        let mut work = handler.execute(self.stage);
        let limit = tokio::select! {
            biased;
            end = &mut work => return finish(Some(end), started_ms, clock, None),
            () = over(self.timeout) => time_limit(self.timeout.unwrap_or_default()),
            () = stalled(self.silence, &self.activity) => silence(self.silence),
        };
        cancel.cancel();
        let end = timeout(GRACE, work).await.ok();
        finish(end, started_ms, clock, Some(limit))
    }
}

async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

async fn stalled(limit: Option<Duration>, activity: &Notify) {
    let Some(limit) = limit else { return std::future::pending().await };
    while timeout(limit, activity.notified()).await.is_ok() {}
}

/// The failure of what took longer than it may.
pub(crate) fn time_limit(limit: Duration) -> Failure {
    Failure::new(FailureClass::TransientInfra, format!("timed out after {limit:?}"))
}

fn silence(limit: Option<Duration>) -> Failure {
    let limit = limit.unwrap_or_default();
    Failure::new(FailureClass::TransientInfra, format!("no sign of life for {limit:?}"))
}

/// What a handler came to, if it ended at all; `limit` is the failure that ended it early.
fn finish(
    end: Option<StageEnd>,
    started_ms: i64,
    clock: &dyn Clock,
    limit: Option<Failure>,
) -> Ended {
    let mut finished = match (end, &limit) {
        (Some(StageEnd::Finished(finished)), _) => finished,
        (Some(StageEnd::CannotRecord { message }), _) => return Ended::CannotRecord(message),
        (Some(StageEnd::Suspended(reason)), None) => return Ended::Suspended(reason),
        (Some(StageEnd::Suspended(_)) | None, _) => Box::new(Outcome::succeeded().into()),
    };
    if let Some(failure) = limit {
        finished.outcome.status = Status::Failed;
        finished.outcome.failure = Some(failure);
    }
    let took = clock.now_ms().saturating_sub(started_ms);
    finished.outcome.duration_ms = u64::try_from(took).unwrap_or_default();
    Ended::Finished(finished)
}
