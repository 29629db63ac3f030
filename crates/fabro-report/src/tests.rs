//! Reports on real logs: a machine runs workflows whose stages are written down beside them.

use std::fmt::Write as _;
use std::sync::Arc;

use fabro_blob::{BlobStore, MemoryBlobs};
use fabro_engine::{Finished, Input, Machine, NewRun, Plan, RunState, begin, checkpoint};
use fabro_events::{Event, EventBody, GateOption, PauseReason, QuestionType};
use fabro_graph::Workflow;
use fabro_store::RunSummary;
use fabro_types::{BlobRef, ContextPatch, Failure, FailureClass, Outcome, RunId, RunStatus, Usage};
use serde_json::{Value, json};

use super::*;

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
        let machine = Machine::new(plan, state, Arc::clone(&blobs) as _);
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

#[test]
fn inspect_lists_every_visit() {
    let bench = repaired();
    let report = inspect(&bench.events, false).unwrap();
    let mut rows = String::new();
    for row in &report.stages {
        writeln!(rows, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    insta::assert_snapshot!(rows, @r#"
    {"rank":1,"node":"start","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:01.000Z","ended_at":"1970-01-01T00:00:01.000Z","attempts":1,"edge":"plan"}
    {"rank":2,"node":"plan","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:01.000Z","ended_at":"1970-01-01T00:00:02.000Z","attempts":1,"edge":"test"}
    {"rank":3,"node":"test","visit":1,"branch":null,"status":"failed","started_at":"1970-01-01T00:00:02.000Z","ended_at":"1970-01-01T00:00:03.000Z","attempts":1,"edge":"repair"}
    {"rank":4,"node":"repair","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:03.000Z","ended_at":"1970-01-01T00:00:04.000Z","attempts":1,"edge":"test"}
    {"rank":5,"node":"test","visit":2,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:04.000Z","ended_at":"1970-01-01T00:00:05.000Z","attempts":1,"edge":"done"}
    {"rank":6,"node":"done","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:05.000Z","ended_at":"1970-01-01T00:00:06.000Z","attempts":1,"edge":"exit"}
    {"rank":7,"node":"exit","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:06.000Z","ended_at":"1970-01-01T00:00:06.000Z","attempts":1,"edge":null}
    "#);
    let head = Inspect { stages: Vec::new(), ..report };
    insta::assert_snapshot!(serde_json::to_string(&head).unwrap(), @r#"{"id":"01HF7YAT000000000000000007","workflow":"fix","status":"succeeded","goal":"Fix it","inputs":{"repo":"demo"},"seed":9,"stages":[],"usage":{"input_tokens":120,"output_tokens":30,"turns":1}}"#);
}

#[test]
fn a_stage_at_work_has_the_status_of_its_run() {
    let mut bench = Bench::new(LOOP);
    let status = |events: &[Event], driven| inspect(events, driven).unwrap().stages[1].status;
    assert_eq!(status(&bench.events, true), "running");
    assert_eq!(status(&bench.events, false), "interrupted");
    bench.input(Input::Cancel { reason: "enough".into() });
    assert_eq!(status(&bench.events, false), "canceled");
}

#[test]
fn branches_have_rows_of_their_own_and_canceled_ones_end() {
    let mut bench = Bench::new(
        "digraph { start -> fork; fork [shape=component, join_policy=first_success]
        fork -> a -> join; fork -> b -> join; join -> exit }",
    );
    bench.end("b", ok());
    bench.finish();
    let mut rows = String::new();
    for row in inspect(&bench.events, false).unwrap().stages {
        writeln!(rows, "{} {:?} {} {:?}", row.node, row.branch, row.status, row.edge).unwrap();
    }
    insta::assert_snapshot!(rows, @r#"
    start None succeeded Some("fork")
    fork None succeeded Some("join")
    a Some("fork@1/a") canceled None
    b Some("fork@1/b") succeeded Some("join")
    join None succeeded Some("exit")
    exit None succeeded None
    "#);
}

#[test]
fn explain_shows_every_candidate() {
    let bench = repaired();
    insta::assert_snapshot!(pretty(&explain(&bench.events, "test@1").unwrap()), @r#"
    {
      "chosen": "repair",
      "tier": "condition",
      "candidates": [
        {
          "to": "done",
          "label": null,
          "condition": "outcome=succeeded",
          "weight": 0,
          "holds": false,
          "clauses": [
            {
              "text": "outcome=succeeded",
              "value": "failed",
              "holds": false
            }
          ]
        },
        {
          "to": "repair",
          "label": "again",
          "condition": "outcome=failed",
          "weight": 0,
          "holds": true,
          "clauses": [
            {
              "text": "outcome=failed",
              "value": "failed",
              "holds": true
            }
          ]
        }
      ]
    }
    "#);
    assert_eq!(explain(&bench.events, "test").unwrap().chosen.as_deref(), Some("done"));
    let message = |stage| explain(&bench.events, stage).unwrap_err().to_string();
    insta::assert_snapshot!(message("exit"), @"no edge was taken after `exit@1`: the run ended there");
    insta::assert_snapshot!(message("test@3"), @"the run has no stage `test@3`; it has start, plan, test, repair, done, exit");
}

fn compact(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn explain_shows_what_a_failed_run_was_stuck_at() {
    let source =
        r#"digraph { start -> a; a -> exit [condition="outcome=success && context.size > 7"] }"#;
    let mut bench = Bench::new(source);
    bench.end("a", ok().with_update("size", 5));
    insta::assert_snapshot!(compact(&explain(&bench.events, "a").unwrap()), @r#"{"chosen":null,"tier":null,"failure":{"class":"structural","message":"no matching edge leads on from `a`","signature":"a|structural|no matching edge leads on from `a`"},"candidates":[{"to":"exit","label":null,"condition":"outcome=success && context.size > 7","weight":0,"holds":false,"clauses":[{"text":"outcome=success","value":"succeeded","holds":true},{"text":"context.size > 7","value":"5","holds":false}]}]}"#);
    let report = inspect(&bench.events, false).unwrap();
    insta::assert_snapshot!(compact(&report.failure), @r#"{"class":"structural","message":"no matching edge leads on from `a`","signature":"a|structural|no matching edge leads on from `a`"}"#);

    let mut bench = Bench::new(
        r#"digraph { start -> fork; fork [shape=component]; join [shape=tripleoctagon]
        fork -> a; a -> join [condition="outcome=success"]; fork -> b -> join; join -> exit }"#,
    );
    bench.end("a", exits(3));
    insta::assert_snapshot!(compact(&explain(&bench.events, "a").unwrap()), @r#"{"chosen":null,"tier":null,"failure":{"class":"deterministic","message":"exit code 3","signature":"a|deterministic|exit code <n>"},"candidates":[{"to":"join","label":null,"condition":"outcome=success","weight":0,"holds":false,"clauses":[{"text":"outcome=success","value":"failed","holds":false}]}]}"#);
    bench.finish();
    assert!(inspect(&bench.events, false).unwrap().failure.is_none());

    let mut restart = Bench::new("digraph { start -> a; a -> b [loop_restart=true]; b -> exit }");
    restart.end("a", exits(3));
    insta::assert_snapshot!(compact(&explain(&restart.events, "a").unwrap()), @r#"{"chosen":null,"tier":null,"failure":{"class":"deterministic","message":"a failure of class deterministic does not restart the loop: exit code 3","signature":"a|deterministic|exit code <n>"},"candidates":[{"to":"b","label":null,"condition":null,"weight":0,"holds":true,"clauses":[]}]}"#);
}

#[test]
fn explain_shows_the_jump_of_a_goal_gate_before_the_exit_is_reached() {
    let mut bench =
        Bench::new("digraph { start -> a -> exit; a [goal_gate=true, retry_target=a] }");
    bench.end("a", exits(3));
    insta::assert_snapshot!(compact(&explain(&bench.events, "exit").unwrap()), @r#"{"chosen":"a","tier":"goal_gate","gate":"a","candidates":[]}"#);
    assert!(stage(&bench.events, "exit", &*bench.blobs).is_err());
}

#[test]
fn explain_shows_what_was_drawn() {
    let source = "digraph { start -> a; a [selection=random]; a -> b -> exit; a -> c -> exit }";
    let mut bench = Bench::new(source);
    bench.end("a", ok());
    let report = explain(&bench.events, "a").unwrap();
    assert_eq!((report.tier, report.seed), (Some(fabro_events::Tier::Unconditional), Some(9)));
    assert_eq!(explain(&bench.events, "start").unwrap().seed, None);
}

#[test]
fn a_stage_shows_what_went_in_and_what_came_out() {
    let bench = repaired();
    let report = |name| pretty(&stage(&bench.events, name, &*bench.blobs).unwrap());
    insta::assert_snapshot!(report("plan"), @r#"
    {
      "node": "plan",
      "visit": 1,
      "prompt": "Plan it",
      "response": "Do it",
      "outcome": {
        "status": "succeeded",
        "context_updates": {
          "response.plan": "Do it",
          "size": 1
        },
        "usage": {
          "input_tokens": 120,
          "output_tokens": 30,
          "turns": 1
        },
        "duration_ms": 1234
      }
    }
    "#);
    insta::assert_snapshot!(report("test@1"), @r#"
    {
      "node": "test",
      "visit": 1,
      "prompt": null,
      "response": "boom",
      "outcome": {
        "status": "failed",
        "context_updates": {
          "command.output": "blob://sha256/20b9458ca349a629a028ec64e716294abd767b0059bd4adb6ec0ea4fcf766725"
        },
        "failure": {
          "class": "deterministic",
          "message": "exit code 1",
          "signature": "test|deterministic|exit code <n>"
        },
        "duration_ms": 40
      }
    }
    "#);
    let empty = MemoryBlobs::default();
    let error = stage(&bench.events, "plan", &empty).unwrap_err();
    assert!(error.is_store());
}

#[test]
fn the_context_after_a_stage_and_what_changed() {
    let bench = repaired();
    let context = context_at(&bench.events, Some("test@1")).unwrap();
    assert_eq!(context.get("size"), Some(&json!(1)));
    assert_eq!(context.text("outcome"), "failed");
    assert_eq!(context_at(&bench.events, None).unwrap().get("size"), Some(&json!(2)));
    let changes = diff(&bench.events, "test@1", "repair").unwrap();
    let changes: Vec<_> = changes.iter().filter(|change| !change.key.contains('.')).collect();
    insta::assert_snapshot!(serde_json::to_string(&changes).unwrap(), @r#"[{"key":"current_node","before":"test","after":"repair"},{"key":"last_stage","before":"test","after":"repair"},{"key":"outcome","before":"failed","after":"succeeded"},{"key":"size","before":1,"after":2}]"#);
    assert!(matches!(context_at(&[], None), Err(ReportError::Empty)));
}

#[test]
fn a_branch_has_its_own_context() {
    let mut bench = Bench::new(
        "digraph { start -> fork; fork [shape=component]
        fork -> a -> join; fork -> b -> join; join -> exit }",
    );
    bench.end("a", ok().with_update("who", "a"));
    bench.end("b", ok().with_update("who", "b"));
    bench.finish();
    let who = |at| context_at(&bench.events, at).unwrap().text("who").to_owned();
    assert_eq!([who(Some("a")), who(Some("b")), who(None)], ["a", "b", ""]);
}

#[test]
fn a_rewind_takes_back_what_came_after() {
    let mut bench = repaired();
    let run_id = bench.events[0].run_id;
    let effective = checkpoint::effective(&bench.events);
    let at = checkpoint::find(&effective, Some("plan")).unwrap();
    let set = ContextPatch::from([("size".to_owned(), Arc::new(json!(5)))]);
    let last = bench.events.len() as u64;
    bench.events.push(checkpoint::rewind(run_id, &at, last, 99_000, set));
    let report = inspect(&bench.events, false).unwrap();
    assert_eq!(report.status, RunStatus::Interrupted);
    let nodes: Vec<&str> = report.stages.iter().map(|row| row.node.as_ref()).collect();
    assert_eq!(nodes, ["start", "plan"]);
    assert_eq!(context_at(&bench.events, None).unwrap().get("size"), Some(&json!(5)));
    assert!(explain(&bench.events, "test").is_err());
}

#[test]
fn gates_are_open_until_they_are_answered() {
    let mut bench = Bench::new(
        r#"digraph { start -> gate; gate [shape=hexagon, label="Ship?"]
        gate -> exit [label="[Y] Yes"]; gate -> start2 [label="[N] No"]; start2 -> exit }"#,
    );
    let branch: Arc<str> = Arc::from("");
    let option = |key: &str, label: &str, to: &str| GateOption {
        key: key.into(),
        label: label.into(),
        to: to.into(),
    };
    let asked = EventBody::GateAsked {
        question: "Ship?".into(),
        question_type: QuestionType::MultipleChoice,
        options: vec![option("Y", "Yes", "exit"), option("N", "No", "start2")],
        freeform: false,
        deadline_ms: None,
    };
    bench.input(Input::Note {
        branch: Arc::clone(&branch),
        notes: vec![asked.into()],
        blobs: Vec::new(),
    });
    insta::assert_snapshot!(serde_json::to_string(&open_gates(&bench.events)).unwrap(), @r#"[{"node":"gate","visit":1,"branch":null,"question":"Ship?","question_type":"multiple_choice","options":[{"key":"Y","label":"Yes","to":"exit"},{"key":"N","label":"No","to":"start2"}],"freeform":false}]"#);
    bench.input(Input::Idle { gates: vec!["gate".into()] });
    assert_eq!(open_gates(&bench.events).len(), 1);
    assert_eq!(bench.machine.state().phase, fabro_engine::Phase::Paused(PauseReason::Human));
    bench.input(Input::Resume { max_cost: None });
    let answered = EventBody::GateAnswered {
        selected: "Y".into(),
        label: "Yes".into(),
        text: None,
        source: "cli".into(),
    };
    bench.input(Input::Note { branch, notes: vec![answered.into()], blobs: Vec::new() });
    assert_eq!(open_gates(&bench.events), []);
    bench.end("gate", Outcome { preferred_label: Some("Yes".into()), ..ok() });
    bench.finish();
}

#[test]
fn lists_leave_out_sub_workflows() {
    let run = |random, parent| RunSummary {
        id: RunId::from_parts(0, random),
        parent,
        workflow: "w".into(),
        goal: String::new(),
        status: RunStatus::Running,
        started_at_ms: 1,
        ended_at_ms: None,
    };
    let runs = vec![run(1, None), run(2, Some(RunId::from_parts(0, 1)))];
    insta::assert_snapshot!(serde_json::to_string(&ps(runs.clone(), false)).unwrap(), @r#"[{"id":"00000000000000000000000001","workflow":"w","status":"running","started_at":"1970-01-01T00:00:00.001Z","ended_at":null,"goal":""}]"#);
    assert_eq!(ps(runs, true).len(), 2);
}

#[test]
fn a_branch_is_taken_with_those_inside_it() {
    let names = ["", "f@1/a", "f@1/a-b", "f@1/a/g@1/x", "f@1/a/g@1/y", "f@1/b"];
    let mut map: std::collections::BTreeMap<Arc<str>, &str> =
        names.into_iter().map(|name| (Arc::from(name), name)).collect();
    assert_eq!(at::take_line(&mut map, "f@1/a"), ["f@1/a", "f@1/a/g@1/x", "f@1/a/g@1/y"]);
    assert_eq!(map.into_values().collect::<Vec<_>>(), ["", "f@1/a-b", "f@1/b"]);
}

#[test]
fn ten_thousand_canceled_branches_take_no_time() {
    let run_id = RunId::from_parts(0, 1);
    let mut events = Bench::new(LOOP).events;
    let mut push = |node: &str, branch: String, body: EventBody| {
        let entry = fabro_events::Entry {
            node_id: Some(node.into()),
            visit: Some(1),
            branch: Some(branch.into()),
            ..fabro_events::Entry::new(body)
        };
        let seq = events.len() as u64 + 1;
        events.push(Event { run_id, seq, ts_ms: 0, entry });
    };
    let started = |rank| EventBody::StageStarted {
        rank,
        handler: "command".into(),
        fidelity: fabro_types::Fidelity::Compact,
        thread_id: None,
    };
    let canceled = || EventBody::BranchCompleted {
        status: fabro_types::Status::Skipped,
        failure: None,
        canceled: true,
        candidates: Vec::new(),
    };
    for rank in 0..10_000 {
        push("n", format!("f@1/n{rank}"), started(rank + 10));
    }
    for rank in 0..10_000 {
        push("n", format!("f@1/n{rank}"), canceled());
    }
    let report = inspect(&events, true).unwrap();
    assert_eq!(report.stages.iter().filter(|row| row.status == "canceled").count(), 10_000);
}

#[test]
fn what_the_model_was_given_is_read_back() {
    let mut bench = Bench::new("digraph { start -> talk -> exit }");
    let mut say = |role: &str, session: &str, parent: Option<&str>, system: &str| {
        let blob = |value: Value| {
            let blob = bench.blobs.put(value.to_string().as_bytes()).unwrap();
            Some(Arc::new(blob.to_value()))
        };
        let tools = if parent.is_none() { blob(json!([{"name": "look"}])) } else { None };
        let given = fabro_events::Given { system: blob(json!(system)), tools };
        let body = EventBody::AgentMessage {
            role: role.to_owned(),
            text: "short".to_owned(),
            message: None,
            usage: None,
            given: Some(Box::new(given)),
        };
        let (session_id, parent_session_id) = (Some(session.into()), parent.map(Into::into));
        let notes = vec![fabro_events::Note { body, session_id, parent_session_id }];
        bench.input(Input::Note { branch: Arc::from(""), notes, blobs: Vec::new() });
    };
    say("user", "talk@1", None, "Be brief.");
    say("user", "talk@1/a1", Some("talk@1"), "Be quick.");
    say("assistant", "talk@1", None, "Be kind.");
    let report = stage(&bench.events, "talk", &*bench.blobs).unwrap();
    insta::assert_snapshot!(serde_json::to_string(&report).unwrap(), @r#"{"node":"talk","visit":1,"system":"Be brief.","tools":[{"name":"look"}],"prompt":null,"response":null,"outcome":null,"transcript":[{"role":"user","content":"short"},{"role":"user","session_id":"talk@1/a1","content":"short","system":"Be quick."},{"role":"assistant","content":"short","system":"Be kind.","tools":[{"name":"look"}]}]}"#);
    let missing = stage(&bench.events, "talk", &MemoryBlobs::default()).unwrap_err().to_string();
    assert!(missing.starts_with("the system prompt of `talk@1` cannot be read back"), "{missing}");
}

#[test]
fn a_conversation_is_read_back_from_the_last_attempt() {
    let mut bench = Bench::new("digraph { start -> talk -> exit; talk [max_retries=1] }");
    let branch: Arc<str> = Arc::from("");
    let say = |bench: &mut Bench, bodies: Vec<EventBody>| {
        let notes = bodies.into_iter().map(Into::into).collect();
        bench.input(Input::Note { branch: Arc::clone(&branch), notes, blobs: Vec::new() });
    };
    let message = |role: &str, message: Option<Value>| EventBody::AgentMessage {
        role: role.into(),
        text: "short".into(),
        message: message.map(Arc::new),
        usage: None,
        given: None,
    };
    say(&mut bench, vec![message("user", None)]);
    bench.end("talk", exits(1));
    assert!(matches!(bench.events.last().unwrap().entry.body, EventBody::StageRetrying { .. }));
    let large = bench.blobs.put(br#"{"role":"assistant","content":[{"type":"text","text":"x"}]}"#);
    say(&mut bench, vec![message("user", Some(json!("the whole question")))]);
    let tool = fabro_events::CompletedTool {
        call_id: "1".into(),
        tool: "grep".into(),
        is_error: true,
        output: Arc::new(json!("no such file")),
        files_read: Vec::new(),
        files_modified: Vec::new(),
        duration_ms: 3,
    };
    let steered = EventBody::AgentSteered { text: "Be brief".into(), source: "inbox".into() };
    say(&mut bench, vec![message("assistant", Some(large.unwrap().to_value()))]);
    say(&mut bench, vec![EventBody::AgentToolCompleted(Box::new(tool)), steered]);
    let transcript = stage(&bench.events, "talk", &*bench.blobs).unwrap().transcript;
    let lines: Vec<_> = transcript.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"role":"user","content":"the whole question"}
    {"role":"assistant","content":[{"type":"text","text":"x"}]}
    {"role":"tool","content":"no such file","tool":"grep","call_id":"1","is_error":true}
    {"role":"user","content":"Be brief"}
    "#);
    let (name, events) = conversation(&bench.events, None).unwrap();
    assert_eq!((name.as_str(), events.len()), ("talk@1", 4));
    assert_eq!(conversation(&bench.events, Some("start")).unwrap().1.len(), 0);
    let error = conversation(&bench.events[..2], None).unwrap_err().to_string();
    assert_eq!(error, "no stage of the run has a conversation with a model");
    let missing = stage(&bench.events, "talk", &MemoryBlobs::default()).unwrap_err();
    insta::assert_snapshot!(missing, @"a message of `talk@1` cannot be read back: blob://sha256/b140b90a43115baba8a4aee761602f93fb32d0834a8db00076f897f0f3721003 is not in the store; restore the store's `blobs` directory, or run the stage that made it again");
}
