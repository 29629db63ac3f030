//! Lines of real logs: a machine runs workflows whose stages are written down beside them.

use std::fmt::Write as _;
use std::sync::Arc;

use fabro_engine::{Idle, Input, checkpoint};
use fabro_events::{AnsweredBy, Event, EventBody, GateOption, QuestionType};
use fabro_types::{Outcome, RunId};
use serde_json::json;

use super::*;
use machine_run::{Bench, exits, ok, repaired};

#[path = "../../../fixtures/machine_run.rs"]
mod machine_run;

fn lines(events: &[Event]) -> String {
    events.iter().map(line).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}{:?} {}", "  ".repeat(line.depth), line.mark, line.text);
        text
    })
}

fn story(events: &[Event]) -> String {
    let mut story = Story::default();
    let mut text = String::new();
    for told in events.iter().flat_map(|event| story.tell(event)) {
        let _ = match told {
            StoryLine::Stage(it) => writeln!(
                text,
                "{}{} {} {} {:?} -> {:?} ({})",
                "  ".repeat(it.depth),
                it.name,
                it.status,
                took(it.duration_ms),
                it.remark,
                it.to,
                it.why
            ),
            StoryLine::Note(it) => writeln!(text, "{}{}", "  ".repeat(it.depth), it.text),
        };
    }
    assert_eq!(story.running().count(), 0);
    text
}

#[test]
fn a_run_in_sentences() {
    insta::assert_snapshot!(lines(&repaired().events), @r"
    Note run of fix created: Fix it
    Note run started
    Note start started (start)
    Good start succeeded in 0ms
    Note start → plan
    Note plan started (agent)
    Good plan succeeded in 1.2s
    Note plan → test
    Note test started (command)
    Bad test failed in 40ms: exit code 1
    Note test → repair (outcome=failed)
    Note repair started (agent)
    Good repair succeeded in 1.2s
    Note repair → test
    Note test@2 started (command)
    Good test@2 succeeded in 1.2s
    Note test@2 → done (outcome=succeeded)
    Note done started (agent)
    Good done succeeded in 1.2s
    Note done → exit
    Note exit started (exit)
    Good exit succeeded in 0ms
    Good run succeeded; 150 tokens
    ");
}

#[test]
fn a_run_as_it_goes_on() {
    let bench = repaired();
    insta::assert_snapshot!(story(&bench.events), @r#"
    plan succeeded 1.2s None -> Some("test") ()
    test failed 40ms Some("exit code 1") -> Some("repair") (outcome=failed)
    repair succeeded 1.2s None -> Some("test") ()
    test@2 succeeded 1.2s None -> Some("done") (outcome=succeeded)
    done succeeded 1.2s None -> Some("exit") ()
    run succeeded; 150 tokens
    "#);
    let mut told = Story::default();
    for event in &bench.events {
        told.tell(event);
    }
    let rows = told.summary().rows.iter().map(|row| {
        format!("{} {} {} {}ms {}", row.node, row.visits, row.status, row.duration_ms, row.tokens)
    });
    insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @r"
    plan 1 succeeded 1234ms 150
    test 2 succeeded 1274ms 0
    repair 1 succeeded 1234ms 0
    done 1 succeeded 1234ms 0
    ");
    assert_eq!(told.summary().rows.iter().map(|row| row.visits).sum::<u32>(), 5);
}

#[test]
fn many_visits_without_a_limit_are_said() {
    let mut bench = Bench::new(machine_run::LOOP);
    bench.end("plan", ok());
    for _ in 0..45 {
        bench.end("test", exits(1));
        bench.end("repair", ok());
    }
    bench.finish();
    let warnings = |unlimited: &[&str]| {
        let mut story = Story::default();
        story.unlimited = unlimited.iter().copied().map(Arc::from).collect();
        let lines = bench.events.iter().flat_map(|event| story.tell(event));
        let notes = lines.filter_map(|line| match line {
            StoryLine::Note(line) if line.text.contains("limit") => Some(line.text),
            _ => None,
        });
        notes.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(warnings(&["plan", "repair"]), @"
    repair is entered 10 times now, and no limit is set: max_visits=N on the node, or max_cost=DOLLARS on the graph
    repair is entered 20 times now, and no limit is set: max_visits=N on the node, or max_cost=DOLLARS on the graph
    repair is entered 40 times now, and no limit is set: max_visits=N on the node, or max_cost=DOLLARS on the graph
    ");
    assert_eq!(warnings(&["plan"]), "");
}

#[test]
fn foreign_text_stays_on_its_line() {
    insta::assert_snapshot!(one_line("a\n\u{1b}[31m  b\t c", 20), @"a �[31m b c");
    insta::assert_snapshot!(one_line("aaaa bbbb", 6), @"aaaa …");
    assert_eq!(one_line(&"x ".repeat(1 << 20), 10).chars().count(), 10);
    let times: Vec<String> = [0, 999, 1_000, 59_999, 60_000, 3_725_000].map(took).to_vec();
    insta::assert_snapshot!(times.join(", "), @"0ms, 999ms, 1.0s, 59.9s, 1m 00s, 1h 02m");
}

#[test]
fn branches_are_told_with_their_fan_out() {
    let mut bench = Bench::new(
        "digraph { start -> fork; fork [shape=component, join_policy=first_success]
        fork -> a -> join; fork -> b -> join; join -> exit }",
    );
    bench.end("b", ok());
    bench.finish();
    insta::assert_snapshot!(story(&bench.events), @r#"
    fork: 2 parallel branches, a, b, joining at join
      b succeeded 1.2s None -> Some("join") ()
      branch a canceled: no longer needed
    fork: 2/2 done, 1 canceled
    fork succeeded 1.0s None -> Some("join") (branches joined)
    join succeeded 1.2s None -> Some("exit") ()
    run succeeded
    "#);
}

#[test]
fn a_branch_that_its_fan_out_took_too_long_for_says_so() {
    let mut bench = Bench::new(
        "digraph { start -> fork; fork [shape=component]
        fork -> a -> join; fork -> b -> join; join -> exit }",
    );
    bench.end("b", ok());
    bench.input(Input::Overdue { branch: Arc::from(""), limit: std::time::Duration::from_secs(9) });
    bench.finish();
    insta::assert_snapshot!(story(&bench.events), @r#"
    fork: 2 parallel branches, a, b, joining at join
      b succeeded 1.2s None -> Some("join") ()
      branch a canceled: timed out after 9s: raise its `timeout` if it needs longer (transient_infra)
    fork: 2/2 done, 1 canceled
    fork failed 2.0s Some("timed out after 9s: raise its `timeout` if it needs longer (transient_infra)") -> Some("join") (branches joined)
    join succeeded 1.2s None -> Some("exit") ()
    run partially_succeeded: `fork` failed: timed out after 9s: raise its `timeout` if it needs longer
    "#);
}

#[test]
fn a_rewind_is_told() {
    let mut bench = repaired();
    let run_id = bench.events[0].run_id;
    let effective = checkpoint::effective(&bench.events);
    let at = checkpoint::find(&effective, Some("plan")).unwrap();
    let set = [("size".to_owned(), Arc::new(json!(5)))].into();
    let last = bench.events.len() as u64;
    bench.events.push(checkpoint::rewind(run_id, &at, last, 99_000, set));
    insta::assert_snapshot!(lines(&bench.events[bench.events.len() - 1..]), @"Note rewound to plan@1 with size changed");
}

#[test]
fn a_gate_is_told() {
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
    bench.input(Input::Idle(Box::new(Idle { gates: vec!["gate".into()], ..Idle::default() })));
    bench.input(Input::Resume { max_cost: None });
    let answered = EventBody::GateAnswered {
        selected: "Y".into(),
        label: "Yes".into(),
        text: None,
        source: "cli".into(),
        by: Some(AnsweredBy::new("ann", "cli")),
    };
    bench.input(Input::Note { branch, notes: vec![answered.into()], blobs: Vec::new() });
    bench.end("gate", Outcome { preferred_label: Some("Yes".into()), ..ok() });
    bench.finish();
    insta::assert_snapshot!(story(&bench.events), @r#"
    gate asks: Ship? [Y] Yes [N] No
    run paused: waiting for an answer to gate; `fabro answer RUN GATE CHOICE`
    run resumed
    gate was answered by ann: Yes (cli)
    gate succeeded 1.2s None -> Some("exit") (`[Y] Yes` was chosen)
    run succeeded
    "#);
}

#[test]
fn ten_thousand_canceled_branches_take_no_time() {
    let event = |rank: u32, body: EventBody| {
        let entry = fabro_events::Entry {
            node_id: Some("n".into()),
            visit: Some(1),
            branch: Some(format!("f@1/n{rank}").into()),
            ..fabro_events::Entry::new(body)
        };
        Event { run_id: RunId::from_parts(0, 1), seq: u64::from(rank), ts_ms: 0, entry }
    };
    let started = |rank| EventBody::StageStarted {
        rank,
        handler: fabro_types::NodeKind::Command,
        fidelity: fabro_types::Fidelity::Compact,
        thread_id: None,
    };
    let mut story = Story::default();
    for rank in 0..10_000 {
        story.tell(&event(rank, started(rank)));
    }
    assert_eq!(story.running().count(), 10_000);
    let status = fabro_types::Status::Skipped;
    for rank in 0..10_000 {
        let canceled = EventBody::BranchCompleted {
            status,
            failure: None,
            canceled: true,
            candidates: Vec::new(),
        };
        story.tell(&event(rank, canceled));
    }
    assert_eq!(story.running().count(), 0);
}

#[test]
fn only_own_colors_control_the_terminal() {
    let check = |text: &str, expect: &str| assert_eq!(clean_painted(text), expect);
    check("a\u{1b}[1m\u{1b}[31mb\u{1b}[0mc\n", "a\u{1b}[1m\u{1b}[31mb\u{1b}[0mc\n");
    check("\u{1b}[2Ja\u{1b}[mb", "\u{fffd}[2Ja\u{fffd}[mb");
    check("\u{1b}[8mhidden\u{1b}[7m\u{1b}[30;40m", "\u{fffd}[8mhidden\u{fffd}[7m\u{fffd}[30;40m");
    check("\u{1b}", "\u{fffd}");
    check("\u{1b}[", "\u{fffd}[");
    check("\u{1b}[31\u{1b}[31m", "\u{fffd}[31\u{1b}[31m");
    check("\u{1b}]52;c;aGk=\u{7}\u{202e}", "\u{fffd}]52;c;aGk=\u{fffd}\\u{202e}");
}
