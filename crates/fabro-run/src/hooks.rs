//! The hooks of a run: which of its events they get, and what they may forbid.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fabro_config::{HookAction, HookEvent};
use fabro_engine::Stage;
use fabro_events::{CreatedRun, Event, EventBody, EventSink, timestamp};
use fabro_handlers::Guard;
use fabro_hooks::{Decision, Occasion, Runner};
use fabro_redact::Redactor;
use fabro_sandbox::agent_env;
use fabro_tools::{Call, CallGuard, Output};
use fabro_types::{Failure, FailureClass, RunId};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::run_id::RUN_ID_VARIABLE;
use crate::run_services::now_ms;
use crate::secrets::{expand_all, text_variables};
use crate::{RunSettings, SetupError};

/// The folder of the run's directory that says what was delivered.
const HOOKS: &str = "hooks";

/// The file in it with the failures of hooks.
const FAILURES: &str = "failures.log";

/// The hooks of these settings, in their order.
///
/// # Errors
///
/// A header names a variable that is not set, or a hook is not valid.
pub(crate) fn runners(
    settings: &RunSettings,
    redactor: &Redactor,
) -> Result<Vec<Arc<Runner>>, SetupError> {
    let mut runners = Vec::new();
    for hook in &settings.hooks {
        let name = hook.name.as_deref().unwrap_or(hook.event.as_str());
        let headers = match &hook.action {
            HookAction::Command { .. } => Vec::new(),
            HookAction::Http { headers, .. } => expand_all(&format!("hook `{name}`"), headers)?,
        };
        let env = agent_env(text_variables(), settings.env.clone());
        let around = fabro_hooks::Surroundings { env, headers, redactor: redactor.clone() };
        let runner = Runner::new(hook.clone(), around)
            .map_err(|error| SetupError::new(error.to_string(), "correct it in [[run.hooks]]"))?;
        runners.push(Arc::new(runner));
    }
    Ok(runners)
}

/// The event of hooks that an event of the log is; `None` for one that no hook gets.
fn hook_event(body: &EventBody) -> Option<HookEvent> {
    Some(match body {
        EventBody::RunStarted {} => HookEvent::RunStart,
        EventBody::RunCompleted { .. } => HookEvent::RunComplete,
        EventBody::RunFailed { .. } => HookEvent::RunFailed,
        EventBody::RunCanceled { .. } => HookEvent::RunCanceled,
        EventBody::RunPaused { .. } => HookEvent::RunPaused,
        EventBody::StageStarted { .. } => HookEvent::StageStart,
        EventBody::StageCompleted(_) => HookEvent::StageComplete,
        EventBody::StageFailed(_) => HookEvent::StageFailed,
        EventBody::StageRetrying { .. } => HookEvent::StageRetrying,
        EventBody::EdgeSelected(_) => HookEvent::EdgeSelected,
        EventBody::ParallelStarted { .. } => HookEvent::ParallelStart,
        EventBody::ParallelCompleted { .. } => HookEvent::ParallelComplete,
        EventBody::GateAsked { .. } => HookEvent::GateAsked,
        EventBody::GateAnswered { .. } => HookEvent::GateAnswered,
        EventBody::AgentToolStarted { .. } => HookEvent::PreToolUse,
        EventBody::AgentToolCompleted(done) if done.is_error => HookEvent::PostToolUseFailure,
        EventBody::AgentToolCompleted(_) => HookEvent::PostToolUse,
        _ => return None,
    })
}

/// Whether it is an event of a whole run: those of sub-workflows are not delivered.
fn is_of_run(event: HookEvent) -> bool {
    use HookEvent::{RunCanceled, RunComplete, RunFailed, RunPaused, RunStart};
    matches!(event, RunStart | RunComplete | RunFailed | RunCanceled | RunPaused)
}

/// The nodes, or the tool, that an event is about.
fn subjects(event: &Event) -> Vec<&str> {
    match &event.entry.body {
        EventBody::AgentToolStarted { tool, .. } => vec![tool],
        EventBody::AgentToolCompleted(done) => vec![&done.tool],
        EventBody::EdgeSelected(choice) => {
            event.entry.node_id.as_deref().into_iter().chain([&*choice.to]).collect()
        }
        _ => event.entry.node_id.as_deref().into_iter().collect(),
    }
}

/// What all hooks of a run get.
#[derive(Clone)]
pub(crate) struct About {
    run: RunId,
    workflow: String,
    work_dir: PathBuf,
}

impl About {
    pub(crate) fn new(run: RunId, created: &CreatedRun) -> Self {
        let work_dir = PathBuf::from(&created.work_dir);
        Self { run, workflow: created.workflow.clone(), work_dir }
    }

    /// Something that happened in a run, this one or a sub-workflow of it.
    fn occasion(
        &self,
        event: HookEvent,
        id: String,
        run: RunId,
        more: Map<String, Value>,
    ) -> Occasion {
        let mut data = Map::new();
        data.insert("event".to_owned(), event.as_str().into());
        data.insert("id".to_owned(), id.into());
        data.insert("run_id".to_owned(), run.to_string().into());
        if run != self.run {
            data.insert("root_run_id".to_owned(), self.run.to_string().into());
        }
        data.insert("workflow_name".to_owned(), self.workflow.as_str().into());
        data.insert("cwd".to_owned(), self.work_dir.to_string_lossy().into());
        data.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
        let mut env = vec![
            ("FABRO_EVENT".to_owned(), event.as_str().to_owned()),
            (RUN_ID_VARIABLE.to_owned(), self.run.to_string()),
            ("FABRO_WORKFLOW".to_owned(), self.workflow.clone()),
        ];
        for (key, name) in [("node_id", "FABRO_NODE_ID"), ("tool_name", "FABRO_TOOL_NAME")] {
            if let Some(Value::String(text)) = data.get(key) {
                env.push((name.to_owned(), text.clone()));
            }
        }
        Occasion { data: Value::Object(data), cwd: self.work_dir.clone(), env }
    }

    /// An event of the log.
    fn recorded(&self, hook_event: HookEvent, event: &Event) -> Occasion {
        let entry = &event.entry;
        let mut more = Map::new();
        let mut add = |key: &str, value: Value| more.insert(key.to_owned(), value);
        add("node_id", json!(entry.node_id));
        add("node_label", json!(entry.node_label));
        add("visit", json!(entry.visit));
        add("branch", json!(entry.branch));
        match &entry.body {
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                add("status", json!(end.outcome.status));
                let failure = end.outcome.failure.as_ref();
                add("failure_reason", json!(failure.map(|failure| &failure.message)));
            }
            EventBody::StageRetrying { failure, attempt, .. } => {
                add("attempt", json!(attempt));
                add("failure_reason", json!(failure.message));
            }
            EventBody::RunCompleted { status, .. } | EventBody::ParallelCompleted { status } => {
                add("status", json!(status));
            }
            EventBody::RunFailed { failure, .. } => {
                add("failure_reason", json!(failure.message));
            }
            EventBody::EdgeSelected(choice) => {
                add("edge_from", json!(entry.node_id));
                add("edge_to", json!(choice.to));
                add("edge_label", json!(choice.label));
            }
            EventBody::GateAsked { question, .. } => {
                add("question", json!(question));
            }
            EventBody::AgentToolStarted { tool, .. } => {
                add("tool_name", json!(tool));
            }
            EventBody::AgentToolCompleted(done) => {
                add("tool_name", json!(done.tool));
            }
            _ => {}
        }
        add("record", event.to_json());
        self.occasion(hook_event, event.id(), event.run_id, more)
    }
}

/// Reports what was wrong with a hook.
pub(crate) type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// Reports it to `warn`, and keeps it in `hooks/failures.log` of the run's directory.
pub(crate) fn kept(run_dir: &Path, warn: Warn) -> Warn {
    let dir = run_dir.join(HOOKS);
    Arc::new(move |message| {
        warn(message);
        let line = format!("{} {message}\n", timestamp(now_ms()));
        let append = || {
            std::fs::create_dir_all(&dir)?;
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.create(true).append(true).open(dir.join(FAILURES))?;
            file.write_all(line.as_bytes())
        };
        if let Err(error) = append() {
            warn(&format!("{} cannot be written: {error}", dir.join(FAILURES).display()));
        }
    })
}

/// The blocking hooks: they can forbid something, or run before the output of a tool reaches the model.
pub(crate) struct Blocking {
    hooks: Vec<Arc<Runner>>,
    about: About,
    warn: Warn,
}

impl Blocking {
    /// Those of these hooks that block; `None` when there are none.
    pub(crate) fn new(hooks: &[Arc<Runner>], about: About, warn: Warn) -> Option<Arc<Self>> {
        let hooks: Vec<_> = hooks.iter().filter(|it| it.hook().blocking).cloned().collect();
        (!hooks.is_empty()).then(|| Arc::new(Self { hooks, about, warn }))
    }

    fn of(&self, event: HookEvent) -> Vec<Arc<Runner>> {
        self.hooks.iter().filter(|it| it.hook().event == event).cloned().collect()
    }

    /// Asks the hooks of the beginning of the run.
    ///
    /// # Errors
    ///
    /// One forbids it.
    pub(crate) async fn run_start(
        &self,
        created: &CreatedRun,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let event = HookEvent::RunStart;
        let mut more = Map::new();
        more.insert("goal".to_owned(), created.goal.as_str().into());
        more.insert("inputs".to_owned(), Value::Object(created.inputs.clone()));
        // As of `run.created`.
        let id = format!("{}-1", self.about.run);
        let occasion = self.about.occasion(event, id, self.about.run, more);
        for hook in &self.of(event) {
            let answer = hook.run(&occasion, cancel).await;
            if let Some(failure) = answer.failure {
                (self.warn)(&failed(hook, &failure));
            }
            if let Decision::Block(reason) = answer.decision {
                let message = format!("{} forbids the run: {reason}", hook.called());
                return Err(Failure::new(FailureClass::Deterministic, message));
            }
        }
        Ok(())
    }
}

/// A warning about a hook.
fn failed(hook: &Runner, failure: &str) -> String {
    format!("{} failed: {failure}", hook.called())
}

/// Records in a stage that a hook failed.
async fn warn_of(reporter: &fabro_engine::Reporter, hook: &Runner, failure: &str) {
    let kind = "hook".to_owned();
    let message = failed(hook, failure);
    // Nothing is lost when the driver is ending: the stage runs again.
    let _ = reporter.report(EventBody::AgentWarning { kind, message, window: None }).await;
}

#[async_trait]
impl Guard for Blocking {
    async fn stage(&self, stage: &Stage) -> Result<(), Failure> {
        let event = HookEvent::StageStart;
        let at = &stage.at;
        // It was asked when the stage began: before another attempt, an answer, a resumed conversation.
        let is_asked =
            at.attempt > 1 || at.attempts_before > 0 || at.talked || at.gate_asked_ms.is_some();
        let mut hooks = self.of(event);
        hooks.retain(|hook| hook.matches(&[&at.node]));
        if is_asked || hooks.is_empty() {
            return Ok(());
        }
        let mut more = of_stage(stage);
        more.insert("handler_type".to_owned(), at.handler.as_str().into());
        let id = format!("{}-{}", stage.run_id, at.since_seq);
        let occasion = self.about.occasion(event, id, stage.run_id, more);
        for hook in &hooks {
            let answer = hook.run(&occasion, &stage.cancel).await;
            if let Some(failure) = answer.failure {
                warn_of(&stage.reporter, hook, &failure).await;
            }
            if let Decision::Block(reason) = answer.decision {
                let message = format!("{} forbids the stage: {reason}", hook.called());
                let failure = Failure::new(FailureClass::Deterministic, message);
                // Another attempt is not asked about, so there must be none.
                return Err(Failure { terminal: true, ..failure });
            }
        }
        Ok(())
    }

    fn calls(&self, stage: &Stage) -> Option<Arc<dyn CallGuard>> {
        let is_of_call = |hook: &&Arc<Runner>| hook.hook().event.is_of_call();
        let hooks: Vec<_> = self.hooks.iter().filter(is_of_call).cloned().collect();
        (!hooks.is_empty()).then(|| {
            Arc::new(StageCalls {
                hooks,
                about: self.about.clone(),
                run: stage.run_id,
                since_seq: stage.at.since_seq,
                stage: of_stage(stage),
                reporter: stage.reporter.clone(),
            }) as Arc<dyn CallGuard>
        })
    }
}

fn of_stage(stage: &Stage) -> Map<String, Value> {
    let at = &stage.at;
    let mut data = Map::new();
    data.insert("node_id".to_owned(), json!(at.node));
    data.insert("visit".to_owned(), json!(at.visit));
    data.insert("branch".to_owned(), json!(stage.branch));
    data.insert("attempt".to_owned(), json!(at.attempt));
    data
}

/// The hooks that are asked before the calls of tools of a stage, and those that run after them.
struct StageCalls {
    hooks: Vec<Arc<Runner>>,
    about: About,
    run: RunId,
    since_seq: u64,
    stage: Map<String, Value>,
    reporter: fabro_engine::Reporter,
}

impl StageCalls {
    /// The hooks of an event of a call.
    fn of(&self, event: HookEvent, tool: &str) -> Vec<&Arc<Runner>> {
        let is_meant = |hook: &&Arc<Runner>| hook.hook().event == event && hook.matches(&[tool]);
        self.hooks.iter().filter(is_meant).collect()
    }

    fn occasion(&self, event: HookEvent, tool: &str, call: Call<'_>) -> Occasion {
        let mut more = self.stage.clone();
        more.insert("tool_name".to_owned(), tool.into());
        more.insert("tool_call_id".to_owned(), call.id.into());
        more.insert("tool_input".to_owned(), Value::Object(call.arguments.clone()));
        let end = if event.is_after_call() { "-end" } else { "" };
        let id = format!("{}-{}-{}{end}", self.run, self.since_seq, call.id);
        self.about.occasion(event, id, self.run, more)
    }
}

#[async_trait]
impl CallGuard for StageCalls {
    async fn refusal(&self, tool: &str, call: Call<'_>) -> Option<String> {
        let hooks = self.of(HookEvent::PreToolUse, tool);
        if hooks.is_empty() {
            return None;
        }
        let occasion = self.occasion(HookEvent::PreToolUse, tool, call);
        for hook in hooks {
            let answer = hook.run(&occasion, call.cancel).await;
            if call.cancel.is_cancelled() {
                // The call is dropped, and must not begin unasked.
                return Some("canceled".to_owned());
            }
            if let Some(failure) = answer.failure {
                warn_of(&self.reporter, hook, &failure).await;
            }
            if let Decision::Block(reason) = answer.decision {
                return Some(format!("{} forbids this call: {reason}", hook.called()));
            }
        }
        None
    }

    async fn ended(&self, tool: &str, call: Call<'_>, output: &Output) {
        let event =
            if output.is_error { HookEvent::PostToolUseFailure } else { HookEvent::PostToolUse };
        let hooks = self.of(event, tool);
        if hooks.is_empty() {
            return;
        }
        let occasion = self.occasion(event, tool, call);
        for hook in hooks {
            // There is nothing left to forbid.
            if let Some(failure) = hook.run(&occasion, call.cancel).await.failure {
                warn_of(&self.reporter, hook, &failure).await;
            }
        }
    }
}

/// Delivers events to the hooks that do not block: to each one in the order of the log, and one after
/// the other.
pub(crate) struct Deliveries {
    /// Empty once everything is offered.
    queues: Mutex<Vec<Queue>>,
    run: RunId,
    /// How many events are not delivered yet.
    pending: Arc<AtomicUsize>,
    warn: Warn,
    stop: CancellationToken,
}

struct Queue {
    hook: Arc<Runner>,
    events: mpsc::UnboundedSender<Event>,
    worker: JoinHandle<()>,
    delivered: u64,
}

impl Deliveries {
    /// Begins to deliver to those of these hooks that do not block; `None` when there are none.
    pub(crate) fn start(
        hooks: &[Arc<Runner>],
        about: &About,
        run_dir: &Path,
        warn: &Warn,
        stop: &CancellationToken,
    ) -> Option<Arc<Self>> {
        let dir = run_dir.join(HOOKS);
        let pending = Arc::new(AtomicUsize::new(0));
        let own = hooks.iter().enumerate().filter(|(_, hook)| !hook.hook().blocking);
        let queues: Vec<_> = own
            .map(|(index, hook)| {
                let (events, queue) = mpsc::unbounded_channel();
                let mark = dir.join(format!("{}.delivered", index + 1));
                let delivered = std::fs::read_to_string(&mark).ok();
                let delivered = delivered.and_then(|text| text.trim().parse().ok());
                let worker = Worker {
                    hook: Arc::clone(hook),
                    about: about.clone(),
                    mark,
                    warn: Arc::clone(warn),
                    stop: stop.clone(),
                    pending: Arc::clone(&pending),
                };
                Queue {
                    hook: Arc::clone(hook),
                    events,
                    worker: tokio::spawn(worker.deliver(queue)),
                    delivered: delivered.unwrap_or_default(),
                }
            })
            .collect();
        (!queues.is_empty()).then(|| {
            Arc::new(Self {
                queues: Mutex::new(queues),
                run: about.run,
                pending,
                warn: Arc::clone(warn),
                stop: stop.clone(),
            })
        })
    }

    /// Delivers what an earlier driver of the run recorded and had no time to deliver.
    pub(crate) fn catch_up(&self, events: &[Event]) {
        let is_copied = |event: &&Event| matches!(event.entry.body, EventBody::CheckpointForked(_));
        let copied = events.iter().rev().find(is_copied).map_or(0, |event| event.seq);
        for queue in &*self.queues() {
            let after = queue.delivered.max(copied);
            for event in events.iter().filter(|event| event.seq > after) {
                self.offer(queue, event);
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&self, queue: &Queue, event: &Event) {
        let Some(kind) = hook_event(&event.entry.body) else { return };
        let is_own = event.run_id == self.run || !is_of_run(kind);
        let hook = &queue.hook;
        if kind == hook.hook().event && is_own && hook.matches(&subjects(event)) {
            // The worker ends early only when the run is interrupted; then it is delivered on resuming.
            self.pending.fetch_add(1, Ordering::Relaxed);
            let _ = queue.events.send(event.clone());
        }
    }

    /// Waits until everything is delivered, or the run is interrupted. Nothing is taken any more.
    /// `is_over`: the run has ended, so that no resume will deliver the rest.
    pub(crate) async fn finish(&self, is_over: bool) {
        let queues = std::mem::take(&mut *self.queues());
        let workers = queues.into_iter().map(|queue| queue.worker);
        let mut all = std::pin::pin!(futures_util::future::join_all(workers));
        let pending = || match self.pending.load(Ordering::Relaxed) {
            1 => "1 event".to_owned(),
            count => format!("{count} events"),
        };
        if tokio::time::timeout(SILENT_TIME, &mut all).await.is_err() {
            if !self.stop.is_cancelled() {
                (self.warn)(&format!(
                    "waiting for hooks, which have {} left; an interruption ends them",
                    pending()
                ));
            }
            all.await;
        }
        if is_over && self.pending.load(Ordering::Relaxed) > 0 {
            (self.warn)(&format!("interrupted: {} of this run did not reach its hooks", pending()));
        }
    }
}

impl EventSink for Deliveries {
    fn event(&self, event: &Event) {
        for queue in &*self.queues() {
            self.offer(queue, event);
        }
    }
}

/// How long hooks may take at the end of a run before that is reported.
const SILENT_TIME: Duration = Duration::from_secs(2);

/// Runs one hook.
struct Worker {
    hook: Arc<Runner>,
    about: About,
    /// The file with the place in the log of the last event that was delivered.
    mark: PathBuf,
    warn: Warn,
    stop: CancellationToken,
    pending: Arc<AtomicUsize>,
}

impl Worker {
    async fn deliver(self, mut queue: mpsc::UnboundedReceiver<Event>) {
        let mut is_marked = true;
        while let Some(event) = queue.recv().await {
            if self.stop.is_cancelled() {
                return;
            }
            let occasion = self.about.recorded(self.hook.hook().event, &event);
            let answer = self.hook.run(&occasion, &self.stop).await;
            if self.stop.is_cancelled() {
                return;
            }
            self.pending.fetch_sub(1, Ordering::Relaxed);
            if let Some(failure) = answer.failure {
                let stage = event.entry.node_id.as_deref().zip(event.entry.visit);
                let at = stage.map(|(node, visit)| format!(" at {node}@{visit}"));
                let called = self.hook.called();
                (self.warn)(&format!("{called} failed{}: {failure}", at.unwrap_or_default()));
            }
            if event.run_id == self.about.run && is_marked {
                let written = self.write_mark(event.seq);
                is_marked = written.is_ok();
                if let Err(error) = written {
                    let called = self.hook.called();
                    (self.warn)(&format!(
                        "what {called} has got cannot be written, so a resume will send it again: {error}"
                    ));
                }
            }
        }
    }

    fn write_mark(&self, seq: u64) -> std::io::Result<()> {
        if let Some(dir) = self.mark.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(&self.mark, format!("{seq}\n"))
    }
}
