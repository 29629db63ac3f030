//! Sub-workflows: another workflow, run once, as a run with a log of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use fabro_engine::checkpoint::effective;
use fabro_engine::{
    ActiveStage, Batch, BlobStore, Clock, Condition, Handler, Input, InputSpec, Machine,
    ManagerSpec, Message, NewRun, Phase, Plan, ReadError, Reading, RunEnd, RunState, Stage,
    StageEnd, Store, StoreError, World, begin, cancel, drive_sub_workflow, keys, read_all,
};
use fabro_events::{
    EndedByParent, Event, EventBody, EventSink, ParentStage, PauseReason, StageFailure,
};
use fabro_sandbox::artifacts::FILES;
use fabro_types::{
    ContextPatch, Failure, FailureClass, Fidelity, NodeKind, Outcome, RunId, RunStatus, Status,
};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::blobs::read_inner;
use crate::children::{ChildWorkflow, ChildWorkflows};
use crate::common::{canceled, failed, warn};
use crate::human::element;
use crate::preamble::Preambles;
use crate::render::render_value;

/// How deep sub-workflows nest: one that names itself has to end somewhere.
const MAX_DEPTH: usize = fabro_types::MAX_SUB_WORKFLOW_DEPTH;

/// How long it may take, for messages.
const TIME_LIMIT: &str = "it took longer than max_cycles × poll_interval";

/// The reason that is recorded in the log of a sub-workflow that its stage ends.
fn reason_of(end: EndedByParent) -> &'static str {
    match end {
        EndedByParent::StopCondition => "its stop condition holds",
        EndedByParent::TimeLimit => TIME_LIMIT,
        EndedByParent::Unavailable => "no model or agent is available",
    }
}

/// Why it is ended when its own stage is.
const CANCELED_WITH_STAGE: &str = "its stage was canceled";

/// Runs the workflow that a manager node names.
pub struct SubWorkflowHandler {
    /// The handler of the child's stages: the one this is part of.
    stages: Weak<dyn Handler>,
    /// That in its place.
    outer: OnceLock<Weak<dyn Handler>>,
    children: Arc<dyn ChildWorkflows>,
    preambles: Preambles,
    sink: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
}

impl SubWorkflowHandler {
    /// `children` loads the child, `stages` runs its stages, and its events are reported to `sink`.
    pub(crate) fn new(
        stages: Weak<dyn Handler>,
        children: Arc<dyn ChildWorkflows>,
        preambles: Preambles,
        sink: Arc<dyn EventSink>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { stages, outer: OnceLock::new(), children, preambles, sink, clock }
    }

    /// The first handler that is given here runs the stages, in place of that of [`new`](Self::new).
    pub(crate) fn run_stages_by(&self, handler: Weak<dyn Handler>) {
        self.outer.get_or_init(|| handler);
    }

    async fn run(&self, stage: &Stage) -> Result<StageEnd, StageEnd> {
        let stages = self.outer.get().unwrap_or(&self.stages);
        let Some(stages) = stages.upgrade() else { return Err(canceled().into()) };
        // Validation has warned of it; the run continues, as after a command without a script.
        if stage.run.dry_run && names_no_workflow(stage) {
            return Ok(Outcome::succeeded().into());
        }
        let inputs = inputs_of(stage)?;
        let workflow = self.children.load(stage, &inputs)?;
        let child =
            Child::open(stage, (workflow, inputs), self.clock.now_ms(), &self.preambles).await?;
        // Its first event names its parent: who follows the run learns where it belongs.
        child.created.iter().for_each(|event| self.sink.event(event));
        let stop = stage.stop.child_token();
        let (undecided, mut warnings) = mpsc::unbounded_channel();
        let sink = Arc::clone(&self.sink);
        let watch = Arc::new(StopWatch::new(stage, &child, stop.clone(), sink, undecided)?);
        let world = World {
            store: Arc::clone(&stage.store),
            handler: stages,
            sink: Arc::clone(&watch) as _,
            clock: Arc::clone(&self.clock),
            run_dir: stage.run_dir.with_file_name(child.id.to_string()),
            stop: stop.clone(),
        };
        let first = match child.state.phase {
            Phase::Created => Some(Input::Start),
            Phase::Ended(..) => None,
            _ => Some(Input::Resume { max_cost: stage.lifted_max_cost }),
        };
        let Some(first) = first else { return child.finish(stage).await };
        if watch.holds() {
            // The driver before this one died before it could end the child.
            child.end(&*stage.store, self.clock.now_ms(), EndedByParent::StopCondition).await?;
            return child.finish(stage).await;
        }
        let machine = Machine::new(Arc::clone(&child.plan), child.state.clone());
        // A child may hold children: the future must have a size of its own.
        let mut driven = Box::pin(drive_sub_workflow(machine, first, world, &stage.budget));
        let mut late = std::pin::pin!(tokio::time::sleep(manager(stage)?.timeout));
        let (end, reason) = loop {
            tokio::select! {
                end = &mut driven => break (end?, EndedByParent::StopCondition),
                Some(warning) = warnings.recv() => {
                    warn(&stage.reporter, "stop_condition", warning).await;
                }
                () = stage.cancel.cancelled() => {
                    if !stage.stop.is_cancelled() && child.call_off(&*stage.store).await.is_err() {
                        stop.cancel();
                    }
                    break (driven.await?, EndedByParent::StopCondition);
                }
                () = &mut late => {
                    stop.cancel();
                    break (driven.await?, EndedByParent::TimeLimit);
                }
            }
        };
        while let Ok(warning) = warnings.try_recv() {
            warn(&stage.reporter, "stop_condition", warning).await;
        }
        match end {
            RunEnd::Over(..) => child.finish(stage).await,
            RunEnd::Paused(PauseReason::Unavailable) => {
                child.unavailable(stage, self.clock.now_ms()).await
            }
            RunEnd::Paused(reason) => Ok(StageEnd::Suspended(reason)),
            RunEnd::Stopped if stage.cancel.is_cancelled() => Err(canceled().into()),
            RunEnd::Stopped => {
                child.end(&*stage.store, self.clock.now_ms(), reason).await?;
                child.finish(stage).await
            }
        }
    }
}

#[async_trait]
impl Handler for SubWorkflowHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        self.run(&stage).await.unwrap_or_else(|end| end)
    }
}

fn names_no_workflow(stage: &Stage) -> bool {
    let attrs = &stage.node().attrs;
    ["stack.child_workflow", "stack.child_dot_source"].iter().all(|name| attrs.get(name).is_none())
}

/// What the plan says about the stage's sub-workflow.
fn manager(stage: &Stage) -> Result<&ManagerSpec, StageEnd> {
    let failure = || Failure::new(FailureClass::Structural, "the node has no sub-workflow");
    stage.spec().manager().ok_or_else(|| failure().into())
}

/// The most that one input of a sub-workflow may be, in bytes of its JSON: it is part of an event.
const MAX_INPUT: usize = 1 << 20;

/// The inputs of the stage's sub-workflow: those that its node gives, or else the parent's.
fn inputs_of(stage: &Stage) -> Result<Map<String, Value>, StageEnd> {
    let given = &manager(stage)?.inputs;
    if given.is_empty() {
        return Ok(stage.run.inputs.clone());
    }
    let mut inputs = Map::new();
    for (name, input) in given {
        let value = match input {
            InputSpec::Value(value) => value.clone(),
            InputSpec::Text(text) => render_value(stage, text)?,
        };
        let bytes = value.to_string().len();
        if bytes > MAX_INPUT {
            let message = format!(
                "the input `{name}` has {bytes} bytes, and a sub-workflow takes at most {MAX_INPUT} of one; write it to a file and give its path"
            );
            return Err(Failure::new(FailureClass::Deterministic, message).into());
        }
        inputs.insert(name.to_string(), value);
    }
    Ok(inputs)
}

/// The run id of a stage's sub-workflow. The run need not exist.
pub fn sub_workflow_id(run: RunId, branch: &str, at: &ActiveStage) -> RunId {
    let mut label = format!("{branch}\n{}@{}.{}", at.node, at.visit, at.attempt);
    if at.rewound_seq > 0 {
        let _ = write!(label, "\n{}", at.rewound_seq);
    }
    run.derive(&label)
}

/// The run of a sub-workflow.
struct Child {
    id: RunId,
    plan: Arc<Plan>,
    state: RunState,
    /// Its first event, if it was made just now.
    created: Option<Event>,
}

impl Child {
    /// The child of this stage, made when it does not exist yet. Its id follows from the stage, so
    /// that a parent that is resumed finds it again, and one that was rewound does not.
    async fn open(
        stage: &Stage,
        (workflow, inputs): (ChildWorkflow, Map<String, Value>),
        now_ms: i64,
        preambles: &Preambles,
    ) -> Result<Self, StageEnd> {
        let branch = stage.branch.as_deref().unwrap_or_default();
        let id = sub_workflow_id(stage.run_id, branch, &stage.at);
        let ChildWorkflow { plan, goal, bundle } = workflow;
        let plan = Arc::new(plan);
        let mut events = read_all(&*stage.store, id).await?;
        let mut created = None;
        if events.is_empty() {
            check_depth(stage).await?;
            let new = NewRun {
                context: inherited(stage, preambles).await?,
                inputs,
                worktree: stage.sub_workflow_worktree(id),
                ..new_run(stage, goal, bundle)
            };
            let commit = begin(id, now_ms, &plan, new);
            let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
            stage.store.append(id, 0, &batch).await?;
            events = commit.events;
            created = events.first().cloned();
        }
        let replayed = RunState::try_replay(id, &events).map_err(Failure::from)?;
        Ok(Self { id, plan, state: replayed, created })
    }

    /// Cancels the child and what it runs: its result is no longer needed.
    async fn call_off(&self, store: &dyn Store) -> Result<(), StoreError> {
        store.post(self.id, &Message::Cancel { reason: CANCELED_WITH_STAGE.to_owned() }).await?;
        Ok(())
    }

    /// No model or agent is available in the child: its parent pauses too, and resumes it later.
    /// Where the parent handles that as a failure, the child ends.
    async fn unavailable(&self, stage: &Stage, now_ms: i64) -> Result<StageEnd, StageEnd> {
        if !stage.pauses_when_unavailable() {
            self.end(&*stage.store, now_ms, EndedByParent::Unavailable).await?;
            return self.finish(stage).await;
        }
        let events = read_all(&*stage.store, self.id).await?;
        // Another attempt would be another child.
        Ok(Failure { terminal: true, ..unavailable_in(&events) }.into())
    }

    /// Ends the child's log for one of our own reasons.
    async fn end(
        &self,
        store: &dyn Store,
        now_ms: i64,
        why: EndedByParent,
    ) -> Result<(), StageEnd> {
        let last = store.last_seq(self.id).await?;
        let event = cancel(self.id, last, now_ms, reason_of(why).to_owned(), Some(why));
        store.append(self.id, last, &Batch::of(&[event])).await?;
        Ok(())
    }

    /// The stage's outcome once the child has ended.
    async fn finish(&self, stage: &Stage) -> Result<StageEnd, StageEnd> {
        let events = read_all(&*stage.store, self.id).await?;
        let run = RunState::replay(self.id, &events);
        let written = written_keys(&run, &events);
        let context = one_value(&written, &*stage.store).map_err(|error| failed(&error))?;
        let ended = events.last().and_then(|event| match &event.entry.body {
            EventBody::RunCanceled { by_parent, .. } => *by_parent,
            _ => None,
        });
        let mut outcome = match &run.phase {
            Phase::Ended(RunStatus::Succeeded, _) => Outcome::succeeded(),
            Phase::Ended(RunStatus::PartiallySucceeded, Some(_)) => {
                partially_succeeded(stage, run.causes.first(), self.id)
            }
            // Its exit has status=partially_succeeded.
            Phase::Ended(RunStatus::PartiallySucceeded, None) => {
                let message = "the sub-workflow ended partially_succeeded";
                let failure = Failure::new(FailureClass::Deterministic, message);
                let failure = Some(failure.signed(&stage.at.node));
                Outcome { status: Status::PartiallySucceeded, failure, ..Outcome::succeeded() }
            }
            Phase::Ended(RunStatus::Failed, Some(failure)) => {
                Outcome::failed(failure_of(failure, run.causes.first(), self.id))
            }
            _ if ended == Some(EndedByParent::StopCondition) => {
                let child = Machine::new(Arc::clone(&self.plan), run.clone());
                let first = child.unhandled_failures().into_iter().next();
                let stopped = partially_succeeded(stage, first.as_deref(), self.id);
                Outcome {
                    notes: Some(format!("ended: {}", reason_of(EndedByParent::StopCondition))),
                    ..stopped
                }
            }
            _ if ended == Some(EndedByParent::Unavailable) => {
                Outcome::failed(unavailable_in(&events))
            }
            _ if ended == Some(EndedByParent::TimeLimit) => {
                let message = format!("sub-workflow: {TIME_LIMIT}");
                Outcome::failed(Failure::new(FailureClass::TransientInfra, message))
            }
            _ => Outcome::failed(Failure::new(FailureClass::Canceled, "sub-workflow canceled")),
        };
        let key = format!("{}{}", keys::CHILD_PREFIX, stage.at.node);
        outcome = outcome.with_update(key, context);
        let output = written.get("output").cloned();
        if let Some(output) = output.or_else(|| run.main()?.output().cloned()) {
            let key = format!("{}{}", keys::RESPONSE_PREFIX, stage.at.node);
            outcome.context_updates.insert(key, output);
        }
        if shares_context(stage)? {
            let public = written.into_iter().filter(|(key, _)| !is_private(key));
            outcome.context_updates.extend(public);
        }
        outcome.usage = Some(run.usage).filter(|usage| usage.turns > 0 || usage.cost_usd > 0.0);
        outcome.inner_artifacts = artifacts(self.id, &events);
        Ok(outcome.into())
    }
}

/// Whether the child begins with a copy of its parent's context, and its changes come back: its node gives
/// it no inputs of its own.
fn shares_context(stage: &Stage) -> Result<bool, StageEnd> {
    Ok(manager(stage)?.inputs.is_empty())
}

/// Keys that each run has for itself: those of the engine, of the graph, and the result of the last stage.
fn is_private(key: &str) -> bool {
    let own = [keys::CURRENT_NODE, keys::LAST_STAGE, keys::OUTCOME, keys::PREFERRED_LABEL];
    let own_prefixes = [keys::INTERNAL_PREFIX, keys::GRAPH_PREFIX, "failure_"];
    own.contains(&key) || own_prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// The final context of a child, without keys inherited unchanged from its parent.
fn written_keys(run: &RunState, events: &[Event]) -> ContextPatch {
    let initial = events.first().and_then(|event| match &event.entry.body {
        EventBody::RunCreated(created) => Some(&created.context),
        _ => None,
    });
    let all = run.main().into_iter().flat_map(|main| main.context.iter());
    let is_of_parent = |key: &str, value: &Arc<Value>| {
        let is_initial = || initial.and_then(|initial| initial.get(key)) == Some(value);
        [crate::PARENT_PREAMBLE, crate::PARENT_ITEM].contains(&key)
            || !is_private(key) && is_initial()
    };
    all.filter(|(key, value)| !is_of_parent(key, value))
        .map(|(key, value)| (key.to_owned(), Arc::clone(value)))
        .collect()
}

/// The outcome of a stage whose sub-workflow came to its end; partially succeeded, if there nothing
/// handled a failure.
fn partially_succeeded(stage: &Stage, first: Option<&StageFailure>, child: RunId) -> Outcome {
    let Some(first) = first else { return Outcome::succeeded() };
    let failure = failure_of(&first.failure, Some(first), child).signed(&stage.at.node);
    Outcome { status: Status::PartiallySucceeded, failure: Some(failure), ..Outcome::succeeded() }
}

/// The failure of a stage whose sub-workflow had this one, with the stage that it began with.
fn failure_of(failure: &Failure, cause: Option<&StageFailure>, child: RunId) -> Failure {
    let message = match cause {
        Some(cause) if cause.failure.message == failure.message => cause.headline(),
        Some(cause) if !failure.message.contains(&cause.failure.message) => {
            format!("{}; {}", failure.message, cause.headline())
        }
        _ => failure.message.clone(),
    };
    let stage = cause.map(|cause| format!("stage {} of ", cause.stage())).unwrap_or_default();
    Failure {
        details: Some(format!("see {stage}run {child}")),
        ..Failure::new(failure.class, format!("sub-workflow: {message}"))
    }
}

/// The failure because of which the child paused the last time.
fn unavailable_in(events: &[Event]) -> Failure {
    let paused = events.iter().rev().find_map(|event| match &event.entry.body {
        EventBody::RunPaused { unavailable, .. } => unavailable.first(),
        _ => None,
    });
    match paused {
        Some(StageFailure { node, failure, .. }) => {
            let message = format!("sub-workflow: `{node}`: {}", failure.message);
            Failure { message, ..failure.clone() }
        }
        None => Failure::new(FailureClass::Structural, "the sub-workflow paused without a reason"),
    }
}

fn new_run(stage: &Stage, goal: Option<String>, bundle: Vec<u8>) -> NewRun {
    NewRun {
        goal: goal.unwrap_or_else(|| stage.run.goal.clone()),
        inputs: Map::new(),
        seed: stage.run.seed,
        work_dir: stage.run.work_dir.clone(),
        bundle,
        // The limits of its own workflow and of its ancestors apply.
        max_cost: None,
        parent: Some(ParentStage {
            run_id: stage.run_id,
            node_id: Arc::clone(&stage.at.node),
            visit: stage.at.visit,
            branch: stage.branch.clone(),
            attempt: stage.at.attempt,
        }),
        dry_run: stage.run.dry_run,
        worktree: None,
        context: ContextPatch::new(),
    }
}

/// The artifacts of a run and of its sub-workflows, as paths below the directory of another run beside it.
fn artifacts(run: RunId, events: &[Event]) -> Vec<String> {
    let mut files = BTreeSet::new();
    for event in effective(events) {
        match &event.entry.body {
            EventBody::ArtifactCaptured(artifact) => {
                files.insert(format!("../{run}/{}", artifact.file));
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                let inner = end.outcome.inner_artifacts.iter();
                files.extend(inner.filter(|file| file.starts_with("../")).cloned());
            }
            _ => {}
        }
    }
    files.into_iter().collect()
}

/// The directories in which runs beside this one, of the same family, keep artifacts: preambles name those of
/// sub-workflows.
pub(crate) async fn artifact_dirs(
    stage: &Stage,
    run_dirs: &[PathBuf],
) -> Result<Vec<PathBuf>, StoreError> {
    let mut dirs: Vec<PathBuf> = run_dirs.iter().map(|dir| dir.join(FILES)).collect();
    let has_children = stage.plan.workflow().nodes().any(|node| node.kind == NodeKind::ManagerLoop);
    if !has_children && stage.run.parent.is_none() {
        return Ok(dirs);
    }
    let top = run_dirs.last().and_then(|dir| dir.file_name()?.to_str()?.parse().ok());
    for member in stage.store.family(top.unwrap_or(stage.run_id)).await? {
        let dir = stage.run_dir.with_file_name(member.to_string()).join(FILES);
        if !dirs.contains(&dir) && dir.is_dir() {
            dirs.push(dir);
        }
    }
    Ok(dirs)
}

/// Fails when this stage's run has as many runs above it as there may be.
async fn check_depth(stage: &Stage) -> Result<(), StageEnd> {
    if run_dirs(stage).await?.len() <= MAX_DEPTH {
        return Ok(());
    }
    let message = format!("sub-workflows nest more than {MAX_DEPTH} deep");
    Err(Failure::new(FailureClass::Structural, message).into())
}

/// The directories of this stage's run, of the run that it is a part of, and so on upwards, as deep
/// as runs nest.
pub(crate) async fn run_dirs(stage: &Stage) -> Result<Vec<PathBuf>, StoreError> {
    let mut dirs = vec![stage.run_dir.clone()];
    let mut above = stage.run.parent.clone();
    while let Some(parent) = above.filter(|_| dirs.len() <= MAX_DEPTH) {
        dirs.push(stage.run_dir.with_file_name(parent.run_id.to_string()));
        let first = stage.store.read(parent.run_id, 0, 1).await?;
        above = first.first().and_then(|event| match &event.entry.body {
            EventBody::RunCreated(created) => created.parent.clone(),
            _ => None,
        });
    }
    Ok(dirs)
}

/// The child's initial context: the parent's public keys if they share it, its preamble, and the workflow's location.
async fn inherited(stage: &Stage, preambles: &Preambles) -> Result<ContextPatch, StageEnd> {
    let mut context = ContextPatch::new();
    if shares_context(stage)? {
        let public = stage.context.iter().filter(|(key, _)| !is_private(key));
        context.extend(public.map(|(key, value)| (key.to_owned(), Arc::clone(value))));
    }
    if let Some(resumes) = stage.context.get_shared(keys::RESUME_THREADS) {
        context.insert(keys::RESUME_THREADS.to_owned(), resumes);
    }
    // The child cannot take part in a conversation of its parent.
    let fidelity = match stage.at.fidelity {
        Fidelity::Full => Fidelity::SummaryHigh,
        other => other,
    };
    // The child may have agents.
    let text = preambles.write(stage, fidelity, true).await?;
    if !text.is_empty() {
        context.insert(crate::PARENT_PREAMBLE.to_owned(), Arc::new(text.into()));
    }
    if let Some(item) = element(stage)? {
        context.insert(crate::PARENT_ITEM.to_owned(), Arc::new(item.into()));
    }
    let dir = stage.context.text(crate::WORKFLOW_DIR);
    if !dir.is_empty() {
        let file = stage.spec().manager().and_then(|manager| manager.file.as_deref());
        let file = file.filter(|file| !file.starts_with('~'));
        let file = file.map(|file| Path::new(dir).join(file));
        let own = file.as_deref().and_then(Path::parent).unwrap_or(Path::new(dir));
        let own = own.to_string_lossy().into_owned();
        context.insert(crate::WORKFLOW_DIR.to_owned(), Arc::new(own.into()));
    }
    Ok(context)
}

/// Merges context keys into one object, with blobs read back except large ones.
fn one_value(context: &ContextPatch, blobs: &dyn BlobStore) -> Result<Value, ReadError> {
    let values = context.iter().map(|(key, value)| (key.clone(), Value::clone(value)));
    let mut all = Value::Object(values.collect());
    read_inner(&mut all, blobs)?;
    Ok(all)
}

/// Follows a child's events, and stops it once its stop condition holds after a stage.
struct StopWatch {
    state: Mutex<RunState>,
    condition: Option<Arc<Condition>>,
    store: Arc<dyn Store>,
    stop: CancellationToken,
    sink: Arc<dyn EventSink>,
    /// Takes why the condition cannot be decided, once for each reason.
    undecided: mpsc::UnboundedSender<String>,
    last_warning: Mutex<Option<String>>,
}

impl StopWatch {
    fn new(
        stage: &Stage,
        child: &Child,
        stop: CancellationToken,
        sink: Arc<dyn EventSink>,
        undecided: mpsc::UnboundedSender<String>,
    ) -> Result<Self, StageEnd> {
        let condition = manager(stage)?.stop_condition.clone();
        let store = Arc::clone(&stage.store);
        Ok(Self {
            state: Mutex::new(child.state.clone()),
            condition,
            store,
            stop,
            sink,
            undecided,
            last_warning: Mutex::default(),
        })
    }

    /// True when a stage has ended and the condition holds.
    fn holds(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let main = state.main().filter(|main| !main.history.is_empty());
        let (Some(condition), Some(main)) = (&self.condition, main) else { return false };
        let reading = Reading { context: &main.context, blobs: &self.store };
        match reading.evaluate(condition) {
            Ok(result) => result.holds,
            Err(error) => {
                self.warn(format!("manager.stop_condition cannot be decided: {error}"));
                false
            }
        }
    }

    fn warn(&self, warning: String) {
        let mut last = self.last_warning.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&warning) {
            *last = Some(warning.clone());
            // The stage that would report it has ended.
            let _ = self.undecided.send(warning);
        }
    }
}

impl EventSink for StopWatch {
    fn event(&self, event: &Event) {
        self.sink.event(event);
        if self.condition.is_none() {
            return;
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).apply(event);
        let ended =
            matches!(event.entry.body, EventBody::StageCompleted(_) | EventBody::StageFailed(_));
        if ended && self.holds() {
            self.stop.cancel();
        }
    }
}
