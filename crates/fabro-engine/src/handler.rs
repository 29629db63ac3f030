//! What the engine asks of the code that runs a stage, and what it gives it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_context::Context;
use fabro_events::{CreatedRun, EventBody, PauseReason};
use fabro_graph::Node;
use fabro_store::{InboxId, Store};
use fabro_types::{Failure, Fidelity, Outcome, RunId};
use imbl::{OrdMap, Vector};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::Plan;
use crate::cursor::{ActiveStage, StageRecord};
use crate::machine::Finished;

/// Runs a stage. The engine knows nothing else about commands, models or people.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Runs one attempt of a stage to its end. When `stage.cancel` fires it ends what it began
    /// and returns soon; dropping the future must leave nothing behind.
    async fn execute(&self, stage: Stage) -> StageEnd;
}

/// How an attempt ended.
#[derive(Debug)]
pub enum StageEnd {
    /// It came to something.
    Finished(Box<Finished>),
    /// It needs an answer that nobody here can give, or a larger budget; it runs again when there
    /// is one.
    Suspended(PauseReason),
    /// What it did cannot be recorded, for the disk is full, say. The driver ends; the stage runs
    /// again when the run is resumed.
    CannotRecord {
        /// What happened, with what to do.
        message: String,
    },
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
    /// How the run began.
    pub run: Arc<CreatedRun>,
    /// The workflow.
    pub plan: Arc<Plan>,
    /// Which node, visit, attempt and rank.
    pub at: ActiveStage,
    /// The branch; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// The context, as this stage's line sees it. Large values are references.
    pub context: Context,
    /// Completed stages of this line, oldest first.
    pub history: Vector<Arc<StageRecord>>,
    /// Model turns used so far on this line, by node.
    pub turns: OrdMap<Arc<str>, u32>,
    /// The place in the log of the last rewind, 0 without one: a stage of the same node and visit
    /// may have run before it.
    pub rewound_seq: u64,
    /// What the run may still spend, in US dollars; `None` without a limit.
    pub budget: Option<f64>,
    /// The limit was given on resuming, and takes the place of a sub-workflow's own too.
    pub budget_lifted: bool,
    /// When this attempt began, in milliseconds since 1970.
    pub started_ms: i64,
    /// The run's directory.
    pub run_dir: PathBuf,
    /// Where references lead, and where a sub-workflow keeps its log.
    pub store: Arc<dyn Store>,
    /// Fires when the attempt is to end.
    pub cancel: CancellationToken,
    /// Takes events into the log.
    pub reporter: Reporter,
    /// Brings answers and steering.
    pub mailbox: Mailbox,
}

impl Stage {
    /// The node.
    pub fn node(&self) -> &Node {
        match self.plan.node(&self.at.node) {
            Some((_, node)) => node,
            // A stage is only ever made for a node of its plan.
            None => self.plan.start(),
        }
    }

    /// How much the preamble tells.
    pub fn fidelity(&self) -> Fidelity {
        self.at.fidelity
    }

    /// The directory of this stage's files: `stages/{rank}-{node}@{visit}` in the run's directory.
    pub fn dir(&self) -> PathBuf {
        stage_dir(&self.run_dir, self.at.rank, &self.at.node, self.at.visit)
    }
}

/// Where the files of a stage are.
pub fn stage_dir(run_dir: &std::path::Path, rank: u32, node: &str, visit: u32) -> PathBuf {
    run_dir.join("stages").join(format!("{rank:03}-{node}@{visit}"))
}

/// Takes events of a stage into the run's log.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub(crate) branch: Arc<str>,
    pub(crate) reports: mpsc::UnboundedSender<Report>,
}

/// An event on its way to the log.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) branch: Arc<str>,
    pub(crate) body: EventBody,
    pub(crate) letter: Option<InboxId>,
    pub(crate) done: oneshot::Sender<Result<(), ReportError>>,
}

/// Why an event did not get into the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The gate has been answered by somebody else; the mailbox has that answer.
    #[error("the gate has been answered already")]
    AlreadyAnswered,
    /// The run is ending.
    #[error("the run is ending")]
    Ending,
}

impl Reporter {
    /// Reports an event; it is on stable storage when this returns.
    pub async fn report(&self, body: EventBody) -> Result<(), ReportError> {
        self.send(body, None).await
    }

    /// Reports the answer to a gate; `letter` is the message that brought it, if one did.
    pub async fn answered(
        &self,
        body: EventBody,
        letter: Option<InboxId>,
    ) -> Result<(), ReportError> {
        self.send(body, letter).await
    }

    /// Reports an event that takes a letter off the inbox without answering the gate: the gate
    /// asked again, because the letter meant nothing to it.
    pub async fn refused(&self, body: EventBody, letter: InboxId) -> Result<(), ReportError> {
        self.send(body, Some(letter)).await
    }

    async fn send(&self, body: EventBody, letter: Option<InboxId>) -> Result<(), ReportError> {
        let (done, committed) = oneshot::channel();
        let report = Report { branch: Arc::clone(&self.branch), body, letter, done };
        self.reports.send(report).map_err(|_| ReportError::Ending)?;
        committed.await.map_err(|_| ReportError::Ending)?
    }
}

/// Something that was said to a stage from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Letter {
    /// An answer to its gate.
    Answer {
        /// The message, to be consumed with the answer.
        id: InboxId,
        /// An option's key or label, or free text.
        choice: String,
        /// Where it comes from.
        source: String,
    },
}

/// Brings what is said to a stage from outside.
#[derive(Debug)]
pub struct Mailbox {
    pub(crate) letters: mpsc::UnboundedReceiver<Letter>,
}

impl Mailbox {
    /// The next letter; waits for one. `None` when the run is ending.
    pub async fn next(&mut self) -> Option<Letter> {
        self.letters.recv().await
    }

    /// A letter that is already there.
    pub fn try_next(&mut self) -> Option<Letter> {
        self.letters.try_recv().ok()
    }
}
