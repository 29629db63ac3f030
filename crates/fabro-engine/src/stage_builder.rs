use std::path::PathBuf;
use std::sync::Arc;

use fabro_context::Context;
use fabro_events::EventBody;
use fabro_store::{MemoryStore, Store};
use fabro_types::{Fidelity, RunId, Usage};
use imbl::{OrdMap, Vector};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cursor::ActiveStage;
use crate::handler::{Mailbox, Report, Reporter, Stage};
use crate::{Machine, NewRun, Plan, begin};

/// A stage of its own, for a unit test of a handler: the first attempt of the first visit of a node,
/// in a run that has just begun. What the handler reports is accepted and forgotten. Build it inside
/// of a tokio runtime.
pub struct StageBuilder {
    plan: Arc<Plan>,
    node: Arc<str>,
    new: NewRun,
    context: Context,
    store: Arc<dyn Store>,
    run_dir: PathBuf,
}

impl Stage {
    /// A stage of this node, for a unit test of a handler.
    pub fn builder(plan: &Arc<Plan>, node: &str) -> StageBuilder {
        StageBuilder {
            plan: Arc::clone(plan),
            node: node.into(),
            new: NewRun::default(),
            context: Context::new(),
            store: Arc::new(MemoryStore::default()),
            run_dir: std::env::temp_dir(),
        }
    }
}

impl StageBuilder {
    /// Sets a key of the context.
    #[must_use]
    pub fn context(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.context.set(key, value.into());
        self
    }

    /// How the run began: goal, inputs, working directory.
    #[must_use]
    pub fn run(self, new: NewRun) -> Self {
        Self { new, ..self }
    }

    /// Where blobs and the log are; in memory without it.
    #[must_use]
    pub fn store(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    /// The run's directory; that of temporary files without it.
    #[must_use]
    pub fn run_dir(self, run_dir: PathBuf) -> Self {
        Self { run_dir, ..self }
    }

    /// The stage.
    ///
    /// # Panics
    /// When the plan has no such node.
    #[expect(clippy::expect_used, reason = "a test names a node of its own plan")]
    pub fn build(self) -> Stage {
        let Self { plan, node, new, context, store, run_dir } = self;
        let spec = plan.find(&node).expect("the plan has the node of the test");
        let run_id = RunId::from_parts(0, 1);
        let created = begin(run_id, 0, &plan, new).events.into_iter().next();
        let run = created.and_then(|event| match event.entry.body {
            EventBody::RunCreated(created) => Some(created),
            _ => None,
        });
        let at = ActiveStage {
            node: Arc::clone(&node),
            handler: spec.kind,
            visit: 1,
            rank: 1,
            started_ms: 0,
            attempt: 1,
            delay_ms: 0,
            fidelity: Fidelity::default(),
            thread_id: None,
            gate_asked_ms: None,
            gate_answer: None,
            since_seq: 0,
            talked: false,
            spent: Usage::default(),
        };
        let cancel = CancellationToken::new();
        Stage {
            run_id,
            run: run.expect("a run begins with the event that creates it"),
            at,
            branch: None,
            context,
            history: Vector::new(),
            turns: OrdMap::new(),
            rewound_seq: 0,
            budget: None,
            tokens_left: None,
            budget_lifted: false,
            started_ms: 0,
            run_dir,
            store,
            stop: CancellationToken::new(),
            cancel,
            reporter: discarding_reporter(),
            mailbox: empty_mailbox(),
            plan,
        }
    }
}

impl Machine {
    /// The stage that is running on a branch, without a driver: what a handler reports is accepted
    /// and discarded. For a replay, which prepares requests and compares them. Call it inside of a
    /// tokio runtime. `None` when no stage is running there.
    pub fn detached_stage(
        &self,
        branch: &str,
        store: Arc<dyn Store>,
        run_dir: PathBuf,
    ) -> Option<Stage> {
        let state = self.state();
        let cursor = state.cursors.get(branch)?;
        Some(Stage {
            run_id: state.run_id,
            run: state.created.clone()?,
            at: self.active_stage(branch)?.clone(),
            branch: (!branch.is_empty()).then(|| Arc::clone(&cursor.branch)),
            context: cursor.context.clone(),
            history: cursor.history.clone(),
            turns: cursor.turns.clone(),
            rewound_seq: state.rewound_seq,
            budget: self.budget(),
            tokens_left: self.tokens_left(),
            budget_lifted: state.tokens_lifted,
            started_ms: self.now_ms,
            run_dir,
            store,
            cancel: CancellationToken::new(),
            stop: CancellationToken::new(),
            reporter: discarding_reporter(),
            mailbox: empty_mailbox(),
            plan: Arc::clone(self.plan()),
        })
    }
}

/// Accepts every report, and records nothing.
fn discarding_reporter() -> Reporter {
    let (reports, mut inbound) = mpsc::unbounded_channel::<Report>();
    tokio::spawn(async move {
        while let Some(report) = inbound.recv().await {
            // The handler may have stopped waiting.
            let _ = report.done.send(Ok(()));
        }
    });
    let activity = Arc::new(tokio::sync::Notify::new());
    Reporter { branch: Arc::from(""), reports, activity }
}

fn empty_mailbox() -> Mailbox {
    let (_, letters) = mpsc::unbounded_channel();
    Mailbox { letters }
}
