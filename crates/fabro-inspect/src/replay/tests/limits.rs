//! Time limits of fan-outs.

use insta::assert_snapshot;

use super::*;

/// A fan-out whose branch has another one in it after two seconds.
fn nested(outer: &str, inner: &str) -> Taped {
    let source = r#"digraph { start -> fork -> {nap; c}; c -> done -> exit
        fork [shape=component, OUTER]; c [shape=parallelogram, script="c"]
        nap [shape=insulator, duration="2s"]; inner [shape=component, INNER]
        nap -> inner -> {a; b} -> merge -> late -> done
        a [shape=parallelogram, script="a"]; b [shape=parallelogram, script="b"]
        late [shape=parallelogram, script="late"]
        merge [shape=parallelogram, script="merge"]; done [shape=parallelogram, script="done"] }"#;
    let taped = Taped::new(&source.replace("OUTER", outer).replace("INNER", inner));
    taped
        .prints("a", "1")
        .prints("c", "3")
        .prints("merge", "")
        .prints("done", "")
        .hangs("b")
        .hangs("late")
}

/// Which stages failed, with their attempts.
fn failed(taped: &Taped) -> String {
    let failed = taped.events().into_iter().filter_map(|event| match event.entry.body {
        EventBody::StageFailed(done) => Some(format!("{} {}", event.entry.node_id?, done.attempts)),
        _ => None,
    });
    failed.collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(outer: &str, inner: &str, expect: &str) {
    let taped = nested(outer, inner).record();
    assert_eq!(failed(&taped), expect);
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "{outer} {inner}: {}", summary(&report));
}

#[test]
fn the_limits_that_were_over_are_those_of_the_record() {
    check("timeout=3s", "timeout=2s", "fork 1");
    check("timeout=9s", "timeout=2s", "inner 1, fork 1");
    check("timeout=1m", "timeout=2s, max_retries=1", "inner 2, fork 1");
    check("timeout=3s, max_retries=1", "timeout=2s", "fork 2");
    check("timeout=5s, max_retries=1", "timeout=4s, max_retries=2", "fork 2");
}

#[test]
fn a_run_with_limits_that_was_killed_anywhere_comes_out_the_same() {
    Taped::check_everywhere(|| nested("timeout=9s, max_retries=1", "timeout=2s").record());
}

#[test]
fn a_limit_that_was_not_reached_is_not_reached_now() {
    let source = r#"digraph { start -> fork -> {a; b}; b -> done; a -> done -> exit
        fork [shape=component, timeout=1h, max_retries=2]
        a [shape=parallelogram, script="a"]; b [shape=parallelogram, script="b"]
        done [shape=parallelogram, script="done"] }"#;
    let taped = Taped::new(source).prints("a", "1").prints("b", "2").prints("done", "3").record();
    let new = "a -> x -> done -> exit; x [shape=parallelogram, script=\"x\"]";
    let report = taped.with("a -> done -> exit", new);
    assert_snapshot!(summary(&report), @r#"
    16 compared
    edge fork@1/a a@1
    - Some("a@1 → done")
    + Some("a@1 → x")
    event fork@1/a 
    - Some("parallel.branch.completed: succeeded")
    + Some("stage.started x@1: command, fidelity compact")
    event fork@1
    - Some("parallel.completed fork@1: succeeded")
    + None
    fork@1/a: x@1 needs something that was not recorded
    "#);
}
