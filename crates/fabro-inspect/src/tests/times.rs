//! How long runs and stages took, and what they used.

use fabro_engine::{Idle, RunState, checkpoint};
use fabro_events::{StageFailure, timestamp};
use fabro_store::RunSummary;
use fabro_types::{Failure, FailureClass, RunStatus, Usage};

use super::*;
use crate::CostSum;

const RETRIED: &str = r#"digraph { start -> talk -> gate -> exit; talk [max_retries=2]
    gate [shape=hexagon]; gate -> exit [label="[Y] Yes"] }"#;

fn used(tokens: u64) -> Usage {
    Usage { input_tokens: tokens, turns: 1, cost_usd: 0.25, ..Usage::default() }
}

/// `talk` fails once and is tried again; then a gate waits for a day.
fn retried() -> Bench {
    let mut bench = Bench::new(RETRIED);
    let failure = Failure::new(FailureClass::TransientInfra, "overloaded");
    bench.end("talk", Outcome { usage: Some(used(100)), ..Outcome::failed(failure) });
    bench
        .end("talk", Outcome { usage: Some(used(20)), files_touched: vec!["a.rs".into()], ..ok() });
    bench.input(Input::Idle(Box::new(Idle { gates: vec!["gate".into()], ..Idle::default() })));
    bench
}

#[test]
fn a_stage_counts_what_all_its_attempts_used() {
    let bench = retried();
    let report = inspect(&bench.events, false).unwrap();
    insta::assert_snapshot!(compact(&report.stages[1]), @r#"{"rank":2,"node":"talk","visit":1,"branch":null,"status":"succeeded","started_at":"1970-01-01T00:00:01.000Z","ended_at":"1970-01-01T00:00:03.000Z","attempts":2,"edge":"gate","duration_ms":2000,"usage":{"input_tokens":120,"output_tokens":0,"cost_usd":0.5,"turns":2},"reason":{"tier":"unconditional"},"files_touched":["a.rs"]}"#);
    let talk = stage(&bench.events, "talk", false, &*bench.blobs).unwrap();
    insta::assert_snapshot!(compact(&talk.earlier_attempts), @r#"[{"attempt":1,"ended_at":"1970-01-01T00:00:02.000Z","failure":{"class":"transient_infra","message":"overloaded","signature":"talk|transient_infra|overloaded"},"delay_ms":5510,"usage":{"input_tokens":100,"output_tokens":0,"cost_usd":0.25,"turns":1}}]"#);
    assert!(!talk.is_command());
}

#[test]
fn requests_that_failed_before_a_pause_count_for_their_stage() {
    let mut bench = Bench::new("digraph { start -> talk -> exit }");
    let failure = Failure::new(FailureClass::TransientInfra, "overloaded").with_remedy("wait");
    let stage = StageFailure { node: "talk".into(), visit: 1, branch: None, failure };
    let lost = Usage { failed_requests: 3, turns: 0, ..used(100) };
    bench.input(Input::Idle(Box::new(Idle {
        unavailable: vec![stage],
        failed_turns: [("".into(), 3)].into(),
        used: [("".into(), lost)].into(),
        ..Idle::default()
    })));
    bench.input(Input::Resume { max_cost: None });
    bench.end("talk", Outcome { usage: Some(used(20)), ..ok() });
    let report = inspect(&bench.events, false).unwrap();
    let usage = report.stages[1].usage.as_ref().unwrap();
    assert_eq!((usage.input_tokens, usage.failed_requests, usage.cost_usd), (120, 3, 0.5));
    let mut sum = CostSum::default();
    sum.add(bench.events[0].run_id, std::slice::from_ref(&bench.events), &|_| false);
    let cost = sum.finish();
    let [talk] = &*cost.stages else { panic!("{cost:?}") };
    assert_eq!((talk.stage.as_str(), &talk.spent), ("talk@1", &cost.total));
    assert_eq!((cost.total.failed_requests, cost.total.cost_usd), (3, Some(0.5)));
    bench.finish();
}

#[test]
fn time_without_a_driver_does_not_count() {
    const DAY: i64 = 86_400_000;
    let mut bench = retried();
    let check = |bench: &Bench, driven, took| {
        let mut report = inspect(&bench.events, driven).unwrap();
        if driven {
            report.until(bench.now_ms + 500);
        }
        let gate = &report.stages[2];
        assert_eq!((report.duration_ms, gate.status, gate.duration_ms), took);
    };
    let paused = inspect(&bench.events, false).unwrap().pause;
    insta::assert_snapshot!(compact(&paused), @r#"{"reason":"human","message":"waiting for an answer to gate"}"#);
    check(&bench, false, (4_000, "paused", 1_000));
    bench.now_ms += DAY;
    bench.input(Input::Resume { max_cost: None });
    assert_eq!(inspect(&bench.events, true).unwrap().pause, None);
    check(&bench, true, (4_500, "running", 1_500));
    bench.end("gate", Outcome { preferred_label: Some("Yes".into()), ..ok() });
    check(&bench, false, (5_000, "succeeded", 2_000));
}

#[test]
fn a_clock_that_is_set_during_a_run_changes_no_duration() {
    const DAY: i64 = 86_400_000;
    for set_ms in [2 * DAY, -2 * DAY] {
        let mut bench = Bench::new("digraph { start -> one -> two -> exit }");
        bench.now_ms += set_ms;
        bench.machine.clock_was_set(set_ms);
        bench.end("one", ok());
        bench.end("two", ok());
        let report = inspect(&bench.events, false).unwrap();
        let took: Vec<_> = report.stages.iter().map(|row| row.duration_ms).collect();
        assert_eq!((report.duration_ms, took), (3_000, vec![0, 1_000, 1_000, 0]));
        let steady: Vec<_> =
            report.stages.iter().map(|row| (row.started_ms, row.until_ms)).collect();
        assert_eq!(steady, [(1_000, 1_000), (1_000, 2_000), (2_000, 3_000), (3_000, 3_000)]);
        // What the clock showed is kept, too.
        let ended = timestamp(3_000 + set_ms);
        assert_eq!(report.ended_at, Some(ended));
        let told: Vec<_> = bench.events.iter().filter_map(|it| it.entry.clock_set_ms).collect();
        assert_eq!(told, [set_ms]);
    }
}

#[test]
fn a_list_shows_how_long_runs_took_by_a_clock_that_is_never_set() {
    const DAY: i64 = 86_400_000;
    let row = |events: &[Event], status| {
        let first = events.first().unwrap();
        let mut row = ps(
            vec![RunSummary {
                id: first.run_id,
                parent: None,
                workflow: "w".into(),
                goal: String::new(),
                status,
                started_at_ms: first.ts_ms,
                ended_at_ms: None,
            }],
            false,
        );
        row[0].describe(Some(first), events.last());
        row.remove(0)
    };
    for set_ms in [2 * DAY, -2 * DAY] {
        let mut bench = Bench::new("digraph { start -> one -> two -> exit }");
        let start_ms = bench.events[0].ts_ms;
        let now_ms = bench.now_ms;
        bench.now_ms += set_ms;
        bench.machine.clock_was_set(set_ms);
        bench.end("one", ok());
        let running = row(&bench.events, RunStatus::Running);
        let took_ms = |bench: &Bench| u64::try_from(bench.now_ms - set_ms - start_ms).unwrap();
        assert_eq!(running.took_ms(bench.now_ms + 300), Some(took_ms(&bench) + 300));
        // Set again, and no driver has seen it yet.
        assert_eq!(running.took_ms(now_ms - 3 * DAY), Some(took_ms(&bench)));
        let at = checkpoint::find(&bench.events.iter().collect::<Vec<_>>(), Some("one")).unwrap();
        bench.end("two", ok());
        let ended = row(&bench.events, RunStatus::Succeeded);
        assert_eq!(ended.took_ms(bench.now_ms + DAY), Some(took_ms(&bench)));
        // A rewind to before the clock was set does not set it again.
        let total = checkpoint::clock_set_total(&bench.events);
        assert_eq!(total, Some(set_ms));
        let fork = checkpoint::fork(
            &bench.events.iter().collect::<Vec<_>>(),
            &at,
            RunId::from_parts(0, 9),
            bench.now_ms,
            fabro_types::ContextPatch::new(),
        );
        assert_eq!(checkpoint::clock_set_total(&fork), None);
        assert_eq!(RunState::replay(RunId::from_parts(0, 9), &fork).clock_set_total(0), None);
        assert_eq!(RunState::replay(RunId::from_parts(0, 9), &fork).clock_set_total(7), Some(7));
    }
}
