//! How stages are made: for a driver, for a replay, and for unit tests of handlers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fabro_context::Context;
use fabro_events::{Entry, Event, EventBody};
use fabro_store::{InboxId, MemoryStore, Message, Store};
use fabro_types::{Fidelity, NodeKind, RunId};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, StageBudget};
use crate::clock::duration_ms;
use crate::handler::{Report, Reporter, Stage};
use crate::inconsistent::Inconsistent;
use crate::key::Key;
use crate::worktrees::work_dir_of;
use crate::{MAIN, Machine, NewRun, Plan, RunState, begin};

/// What connects a stage to its driver.
pub(crate) struct Connections {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run_dir: PathBuf,
    pub(crate) cancel: CancellationToken,
    pub(crate) stop: CancellationToken,
    pub(crate) reporter: Reporter,
    pub(crate) messages: mpsc::UnboundedReceiver<(InboxId, Message)>,
    pub(crate) budget: StageBudget,
}

impl Connections {
    /// Without a driver: reports are accepted and discarded, and no messages arrive.
    fn detached(machine: &Machine, store: Arc<dyn Store>, run_dir: PathBuf) -> Self {
        let (_, messages) = mpsc::unbounded_channel();
        let (reports, mut inbound) = mpsc::unbounded_channel::<Report>();
        tokio::spawn(async move {
            while let Some(report) = inbound.recv().await {
                // The handler may have stopped waiting.
                let _ = report.done.send(Ok(()));
            }
        });
        let activity = Arc::new(tokio::sync::Notify::new());
        let key = Key { branch: Arc::from(MAIN), node: Arc::from(""), visit: 1, attempt: 1 };
        Self {
            store,
            run_dir,
            cancel: CancellationToken::new(),
            stop: CancellationToken::new(),
            budget: Budget::new(machine).of_stage(key.clone()),
            reporter: Reporter { key, reports, activity },
            messages,
        }
    }
}

impl Machine {
    /// The stage that is running on a branch.
    pub(crate) fn stage(
        &self,
        branch: &str,
        connections: Connections,
    ) -> Result<Stage, Inconsistent> {
        let state = self.state();
        let cursor = self.cursor(branch)?;
        let missing = || Inconsistent::new(format!("no stage is running on branch `{branch}`"));
        let Connections { store, run_dir, cancel, stop, reporter, messages, budget } = connections;
        let worktree = state.worktrees.of(branch);
        let mut run = Arc::clone(state.created()?);
        let at = self.active_stage(branch).ok_or_else(missing)?.clone();
        let begun_ms = at.attempt_ms.saturating_add_unsigned(at.delay_ms);
        let is_gate = self.plan.find(&at.node).is_some_and(|node| node.kind == NodeKind::Human);
        if let Some(dir) = worktree.as_ref().and_then(|it| work_dir_of(&run, &it.line)) {
            Arc::make_mut(&mut run).work_dir = dir;
        }
        Ok(Stage {
            run_id: state.run_id,
            run,
            worktree,
            at,
            branch: cursor.is_branch().then(|| Arc::clone(&cursor.branch)),
            context: cursor.context.clone(),
            history: cursor.history.clone(),
            failures_before: if is_gate { cursor.failures_before() } else { Vec::new() },
            turns: cursor.turns.counts().clone(),
            budget,
            lifted_max_cost: state.max_cost.filter(|_| state.tokens_lifted),
            begun: Duration::from_millis(duration_ms(begun_ms, self.steady_ms())),
            started_ms: self.now_ms,
            run_dir,
            store,
            cancel,
            stop,
            reporter,
            messages,
            plan: Arc::clone(self.plan()),
        })
    }

    /// The stage that is running on a branch, without a driver: what a handler reports is accepted
    /// and discarded. For a replay, which prepares requests and compares them. Call it inside of a
    /// tokio runtime. `None` when no stage is running there.
    pub fn detached_stage(
        &self,
        branch: &str,
        store: Arc<dyn Store>,
        run_dir: PathBuf,
    ) -> Option<Stage> {
        self.active_stage(branch)?;
        self.stage(branch, Connections::detached(self, store, run_dir)).ok()
    }
}

/// A stage of its own, for a unit test of a handler: the first attempt of the first visit of a node,
/// in a run that has just begun. What the handler reports is accepted and discarded. Build it inside
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
        let kind = plan.find(&node).expect("the plan has the node of the test").kind;
        let run_id = RunId::from_parts(0, 1);
        let mut events = begin(run_id, 0, &plan, new).events;
        let mut entry = Entry::new(EventBody::StageStarted {
            rank: 1,
            handler: kind,
            fidelity: Fidelity::default(),
            thread_id: None,
        });
        entry.node_id = Some(node);
        entry.visit = Some(1);
        events.push(Event { run_id, seq: 2, ts_ms: 0, entry });
        let machine = Machine::new(plan, RunState::replay(run_id, &events));
        let stage = machine.stage(MAIN, Connections::detached(&machine, store, run_dir));
        let mut stage = stage.expect("its start was just recorded");
        for (key, value) in context.iter() {
            stage.context.set(key, Arc::clone(value));
        }
        stage
    }
}
