//! What became of stages, and of the run.

use std::fmt::Write as _;

use fabro_blob::DirBlobs;
use fabro_engine::{Idle, Phase};
use fabro_events::{Entry, GateOption, PauseReason, QuestionType};
use fabro_store::RunSummary;
use fabro_types::{Fidelity, RunStatus, Status};

use fabro_run::open_gates;

use super::*;

#[test]
fn inspect_lists_every_visit() {
    let bench = repaired();
    let report = inspect(&bench.events, false).unwrap();
    let mut rows = String::new();
    for row in &report.stages {
        writeln!(rows, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    insta::assert_snapshot!(rows, @r#"
    {"rank":1,"node":"start","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:01.000Z","ended_at":"1970-01-01T00:00:01.000Z","attempts":1,"edge":"plan","duration_ms":0,"reason":{"tier":"unconditional"}}
    {"rank":2,"node":"plan","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:01.000Z","ended_at":"1970-01-01T00:00:02.000Z","attempts":1,"edge":"test","duration_ms":1000,"usage":{"input_tokens":120,"output_tokens":30,"turns":1},"reason":{"tier":"unconditional"}}
    {"rank":3,"node":"test","visit":1,"branch":null,"status":"failed","started_at":"1970-01-01T00:00:02.000Z","ended_at":"1970-01-01T00:00:03.000Z","attempts":1,"edge":"repair","duration_ms":1000,"failure":{"class":"deterministic","message":"exit code 1","signature":"test|deterministic|exit code <n>"},"reason":{"tier":"condition","condition":"outcome=failed","label":"again"}}
    {"rank":4,"node":"repair","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:03.000Z","ended_at":"1970-01-01T00:00:04.000Z","attempts":1,"edge":"test","duration_ms":1000,"reason":{"tier":"unconditional"}}
    {"rank":5,"node":"test","visit":2,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:04.000Z","ended_at":"1970-01-01T00:00:05.000Z","attempts":1,"edge":"done","duration_ms":1000,"reason":{"tier":"condition","condition":"outcome=succeeded"}}
    {"rank":6,"node":"done","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:05.000Z","ended_at":"1970-01-01T00:00:06.000Z","attempts":1,"edge":"exit","duration_ms":1000,"reason":{"tier":"unconditional"}}
    {"rank":7,"node":"exit","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:06.000Z","ended_at":"1970-01-01T00:00:06.000Z","attempts":1,"edge":null,"duration_ms":0}
    "#);
    let head = Inspect { stages: Vec::new(), ..report };
    insta::assert_snapshot!(serde_json::to_string(&head).unwrap(), @r#"{"id":"01HF7YAT000000000000000007","workflow":"fix","status":"succeeded","goal":"Fix it","inputs":{"repo":"demo"},"seed":9,"started_at":"1970-01-01T00:00:00.000Z","ended_at":"1970-01-01T00:00:06.000Z","duration_ms":6000,"stages":[],"usage":{"input_tokens":120,"output_tokens":30,"turns":1}}"#);
}

#[test]
fn a_running_stage_has_the_status_of_its_run() {
    let mut bench = Bench::new(LOOP);
    let status = |events: &[Event], driven| inspect(events, driven).unwrap().stages[1].status;
    assert_eq!(status(&bench.events, true), "running");
    assert_eq!(status(&bench.events, false), "interrupted");
    bench.input(Input::Cancel { reason: "enough".into(), by_parent: None });
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
fn ten_thousand_canceled_branches_take_no_time() {
    let run_id = RunId::from_parts(0, 1);
    let mut events = Bench::new(LOOP).events;
    let mut push = |node: &str, branch: String, body: EventBody| {
        let entry = Entry {
            node_id: Some(node.into()),
            visit: Some(1),
            branch: Some(branch.into()),
            ..Entry::new(body)
        };
        let seq = events.len() as u64 + 1;
        events.push(Event { run_id, seq, ts_ms: 0, entry });
    };
    let started = |rank| EventBody::StageStarted {
        rank,
        handler: fabro_types::NodeKind::Command,
        fidelity: Fidelity::Compact,
        thread_id: None,
    };
    let canceled = || EventBody::BranchCompleted {
        status: Status::Skipped,
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
fn a_stage_shows_what_went_in_and_what_came_out() {
    let bench = repaired();
    let report = |name| pretty(&stage(&bench.events, name, true, &*bench.blobs).unwrap());
    insta::assert_snapshot!(report("plan"), @r#"
    {
      "rank": 2,
      "node": "plan",
      "visit": 1,
      "branch": null,
      "status": "succeeded",
      "started_at": "1970-01-01T00:00:01.000Z",
      "ended_at": "1970-01-01T00:00:02.000Z",
      "attempts": 1,
      "edge": "test",
      "duration_ms": 1000,
      "usage": {
        "input_tokens": 120,
        "output_tokens": 30,
        "turns": 1
      },
      "reason": {
        "tier": "unconditional"
      },
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
      "rank": 3,
      "node": "test",
      "visit": 1,
      "branch": null,
      "status": "failed",
      "started_at": "1970-01-01T00:00:02.000Z",
      "ended_at": "1970-01-01T00:00:03.000Z",
      "attempts": 1,
      "edge": "repair",
      "duration_ms": 1000,
      "failure": {
        "class": "deterministic",
        "message": "exit code 1",
        "signature": "test|deterministic|exit code <n>"
      },
      "reason": {
        "tier": "condition",
        "condition": "outcome=failed",
        "label": "again"
      },
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
    let empty = DirBlobs::new("/nonexistent");
    let error = stage(&bench.events, "plan", true, &empty).unwrap_err();
    assert!(error.is_store());
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
        unavailable: None,
    };
    let asked = EventBody::GateAsked {
        question: "Ship?".into(),
        question_type: QuestionType::MultipleChoice,
        options: vec![option("Y", "Yes", "exit"), option("N", "No", "start2")],
        freeform: false,
        text_option: None,
        default_choice: None,
        deadline_ms: None,
        item: None,
        show: Vec::new(),
    };
    bench.input(Input::Note {
        branch: Arc::clone(&branch),
        notes: vec![asked.into()],
        blobs: Vec::new(),
    });
    insta::assert_snapshot!(serde_json::to_string(&open_gates(&bench.events)).unwrap(), @r#"[{"node":"gate","visit":1,"branch":null,"question":"Ship?","question_type":"multiple_choice","options":[{"key":"Y","label":"Yes","to":"exit"},{"key":"N","label":"No","to":"start2"}],"freeform":false}]"#);
    bench.input(Input::Idle(Box::new(Idle { gates: vec!["gate".into()], ..Idle::default() })));
    assert_eq!(open_gates(&bench.events).len(), 1);
    assert_eq!(bench.machine.state().phase, Phase::Paused(PauseReason::Human));
    bench.input(Input::Resume { max_cost: None });
    let answered = EventBody::GateAnswered {
        selected: "Y".into(),
        label: "Yes".into(),
        text: None,
        source: "cli".into(),
        by: None,
    };
    bench.input(Input::Note { branch, notes: vec![answered.into()], blobs: Vec::new() });
    assert_eq!(open_gates(&bench.events), []);
    bench.end("gate", Outcome { preferred_label: Some("Yes".into()), ..ok() });
    insta::assert_snapshot!(serde_json::to_string(&explain(&bench.events, "gate").unwrap()).unwrap(), @r#"{"stage":"gate@1","chosen":"exit","tier":"preferred_label","answer":{"selected":"Y","label":"Yes","source":"cli"},"candidates":[{"to":"exit","label":"[Y] Yes","condition":null,"weight":0,"holds":true,"clauses":[],"taken":true},{"to":"start2","label":"[N] No","condition":null,"weight":0,"holds":true,"clauses":[]}]}"#);
    bench.finish();
}
