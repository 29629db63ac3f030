//! Retries of ended runs: failed stages run again, finished work is kept.

use super::*;

/// Retries a run and drives it to its end. Returns the retried stages, the stages that ran, and the
/// status.
#[track_caller]
fn retry(bench: &Bench) -> String {
    let events = bench.events();
    let counted = checkpoint::effective(&events);
    let point = retry_plan(&counted).unwrap();
    let last = events.last().unwrap().seq;
    let names = point.stages.join(" ");
    let event = checkpoint::retry(bench.run_id, point, last, 5_000);
    now(bench.store.append(bench.run_id, last, &Batch::of(&[event]))).unwrap();
    bench.script.ran.lock().unwrap().clear();
    let end = bench.drive(Input::Resume { max_cost: None });
    // The log still replays.
    RunState::try_replay(bench.run_id, &bench.events()).unwrap();
    let RunEnd::Over(status, _) = end else { panic!("{end:?}") };
    format!("{names} | {} | {status}", bench.script.ran.lock().unwrap().join(" "))
}

const FORK: &str =
    "start -> fork; fork [shape=component, max_parallel=2] join [shape=tripleoctagon]
    fork -> a -> a2 -> join; fork -> b -> b2 -> join; fork -> c -> join; join -> last -> exit";

#[test]
fn a_failed_stage_runs_again() {
    let bench = Bench::new(
        "digraph { start -> a -> b -> c -> exit; b [on_failure=stop] }",
        &[("b", vec![exits(1), ok()])],
    );
    bench.drive(Input::Start);
    insta::assert_snapshot!(retry(&bench), @"b@1 | b@1.1 c@1.1 | succeeded");
    insta::assert_snapshot!(bench.state().main().unwrap().history.len(), @"3");
}

#[test]
fn an_unhandled_failure_and_what_follows_it_run_again() {
    let bench = Bench::new(
        "digraph { start -> a -> b -> c -> exit }",
        &[("b", vec![exits(1), ok()]), ("c", vec![exits(2), ok()])],
    );
    bench.drive(Input::Start);
    insta::assert_snapshot!(retry(&bench), @"b@1 | b@1.1 c@1.1 | succeeded");
}

#[test]
fn a_failed_branch_runs_again_from_its_failed_stage() {
    let bench = Bench::new(&format!("digraph {{ {FORK} }}"), &[("b2", vec![exits(1), ok()])]);
    bench.drive(Input::Start);
    insta::assert_snapshot!(retry(&bench), @"fork@1/b/b2@1 | b2@1.1 join@1.1 last@1.1 | succeeded");
}

#[test]
fn a_retry_may_fail_and_be_retried() {
    let bench = Bench::new(
        &format!("digraph {{ {FORK} }}"),
        &[("b2", vec![exits(1), exits(1), ok()]), ("c", vec![exits(1), ok()])],
    );
    bench.drive(Input::Start);
    insta::assert_snapshot!(retry(&bench), @"fork@1/b/b2@1 fork@1/c/c@1 | b2@1.1 c@1.1 join@1.1 last@1.1 | partially_succeeded");
    insta::assert_snapshot!(retry(&bench), @"fork@1/b/b2@1 | b2@1.1 join@1.1 last@1.1 | succeeded");
    // Nothing is left to retry.
    let events = bench.events();
    assert_eq!(retry_plan(&checkpoint::effective(&events)), None);
}

#[test]
fn canceled_branches_continue() {
    let bench = Bench::new(
        "digraph { start -> fork; fork [shape=component, join_policy=all_success, on_failure=stop] join [shape=tripleoctagon]
         fork -> a -> join; fork -> b -> join; join -> exit }",
        &[("a", vec![exits(1), ok()]), ("b", vec![Reply::Hang, ok()])],
    );
    bench.drive(Input::Start);
    insta::assert_snapshot!(retry(&bench), @"fork@1/a/a@1 | a@1.1 b@1.1 join@1.1 | succeeded");
}

#[test]
fn nested_fan_outs_keep_finished_work() {
    let bench = Bench::new(
        "digraph { start -> fork; fork [shape=component] join [shape=tripleoctagon]
         fork -> inner; inner [shape=component] meet [shape=tripleoctagon] inner -> x -> meet; inner -> y -> meet;
         meet -> z -> join; fork -> b -> join; join -> exit }",
        &[("y", vec![exits(1), ok()])],
    );
    bench.drive(Input::Start);
    insta::assert_snapshot!(retry(&bench), @"fork@1/inner/inner@1/y/y@1 | y@1.1 meet@1.1 z@1.1 join@1.1 | succeeded");
}

/// A retry that is killed after any commit can be resumed.
#[test]
fn a_retry_survives_kills() {
    let replies = [("b2", vec![exits(1), ok()])];
    let bench = Bench::new(&format!("digraph {{ {FORK} }}"), &replies);
    bench.drive(Input::Start);
    let before = bench.events().len();
    retry(&bench);
    let events = bench.events();
    for cut in before + 1..events.len() {
        // The events that end a fan-out are one commit, and so are those that end the run.
        let last = &events[cut - 1].entry;
        if matches!(last.body, EventBody::ParallelCompleted { .. })
            || last.node_id.as_deref() == Some("exit")
        {
            continue;
        }
        let again = Bench::new(&format!("digraph {{ {FORK} }}"), &[]);
        now(again.store.append(again.run_id, 1, &Batch::of(&events[1..cut]))).unwrap();
        let end = again.drive(Input::Resume { max_cost: None });
        assert_eq!(end, RunEnd::Over(fabro_types::RunStatus::Succeeded, None), "cut at {cut}");
        let ran = again.script.ran.lock().unwrap().join(" ");
        assert!(!ran.contains("a@") && !ran.contains("c@"), "cut at {cut}: {ran}");
    }
}
