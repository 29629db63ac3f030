//! Reports on real logs: a machine runs workflows whose stages are written down beside them.

use std::sync::Arc;

use fabro_blob::{BlobStore, MemoryBlobs};
use fabro_engine::{Finished, Input, Machine, NewRun, Plan, RunState, begin};
use fabro_events::{Event, EventBody};
use fabro_graph::Workflow;
use fabro_types::{BlobRef, Failure, FailureClass, Outcome, RunId, Usage};
use serde_json::json;

use super::*;

mod conversation;
mod explain;
mod points;
mod stages;

const LOOP: &str = r#"digraph fix {
    goal="Fix it"
    start -> plan -> test
    test [shape=parallelogram, script="true", label="Run the tests"]
    test -> done [condition="outcome=succeeded"]
    test -> repair [condition="outcome=failed", label="again"]
    repair -> test; done -> exit
}"#;

/// A run on a machine, with a clock that goes a second a step.
struct Bench {
    machine: Machine,
    blobs: Arc<MemoryBlobs>,
    now_ms: i64,
    events: Vec<Event>,
}

impl Bench {
    fn new(source: &str) -> Self {
        let (workflow, findings) = Workflow::from_source("test", source).unwrap();
        assert_eq!(findings, []);
        let plan = Arc::new(Plan::compile(workflow).unwrap());
        let run_id = RunId::from_parts(1_700_000_000_000, 7);
        let inputs = json!({"repo": "demo"}).as_object().cloned().unwrap();
        let new = NewRun { goal: "Fix it".into(), inputs, seed: 9, ..NewRun::default() };
        let created = begin(run_id, 0, &plan, new);
        let state = RunState::replay(run_id, &created.events);
        let blobs = Arc::new(MemoryBlobs::default());
        let machine = Machine::new(plan, state);
        let mut bench = Self { machine, blobs, now_ms: 0, events: created.events };
        bench.input(Input::Start);
        bench
    }

    fn input(&mut self, input: Input) {
        self.now_ms += 1_000;
        self.machine.handle(self.now_ms, input);
        let commit = self.machine.take_commit();
        for (_, bytes) in &commit.blobs {
            self.blobs.put(bytes).unwrap();
        }
        self.events.extend(commit.events);
    }

    /// Ends the stage at work on this node.
    #[track_caller]
    fn end(&mut self, node: &str, finished: impl Into<Finished>) {
        let active: Vec<_> = self.machine.state().active().collect();
        let at = active.iter().find(|(_, stage)| stage.node.as_ref() == node);
        let branch =
            Arc::clone(at.unwrap_or_else(|| panic!("{node} is not at work: {active:?}")).0);
        self.input(Input::Ended { branch, finished: Box::new(finished.into()) });
    }

    /// Ends whatever is at work with success, until the run is over.
    fn finish(&mut self) {
        let next = |bench: &Self| {
            bench.machine.state().active().next().map(|(branch, _)| Arc::clone(branch))
        };
        while let Some(branch) = next(self) {
            self.input(Input::Ended { branch, finished: Box::new(ok().into()) });
        }
    }
}

fn ok() -> Outcome {
    Outcome { duration_ms: 1_234, ..Outcome::succeeded() }
}

fn exits(code: i32) -> Outcome {
    let failure = Failure::new(FailureClass::Deterministic, format!("exit code {code}"));
    Outcome { duration_ms: 40, ..Outcome::failed(failure) }
}

/// `plan`, then `test` fails once and is repaired.
fn repaired() -> Bench {
    let mut bench = Bench::new(LOOP);
    let prompt: Arc<[u8]> = Arc::from(br#""Plan it""#.as_slice());
    let usage = Usage { input_tokens: 120, output_tokens: 30, turns: 1, ..Usage::default() };
    let outcome = Outcome { usage: Some(usage), ..ok() };
    let blob = BlobRef::of(&prompt);
    let finished = Finished {
        prompt: Some(blob),
        blobs: vec![(blob, prompt)],
        ..outcome.with_update("response.plan", "Do it").with_update("size", 1).into()
    };
    bench.end("plan", finished);
    bench.end("test", exits(1).with_update("command.output", "boom"));
    bench.end("repair", ok().with_update("size", 2));
    bench.finish();
    bench
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn compact(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}
