//! What the engine asks of the code that runs a stage, and what it gives it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_context::Context;
use fabro_events::{
    BranchWorktrees, CreatedRun, Event, EventBody, Note, PauseReason, RunWorktree, StageFailure,
};
use fabro_graph::Node;
use fabro_plan::NodeSpec;
use fabro_store::{InboxId, Message, Store, StoreError};
use fabro_types::{Failure, NodeKind, Outcome, RunId};
use imbl::{OrdMap, Vector};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::active_stage::ActiveStage;
use crate::budget::StageBudget;
use crate::cursor::StageRecord;
use crate::input::Finished;
use crate::key::Key;
use crate::worktrees::{BRANCH_WORKTREES, LineWorktree, branch_prefix, git_branch};
use crate::{NewBlob, Plan, pause_rule};

/// Runs a stage. The engine knows nothing else about commands, models or people.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Runs one attempt of a stage to its end. When `stage.cancel` fires it ends what it began
    /// and returns soon; dropping the future must leave nothing behind.
    async fn execute(&self, stage: Stage) -> StageEnd;

    /// The places of stages of this kind: a stage waits for one before its time begins, and leaves it
    /// when it ends. `None` when any number may run at once.
    fn places(&self, kind: NodeKind) -> Option<Arc<Semaphore>> {
        let _ = kind;
        None
    }
}

/// How an attempt ended.
#[derive(Debug)]
pub enum StageEnd {
    /// With a result.
    Finished(Box<Finished>),
    /// It needs an answer from outside, or a larger budget; it runs again when there is one.
    Suspended(PauseReason),
    /// What it did cannot be recorded, for the disk is full, say. The driver ends; the stage runs
    /// again when the run is resumed.
    CannotRecord {
        /// What happened, with what to do.
        message: String,
    },
}

impl From<StoreError> for StageEnd {
    fn from(error: StoreError) -> Self {
        Self::CannotRecord { message: error.to_string() }
    }
}

impl From<Finished> for StageEnd {
    fn from(finished: Finished) -> Self {
        Self::Finished(Box::new(finished))
    }
}

impl From<Outcome> for StageEnd {
    fn from(outcome: Outcome) -> Self {
        Finished::from(outcome).into()
    }
}

impl From<Failure> for StageEnd {
    fn from(failure: Failure) -> Self {
        Outcome::failed(failure).into()
    }
}

/// One attempt of a stage, with all that a handler may look at.
pub struct Stage {
    /// The run.
    pub run_id: RunId,
    /// How the run began; the working directory is that of this stage.
    pub run: Arc<CreatedRun>,
    /// The workflow.
    pub plan: Arc<Plan>,
    /// Which node, visit, attempt and rank.
    pub at: ActiveStage,
    /// The branch; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// The git worktree that it works in; `None` in a run without any.
    pub worktree: Option<LineWorktree>,
    /// The context, as this stage's line sees it. Large values are references.
    pub context: Context,
    /// Completed stages of this line, oldest first.
    pub history: Vector<Arc<StageRecord>>,
    /// For a human gate: the [failures](crate::Cursor::failures_before) before it.
    pub failures_before: Vec<Arc<StageFailure>>,
    /// Model turns used so far on this line, by node.
    pub turns: OrdMap<Arc<str>, u32>,
    /// The budget that the stage shares with concurrent stages.
    pub budget: StageBudget,
    /// A spending limit given on resume; it also replaces the limit of a sub-workflow.
    pub lifted_max_cost: Option<f64>,
    /// How long ago this attempt began according to the log, maybe under an earlier driver.
    pub begun: Duration,
    /// When this attempt began, in milliseconds since 1970.
    pub started_ms: i64,
    /// The run's directory.
    pub run_dir: PathBuf,
    /// Where references lead, and where a sub-workflow keeps its log.
    pub store: Arc<dyn Store>,
    /// Fires when the attempt is to end.
    pub cancel: CancellationToken,
    /// Fires before that when it is the driver that ends, and the attempt runs again once the run is
    /// resumed. Where it has not fired, the result is no longer needed.
    pub stop: CancellationToken,
    /// Takes events into the log.
    pub reporter: Reporter,
    /// Answers to its gate, and steering of its agent; closed when the run is ending. A message is
    /// consumed by the [record](Reporter::record) that takes account of it.
    pub messages: mpsc::UnboundedReceiver<(InboxId, Message)>,
}

impl Stage {
    /// The node as written. What its attributes mean is in [`spec`](Self::spec).
    ///
    /// # Panics
    /// Never: a stage is only made for a node of its plan.
    #[expect(clippy::expect_used, reason = "a stage is only made for a node of its plan")]
    pub fn node(&self) -> &Node {
        let (_, node) = self.plan.node(&self.at.node).expect("a stage is of a node of its plan");
        node
    }

    /// The node as the plan has it: every attribute with its type and defaults.
    ///
    /// # Panics
    /// Never: a stage is only made for a node of its plan.
    #[expect(clippy::expect_used, reason = "a stage is only made for a node of its plan")]
    pub fn spec(&self) -> &NodeSpec {
        self.plan.find(&self.at.node).expect("a stage is of a node of its plan")
    }

    /// Whether a failure because no model is available pauses the run; otherwise it is a failure of
    /// the stage like any other.
    pub fn pauses_when_unavailable(&self) -> bool {
        let node = self.plan.node(&self.at.node);
        node.is_some_and(|(ix, _)| pause_rule::pauses(&self.plan, ix, self.branch.is_some()))
    }

    /// The directory of this stage's files: `stages/{rank}-{node}@{visit}` in the run's directory.
    pub fn dir(&self) -> PathBuf {
        stage_dir(&self.run_dir, self.at.rank, &self.at.node, self.at.visit)
    }

    /// The git worktree of `child`, the run of this stage's sub-workflow: that of the stage, with a place of
    /// their own for the worktrees of its branches. `None` where the stage has none.
    pub fn sub_workflow_worktree(&self, child: RunId) -> Option<RunWorktree> {
        let at = self.worktree.as_ref()?;
        let record = self.run.worktree.as_ref()?;
        let dir = match &record.branches {
            Some(branches) => PathBuf::from(&branches.dir),
            None => self.run_dir.join(BRANCH_WORKTREES),
        };
        Some(RunWorktree {
            base: at.head.to_string(),
            branch: git_branch(self.run_id, record, &at.line),
            branches: Some(BranchWorktrees {
                dir: dir.join(child.to_string()).to_string_lossy().into_owned(),
                prefix: format!("{}/{child}", branch_prefix(self.run_id, record)),
            }),
            ..record.clone()
        })
    }

    /// What was recorded of this attempt before: nothing, unless the driver that ran it died, or
    /// the run was paused meanwhile.
    pub async fn recorded(&self) -> Result<Vec<Event>, StoreError> {
        if !self.at.talked {
            return Ok(Vec::new());
        }
        let branch = self.branch.as_deref().unwrap_or_default();
        self.read(self.at.since_seq, u64::MAX, (branch, &self.at.node, self.at.visit)).await
    }

    /// What was recorded of the last attempt of an earlier stage of this line.
    pub async fn recorded_by(&self, record: &StageRecord) -> Result<Vec<Event>, StoreError> {
        let stage = (&*record.branch, &*record.node, record.visit);
        self.read(record.since_seq, record.until_seq, stage).await
    }

    async fn read(
        &self,
        after_seq: u64,
        until_seq: u64,
        (branch, node, visit): (&str, &str, u32),
    ) -> Result<Vec<Event>, StoreError> {
        let mut events = Vec::new();
        let mut after = after_seq;
        while after < until_seq {
            // No more than there can be of it: many stages of a thread are read one by one.
            let left = usize::try_from(until_seq - after).unwrap_or(PAGE);
            let page = self.store.read(self.run_id, after, left.min(PAGE)).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            events.extend(page.into_iter().filter(|event| {
                let entry = &event.entry;
                let is_cut = matches!(entry.body, EventBody::CheckpointForked(_));
                let is_own = entry.node_id.as_deref() == Some(node)
                    && entry.visit == Some(visit)
                    && entry.branch.as_deref().unwrap_or_default() == branch;
                event.seq <= until_seq && (is_own || is_cut)
            }));
        }
        // A rewind may have taken some of it back.
        let kept = crate::checkpoint::effective(&events).into_iter().cloned().collect();
        Ok(kept)
    }
}

/// How many events are read from the log at a time.
const PAGE: usize = 1_000;

/// Where the files of a stage are.
pub fn stage_dir(run_dir: &std::path::Path, rank: u32, node: &str, visit: u32) -> PathBuf {
    run_dir.join("stages").join(format!("{rank:03}-{node}@{visit}"))
}

/// Takes events of a stage into the run's log.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub(crate) key: Key,
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    pub(crate) activity: Arc<tokio::sync::Notify>,
}

/// An event on its way to the log.
#[derive(Debug)]
pub(crate) struct Report {
    /// The attempt that sent it: what arrives after its end is refused.
    pub(crate) key: Key,
    pub(crate) notes: Vec<Note>,
    pub(crate) blobs: Vec<NewBlob>,
    pub(crate) consumed: Vec<InboxId>,
    pub(crate) done: oneshot::Sender<Result<(), ReportError>>,
}

/// Why an event did not get into the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The gate has been answered by another process; that answer arrives as a message.
    #[error("the gate has been answered already")]
    AlreadyAnswered,
    /// The attempt, its branch or the run has ended or is ending.
    #[error("the stage is ending")]
    Ending,
}

impl Reporter {
    /// Reports an event; it is on stable storage when this returns.
    pub async fn report(&self, body: EventBody) -> Result<(), ReportError> {
        self.record(vec![body.into()], Vec::new(), Vec::new()).await
    }

    /// Reports several events, with the blobs they name, in one record of the log; `consumed` are the
    /// messages that they take account of.
    pub async fn record(
        &self,
        notes: Vec<Note>,
        blobs: Vec<NewBlob>,
        consumed: Vec<InboxId>,
    ) -> Result<(), ReportError> {
        let (done, committed) = oneshot::channel();
        let report = Report { key: self.key.clone(), notes, blobs, consumed, done };
        self.reports.send(report).map_err(|_| ReportError::Ending)?;
        committed.await.map_err(|_| ReportError::Ending)?
    }

    /// Activity that is no event: more of an answer has arrived.
    pub fn touch(&self) {
        self.activity.notify_one();
    }
}
