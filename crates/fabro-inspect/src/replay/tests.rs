//! Runs that are recorded and replayed.

mod agents;
mod differences;
mod files;
mod limits;
mod people;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fabro_engine::{Input, Machine, NewRun, RunEnd, RunState, World, begin, drive};
use fabro_events::{Event, EventBody};
use fabro_gate::QueueInterviewer;
use fabro_handlers::{Agents, LocalToolbox, ModelDefaults, Registry, Services, read_all};
use fabro_llm::Script;
use fabro_redact::Redactor;
use fabro_run::{Bundle, BundledChildren, RunSettings};
use fabro_sandbox::{Exit, FakeExec};
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::RunId;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::replay::{Replay, Report, replay};

/// A recorded run.
struct Taped {
    store: Arc<MemoryStore>,
    run: RunId,
    bundle: Bundle,
    scripts: Vec<(String, i32, String)>,
    endless: Vec<String>,
    model: String,
    answers: String,
    dir: TempDir,
}

/// The result of a call that never waits, as those of a store in memory.
pub(super) fn now<T>(call: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(call).unwrap()
}

impl Taped {
    fn new(source: &str) -> Self {
        Self {
            store: Arc::default(),
            run: RunId::from_parts(1_700_000_000_000, 7),
            bundle: bundle(source),
            scripts: Vec::new(),
            endless: Vec::new(),
            model: "{}".to_owned(),
            answers: "{}".to_owned(),
            dir: TempDir::new().unwrap(),
        }
    }

    fn model(self, script: &str) -> Self {
        Self { model: script.to_owned(), ..self }
    }

    fn answers(self, answers: &str) -> Self {
        Self { answers: answers.to_owned(), ..self }
    }

    fn prints(mut self, script: &str, out: &str) -> Self {
        self.scripts.push((script.to_owned(), 0, out.to_owned()));
        self
    }

    fn exits(mut self, script: &str, code: i32) -> Self {
        self.scripts.push((script.to_owned(), code, String::new()));
        self
    }

    fn hangs(mut self, script: &str) -> Self {
        self.endless.push(script.to_owned());
        self
    }

    /// Records it, until it ends or waits.
    fn record(self) -> Self {
        let plan = self.bundle.plan().unwrap();
        std::fs::write(self.dir.path().join("a.txt"), "seven\n").unwrap();
        let new = NewRun {
            goal: "Ship it".into(),
            work_dir: self.dir.path().display().to_string(),
            bundle: self.bundle.to_bytes(),
            ..NewRun::default()
        };
        let commit = begin(self.run, 1_000, &plan, new);
        let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
        now(self.store.append(self.run, 0, &batch)).unwrap();
        self.drive(Input::Start);
        self
    }

    /// Resumes it.
    fn resume(self) -> Self {
        self.drive(Input::Resume { max_cost: None });
        self
    }

    fn drive(&self, first: Input) -> RunEnd {
        let scripts = self.scripts.iter();
        let exec = scripts.fold(FakeExec::new(), |exec, (script, code, out)| {
            exec.with(script.as_str(), Exit::Code(*code), out)
        });
        let exec = self.endless.iter().fold(exec, FakeExec::with_endless);
        let exec = Arc::new(exec);
        let toolbox = LocalToolbox::new(Arc::clone(&exec) as _, Vec::new(), Redactor::default());
        let script = Script::from_json(&self.model).unwrap();
        let handler = Registry::new(Services {
            exec: Some(exec),
            env: Vec::new(),
            models: Arc::new(move |stage| Arc::new(script.model_of(stage))),
            defaults: ModelDefaults::default(),
            agents: Agents {
                settings: self.bundle.settings.agent.clone(),
                toolbox: Arc::new(toolbox),
                ..Agents::default()
            },
            interviewer: Arc::new(QueueInterviewer::from_json(&self.answers).unwrap()),
            user: "ann".to_owned(),
            children: Arc::new(BundledChildren),
            sink: Arc::new(|_: &Event| {}),
            artifacts: None,
            clock: Arc::new(|| 2_000),
        });
        let plan = Arc::new(self.bundle.plan().unwrap());
        let state = RunState::replay(self.run, &self.events());
        let machine = Machine::new(plan, state);
        let world = World {
            store: Arc::clone(&self.store) as _,
            handler,
            sink: Arc::new(|_: &Event| {}),
            clock: Arc::new(|| 2_000),
            run_dir: self.run_dir(),
            stop: CancellationToken::new(),
        };
        block_on(drive(machine, first, world)).unwrap()
    }

    fn run_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("runs").join(self.run.to_string())
    }

    fn events(&self) -> Vec<Event> {
        now(read_all(&*self.store, self.run)).unwrap()
    }

    /// Where the log could end: before the first event of each record, those of the first stage left
    /// aside.
    fn places(&self) -> Vec<usize> {
        let begins = |event: &Event| match &event.entry.body {
            EventBody::StageCompleted(_) | EventBody::StageFailed(_) => {
                !matches!(event.entry.node_id.as_deref(), Some("start" | "exit"))
            }
            EventBody::StageRetrying { .. }
            | EventBody::AgentToolCompleted(_)
            | EventBody::AgentSubSpawned { .. }
            | EventBody::GateAsked { .. }
            | EventBody::GateAnswered { .. } => true,
            _ => false,
        };
        // A question is recorded with its answer, and with what a correction says of the one before.
        let says = |event: &Event| matches!(event.entry.body, EventBody::AgentMessage { .. });
        let warns = |event: &Event| matches!(event.entry.body, EventBody::AgentWarning { .. });
        let joins = |event: &Event| matches!(event.entry.body, EventBody::ParallelCompleted { .. });
        let events = self.events();
        let is_place = |place: &usize| match (&events[place - 1], &events[*place]) {
            (before, event) if says(event) => !says(before) && !warns(before),
            // A fan-out ends together with its branches.
            (before, _) if joins(before) => false,
            (_, event) => begins(event),
        };
        (1..events.len()).filter(is_place).collect()
    }

    /// The same run, killed after this many events.
    fn cut(self, place: usize) -> Self {
        use fabro_blob::BlobStore as _;
        let events = self.events();
        let store = MemoryStore::default();
        // Blobs of a store in memory are kept apart from its logs.
        for event in &events {
            for blob in blobs(&serde_json::to_value(&event.entry).unwrap()) {
                store.put(&self.store.get(&blob).unwrap()).unwrap();
            }
        }
        now(store.append(self.run, 0, &Batch::of(&events[..place]))).unwrap();
        Self { store: Arc::new(store), ..self }
    }

    /// Replays the run as it would be had it been killed at any place, and resumed.
    #[track_caller]
    fn check_everywhere(record: impl Fn() -> Self) {
        for place in record().places() {
            let cut = record().cut(place);
            let report = cut.replay();
            assert!(report.is_same() && !report.is_whole, "cut at {place}: {}", summary(&report));
            let report = cut.resume().replay();
            assert!(
                report.is_same() && report.is_whole,
                "resumed at {place}: {}",
                summary(&report)
            );
        }
    }

    fn replay(&self) -> Report {
        self.replay_with(None)
    }

    /// With every `from` in the workflow replaced.
    fn with(&self, from: &str, to: &str) -> Report {
        assert!(self.bundle.source.contains(from), "{from}");
        self.replay_with(Some(bundle(&self.bundle.source.replace(from, to))))
    }

    fn replay_with(&self, workflow: Option<Bundle>) -> Report {
        let before = self.events();
        let run_dir = Some(self.run_dir());
        let what =
            Replay { workflow, run_dir, ..Replay::new(Arc::clone(&self.store) as _, self.run) };
        let report = block_on(replay(what)).unwrap();
        assert_eq!(self.events(), before, "a replay changes nothing");
        report
    }
}

fn bundle(source: &str) -> Bundle {
    Bundle {
        name: "test".into(),
        file: "test.fabro".into(),
        base: String::new(),
        source: source.into(),
        files: BTreeMap::new(),
        settings: RunSettings::default(),
        constants: None,
    }
}

fn blobs(value: &Value) -> Vec<fabro_types::BlobRef> {
    match value {
        Value::Object(map) => map.values().flat_map(blobs).collect(),
        Value::Array(list) => list.iter().flat_map(blobs).collect(),
        other => fabro_types::BlobRef::from_value(other).into_iter().collect(),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// A report as text.
fn summary(report: &Report) -> String {
    let mut text = format!("{} compared", report.compared);
    if !report.is_whole {
        text.push_str(", without an end");
    }
    for it in &report.differences {
        let place = it.branch.iter().map(|branch| format!("{branch} ")).chain(it.stage.clone());
        let _ = write!(text, "\n{} {}", it.aspect.as_str(), place.collect::<String>());
        match &it.diff {
            Some(diff) => _ = write!(text, "\n{}", diff.trim_end()),
            None => {
                let _ = write!(text, "\n- {:?}\n+ {:?}", it.recorded, it.replayed);
            }
        }
    }
    for it in &report.unanswered {
        let _ = write!(text, "\n{it}");
    }
    text
}
