//! Whole runs: a workflow, a model script and answers go in; the story, the context and the files
//! of the stages come out.

mod agents;
mod artifacts;
mod commands;
mod directives;
mod fan_out;
mod files;
mod gate_texts;
mod gates;
mod keys;
mod lists;
mod resume;
mod seen;
mod sessions;
mod story;
mod sub_workflows;
mod templates;
mod threads;
mod values;
mod variables;
mod workflows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fabro_engine::{
    DriveError, Input, Machine, NewRun, Phase, RunEnd, RunState, World, begin, drive,
};
use fabro_events::{Event, EventBody, EventSink};
use fabro_gate::{
    AskError, AutoApprove, Chain, GateVisit, Interviewer, Question, QueueInterviewer, Reply,
    Unavailable,
};
use fabro_llm::{Model, ModelError, ModelSource, Part, Request, Role, Script, SimulatedModel};
use fabro_redact::Redactor;
use fabro_sandbox::artifacts::Rules;
use fabro_sandbox::{Captured, Exec, Exit, FakeExec, Finished, LocalExec};
use fabro_store::{Batch, MemoryStore, RunLog, Runs};
use fabro_types::{BlobRef, RunId};
use futures_util::FutureExt as _;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::story::story;

use self::workflows::{Bundle, Children};
use crate::{Agents, ModelDefaults, Registry, Services, StatusFiles};

/// When runs begin; late enough for files on disk to be older.
const LATE_MS: i64 = 4_000_000_000_000;

/// A run that can be driven, by one driver after the other.
pub(super) struct Scene {
    bundle: Bundle,
    goal: String,
    model: String,
    answers: String,
    defaults: ModelDefaults,
    agents: Agents,
    exec: Work,
    inputs: Value,
    people: People,
    started_ms: i64,
    /// When the driver is stopped.
    stop_after: Option<Duration>,
    run_dir: Option<PathBuf>,
    resume_threads: bool,
    workflow_dir: String,
    store: Arc<MemoryStore>,
    run_id: RunId,
    dir: TempDir,
    asked: Arc<Asked>,
    artifacts: Option<Rules>,
    hooks: Mutex<Vec<(String, Hook)>>,
    commits: Arc<Mutex<BTreeSet<(RunId, u64)>>>,
}

/// The result of a call that never waits, as those of a store in memory.
pub(super) fn now<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().unwrap()
}

type Hook = Box<dyn FnOnce() + Send>;

/// Who answers when the prepared answers are used up.
enum People {
    Away,
    /// Asked, but slow.
    Thinking,
    Leaving,
    Broken,
    Agreeing,
}

/// What runs scripts.
enum Work {
    Fake(Arc<FakeExec>),
    /// Real processes, in real time.
    Local,
    Dry,
}

/// Everything the model was sent.
#[derive(Default)]
pub(super) struct Asked(Mutex<Vec<(Arc<str>, Request)>>);

impl Scene {
    pub(super) fn new(source: &str) -> Self {
        let bundle = Bundle {
            name: "test".into(),
            base: String::new(),
            source: source.into(),
            files: BTreeMap::new(),
        };
        Self {
            bundle,
            goal: "Ship it".into(),
            model: "{}".into(),
            answers: "{}".into(),
            defaults: ModelDefaults::default(),
            agents: Agents::default(),
            exec: Work::Fake(Arc::default()),
            inputs: json!({}),
            people: People::Away,
            started_ms: LATE_MS,
            stop_after: None,
            run_dir: None,
            resume_threads: false,
            workflow_dir: String::new(),
            store: Arc::default(),
            run_id: RunId::from_parts(1_700_000_000_000, 7),
            dir: TempDir::new().unwrap(),
            asked: Arc::default(),
            artifacts: None,
            hooks: Mutex::default(),
            commits: Arc::default(),
        }
    }

    pub(super) fn model(mut self, script: &str) -> Self {
        self.model = script.into();
        self
    }

    pub(super) fn agents(mut self, agents: Agents) -> Self {
        self.agents = agents;
        self
    }

    pub(super) fn answers(mut self, answers: &str) -> Self {
        self.answers = answers.into();
        self
    }

    /// Scripts and what they print; they succeed.
    pub(super) fn prints(self, scripts: &[(&str, &str)]) -> Self {
        let with =
            |exec: FakeExec, (script, out): &(&str, &str)| exec.with(*script, Exit::Code(0), out);
        let exec = scripts.iter().fold(FakeExec::new(), with);
        self.exec(exec)
    }

    pub(super) fn exec(mut self, exec: FakeExec) -> Self {
        self.exec = Work::Fake(Arc::new(exec));
        self
    }

    pub(super) fn local(mut self) -> Self {
        self.exec = Work::Local;
        self
    }

    pub(super) fn resuming_threads(mut self) -> Self {
        self.resume_threads = true;
        self
    }

    /// Keeps artifacts: those of test tools, and these.
    pub(super) fn keeping(mut self, include: &[&str]) -> Self {
        let include: Vec<String> = include.iter().map(|&pattern| pattern.into()).collect();
        self.artifacts = Some(Rules::new(&include, &[]).unwrap());
        self
    }

    pub(super) fn dry(mut self) -> Self {
        self.exec = Work::Dry;
        self
    }

    pub(super) fn inputs(mut self, inputs: Value) -> Self {
        self.inputs = inputs;
        self
    }

    pub(super) fn file(mut self, path: &str, text: &str) -> Self {
        self.bundle.files.insert(path.into(), text.into());
        self
    }

    pub(super) fn thinking(mut self) -> Self {
        self.people = People::Thinking;
        self
    }

    pub(super) fn leaving(mut self) -> Self {
        self.people = People::Leaving;
        self
    }

    pub(super) fn with_a_broken_terminal(mut self) -> Self {
        self.people = People::Broken;
        self
    }

    pub(super) fn agreeing(mut self) -> Self {
        self.people = People::Agreeing;
        self
    }

    /// Says something to the run as soon as an event of this name is committed.
    pub(super) fn posts(self, event: &str, message: fabro_store::Message) -> Self {
        let store = Arc::clone(&self.store);
        let run_id = self.run_id;
        self.when(event, move || {
            now(fabro_store::Inbox::post(&*store, run_id, &message)).unwrap();
        })
    }

    /// Does something as soon as an event of this name is committed, once.
    pub(super) fn when(self, event: &str, hook: impl FnOnce() + Send + 'static) -> Self {
        self.hooks.lock().unwrap().push((event.to_owned(), Box::new(hook)));
        self
    }

    /// Puts a file into the working directory when an agent has begun.
    pub(super) fn agent_writes(self, name: &str, text: &str) -> Self {
        let path = self.work_dir().join(name);
        let text = text.to_owned();
        self.when("agent.message", move || std::fs::write(path, text).unwrap())
    }

    pub(super) fn run_id(&self) -> RunId {
        self.run_id
    }

    pub(super) fn run_dir(&self) -> PathBuf {
        let runs = self.run_dir.clone().unwrap_or_else(|| self.dir.path().join("runs"));
        runs.join(self.run_id.to_string())
    }

    pub(super) fn work_dir(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Drives the run until it ends or waits, from where it is.
    pub(super) fn drive(&self) -> Result<RunEnd, DriveError> {
        self.drive_with(None)
    }

    /// The same with a spending limit for a run that is resumed.
    pub(super) fn drive_with(&self, max_cost: Option<f64>) -> Result<RunEnd, DriveError> {
        let paused = !matches!(self.exec, Work::Local);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(paused);
        runtime.build().unwrap().block_on(self.driven(max_cost))
    }

    async fn driven(&self, max_cost: Option<f64>) -> Result<RunEnd, DriveError> {
        let plan = Arc::new(self.bundle.plan().unwrap());
        let dry_run = matches!(self.exec, Work::Dry);
        if self.events().is_empty() {
            if !self.work_dir().exists() {
                std::fs::create_dir(self.work_dir()).unwrap();
            }
            let new = NewRun {
                goal: self.goal.clone(),
                inputs: self.inputs.as_object().cloned().unwrap_or_default(),
                work_dir: self.work_dir().display().to_string(),
                bundle: self.bundle.to_bytes(),
                dry_run,
                context: [
                    Some((crate::WORKFLOW_DIR, Value::from(self.workflow_dir.as_str()))),
                    self.resume_threads.then(|| (fabro_engine::keys::RESUME_THREADS, true.into())),
                ]
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.to_owned(), Arc::new(value)))
                .collect(),
                ..NewRun::default()
            };
            let commit = begin(self.run_id, self.started_ms, &plan, new);
            let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
            now(self.store.append(self.run_id, 0, &batch)).unwrap();
        }
        let state = self.state();
        let first = match state.phase {
            Phase::Created => Input::Start,
            _ => Input::Resume { max_cost },
        };
        let now_ms = state.updated_ms;
        let since = tokio::time::Instant::now();
        let clock = Arc::new(move || now_ms + i64::try_from(since.elapsed().as_millis()).unwrap());
        let sink: Arc<dyn EventSink> = Arc::new(Sink {
            files: StatusFiles::new(self.run_dir().parent().unwrap(), |_| {}),
            store: Arc::clone(&self.store),
            commits: Arc::clone(&self.commits),
            hooks: Mutex::new(std::mem::take(&mut *self.hooks.lock().unwrap())),
        });
        let exec: Option<Arc<dyn Exec>> = match &self.exec {
            Work::Fake(exec) => Some(Arc::clone(exec) as _),
            Work::Local => Some(Arc::new(LocalExec::new())),
            Work::Dry => None,
        };
        let script = Script::from_json(&self.model).unwrap();
        let asked = Arc::clone(&self.asked);
        let models: ModelSource = Arc::new(move |stage| {
            let node: Arc<str> = stage.node.into();
            let model: Box<dyn Model> = if dry_run {
                Box::new(SimulatedModel { node: Arc::clone(&node) })
            } else {
                Box::new(script.model_of(stage))
            };
            Arc::new(Listening { node, model, asked: Arc::clone(&asked) })
        });
        let handler = Registry::new(Services {
            exec,
            env: Vec::new(),
            models,
            defaults: self.defaults.clone(),
            agents: self.agents.clone(),
            interviewer: self.interviewer(dry_run),
            user: "ann".to_owned(),
            children: Arc::new(Children),
            sink: Arc::clone(&sink),
            artifacts: self.artifacts.clone(),
            clock: Arc::clone(&clock) as _,
        });
        let stop = CancellationToken::new();
        if let Some(after) = self.stop_after {
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                stop.cancel();
            });
        }
        let world = World {
            store: Arc::clone(&self.store) as _,
            handler,
            sink,
            clock,
            run_dir: self.run_dir(),
            stop,
        };
        drive(Machine::new(plan, state), first, world).await
    }

    fn interviewer(&self, dry_run: bool) -> Arc<dyn Interviewer> {
        let queue = QueueInterviewer::from_json(&self.answers).unwrap();
        for event in self.events() {
            if matches!(&event.entry.body, EventBody::GateAnswered { source, .. } if source == "answers")
            {
                let gate = GateVisit {
                    node: event.entry.node_id.clone().unwrap_or_default(),
                    visit: event.entry.visit.unwrap_or(1),
                    branch: event.entry.branch.clone(),
                };
                queue.skip(&gate, 1);
            }
        }
        match self.people {
            _ if dry_run => Arc::new(Chain(queue, AutoApprove)),
            People::Agreeing => Arc::new(Chain(queue, AutoApprove)),
            People::Away => Arc::new(Chain(queue, Unavailable)),
            People::Thinking => Arc::new(Chain(queue, Silent)),
            People::Leaving => Arc::new(Chain(queue, Leaving)),
            People::Broken => Arc::new(Chain(queue, Broken)),
        }
    }

    /// Drives the run and tells the story of all of it.
    #[track_caller]
    pub(super) fn story(&self) -> String {
        self.drive().unwrap();
        story(&self.events())
    }

    pub(super) fn events(&self) -> Vec<Event> {
        now(self.store.read(self.run_id, 0, usize::MAX)).unwrap()
    }

    /// What the log of a run can be when its driver died, shortest first.
    pub(super) fn beginnings(&self, run: RunId) -> Vec<Vec<Event>> {
        let events = now(self.store.read(run, 0, usize::MAX)).unwrap();
        let commits = self.commits.lock().unwrap();
        let ends =
            (1..events.len()).filter(|end| *end == 1 || commits.contains(&(run, *end as u64)));
        ends.map(|end| events[..end].to_vec()).collect()
    }

    pub(super) fn state(&self) -> RunState {
        RunState::replay(self.run_id, &self.events())
    }

    /// A context value of the main line, read back when it is a reference.
    pub(super) fn value(&self, key: &str) -> Value {
        let state = self.state();
        let value = state.main().unwrap().context.get(key).cloned().unwrap_or_default();
        match BlobRef::from_value(&value) {
            Some(blob) => fabro_engine::read_blob(&*self.store, &blob).unwrap(),
            None => value,
        }
    }

    /// Those keys of the final context that begin so, one a line.
    pub(super) fn context(&self, prefixes: &[&str]) -> String {
        let mut text = String::new();
        for (key, _) in self.state().main().unwrap().context.iter() {
            if prefixes.iter().any(|prefix| key.starts_with(prefix)) {
                let _ = writeln!(text, "{key} = {}", self.value(key));
            }
        }
        text
    }

    /// A file of a stage: `002-plan@1/prompt.md`.
    #[track_caller]
    pub(super) fn read(&self, path: &str) -> String {
        let path = self.run_dir().join("stages").join(path);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let hex = |word: &str| word.replace(&self.dir.path().display().to_string(), "DIR");
        hex(&text).replace(&self.run_id.to_string(), "RUN")
    }

    /// All files of all stages, in order.
    pub(super) fn stage_files(&self) -> String {
        fn walk(dir: PathBuf, base: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(path, base, found);
                } else {
                    found.push(path.strip_prefix(base).unwrap().display().to_string());
                }
            }
        }
        let base = self.run_dir().join("stages");
        let mut found = Vec::new();
        walk(base.clone(), &base, &mut found);
        found.sort();
        found.join("\n")
    }

    /// The scripts that were run.
    pub(super) fn ran(&self) -> Vec<String> {
        match &self.exec {
            Work::Fake(exec) => exec.ran(),
            _ => Vec::new(),
        }
    }

    /// What the model was sent, a line a request: the last line of every message.
    pub(super) fn asked(&self) -> String {
        let mut text = String::new();
        for (node, request) in self.asked.0.lock().unwrap().iter() {
            let _ = write!(text, "{node}:");
            // What the system says is the same for every agent.
            for message in request.messages.iter().filter(|m| m.role != Role::System) {
                let who = match message.role {
                    Role::User => '>',
                    Role::Assistant => '<',
                    _ => '?',
                };
                let said = message.text();
                let _ = write!(text, " {who} {}", said.lines().last().unwrap_or_default());
            }
            text.push('\n');
        }
        text
    }
}

/// Writes `status.json`s and says what the scene wants said.
struct Sink {
    files: StatusFiles,
    store: Arc<MemoryStore>,
    /// The last events of all commits.
    commits: Arc<Mutex<BTreeSet<(RunId, u64)>>>,
    hooks: Mutex<Vec<(String, Hook)>>,
}

impl EventSink for Sink {
    fn event(&self, event: &Event) {
        self.files.event(event);
        // Events are reported after their commit, so the log ends with it.
        let last = now(self.store.last_seq(event.run_id)).unwrap();
        self.commits.lock().unwrap().insert((event.run_id, last));
        let name = event.to_json()["event"].as_str().unwrap().to_owned();
        let mut hooks = self.hooks.lock().unwrap();
        if let Some(at) = hooks.iter().position(|(wanted, _)| *wanted == name) {
            let (_, hook) = hooks.remove(at);
            hook();
        }
    }
}

struct Listening {
    node: Arc<str>,
    model: Box<dyn Model>,
    asked: Arc<Asked>,
}

impl Model for Listening {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        self.asked.0.lock().unwrap().push((Arc::clone(&self.node), request.clone()));
        self.model.stream(request)
    }
}

/// Never comes back.
struct Silent;

#[async_trait]
impl Interviewer for Silent {
    async fn ask(&self, _: &Question) -> Result<Reply, AskError> {
        std::future::pending().await
    }
}

/// Presses Escape.
struct Leaving;

#[async_trait]
impl Interviewer for Leaving {
    async fn ask(&self, _: &Question) -> Result<Reply, AskError> {
        Err(AskError::Interrupted)
    }
}

/// A terminal that cannot be read.
struct Broken;

#[async_trait]
impl Interviewer for Broken {
    async fn ask(&self, _: &Question) -> Result<Reply, AskError> {
        Err(AskError::Terminal { reason: "no such device".to_owned() })
    }
}

pub(super) fn answer(node: &str, choice: &str) -> fabro_store::Message {
    fabro_store::Message::Answer {
        node: node.into(),
        visit: 1,
        branch: None,
        choice: choice.into(),
        source: "inbox".into(),
        by: None,
    }
}

pub(super) fn printed(exit: Exit, stdout: &str, stderr: &str) -> Finished {
    Finished {
        exit,
        stdout: Captured::Text(stdout.into()),
        stderr: Captured::Text(stderr.into()),
        unredacted: [None, None],
        duration: std::time::Duration::ZERO,
    }
}

#[track_caller]
pub(super) fn check(source: &str, model: &str, expect: &[&str]) -> Scene {
    let scene = Scene::new(source).model(model);
    let story = scene.story();
    for line in expect {
        assert!(story.contains(line), "no {line:?} in\n{story}");
    }
    scene
}

/// The same value with its keys in order.
pub(super) fn object(pairs: &[(&str, Value)]) -> Value {
    Value::Object(pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect::<Map<_, _>>())
}
