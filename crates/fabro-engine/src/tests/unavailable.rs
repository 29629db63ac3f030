//! Failures because no model or agent is available: the run pauses, unless the workflow handles them.

use fabro_events::PauseReason;

use super::*;

fn no_model(class: FailureClass) -> Reply {
    let failure = Failure::new(class, "the key is refused").with_remedy("set a valid key");
    Reply::End(Box::new(Outcome::failed(failure)))
}

/// What a workflow does whose stage `a` has no model to ask.
#[track_caller]
fn check(source: &str, pauses: bool) {
    let source = format!("digraph {{ {source} }}");
    let bench = Bench::new(&source, &[("a", vec![no_model(FailureClass::Deterministic)])]);
    let end = bench.drive(Input::Start);
    let is_paused = end == RunEnd::Paused(PauseReason::Unavailable);
    assert_eq!(is_paused, pauses, "{source}: {end:?}\n{}", story(&bench.events()));
}

#[test]
fn the_workflow_says_whether_it_pauses() {
    check("start -> a -> exit", true);
    check("start -> a -> exit; a -> exit [condition=\"outcome=failed\"]", true);
    check("start -> a -> exit; a [on_unavailable=fail]", false);
    check("graph [on_unavailable=fail]; start -> a -> exit", false);
    check("graph [on_unavailable=fail]; start -> a -> exit; a [on_unavailable=pause]", true);
    check("start -> a -> exit; a -> exit [condition=\"failure_class=deterministic\"]", false);
    check("start -> a -> exit; a -> exit [condition=\"context.failure_class!=x\"]", false);
    check(
        "start -> a -> c -> d -> exit; c [shape=diamond]; d [shape=diamond]; \
         d -> b [condition=\"failure_class=x\"]; b -> exit",
        false,
    );
    check("start -> a -> b -> exit; b -> a [condition=\"failure_class=x\"]", true);
    check("start -> a -> exit; a -> a [loop_restart=true, condition=\"outcome=failed\"]", false);
    check("start -> a -> exit; a [retry_target=a, max_visits=2]", false);
    check("start -> a -> exit; a [fallback_retry_target=a, max_visits=2]", false);
    check("graph [retry_target=a]; start -> a -> exit", true);
    check(
        "graph [retry_target=a, max_node_visits=2]; start -> a -> exit [condition=\"outcome=succeeded\"]",
        false,
    );
    check("start -> a -> exit; a [auto_status=true, allow_partial=true]", true);
}

#[test]
fn a_resume_asks_again_with_new_attempts() {
    let source = "digraph { start -> a -> b -> exit; a [max_retries=1] }";
    let refused = || no_model(FailureClass::TransientInfra);
    let replies = vec![refused(), refused(), refused(), refused(), ok()];
    let bench = Bench::new(source, &[("a", replies)]);
    let paused = RunEnd::Paused(PauseReason::Unavailable);
    assert_eq!(bench.drive(Input::Start), paused);
    assert_eq!(bench.drive(Input::Resume { max_cost: None }), paused);
    bench.drive(Input::Resume { max_cost: None });
    insta::assert_snapshot!(bench.script.ran.lock().unwrap().join(" "), @"a@1.1 a@1.2 a@1.2 a@1.3 a@1.3 b@1.1");
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> a (unconditional)
    a@1 retries: the key is refused (transient_infra)
    paused: Unavailable []
    resumed
    a@1 retries: the key is refused (transient_infra)
    paused: Unavailable []
    resumed
    002 a@1 succeeded in 3  -> b (unconditional)
    003 b@1 succeeded  -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn other_branches_end_before_the_pause() {
    let source = "digraph { start -> f; f [shape=component]; f -> a -> j; f -> b -> c -> j; \
        f -> d -> j; j [shape=tripleoctagon]; j -> exit }";
    let refused = || no_model(FailureClass::Deterministic);
    let bench = Bench::new(source, &[("a", vec![refused(), ok()]), ("d", vec![refused(), ok()])]);
    assert_eq!(bench.drive(Input::Start), RunEnd::Paused(PauseReason::Unavailable));
    let last = bench.events().pop().unwrap();
    let EventBody::RunPaused { message, unavailable, .. } = &last.entry.body else {
        panic!("{last:?}")
    };
    insta::assert_snapshot!(message, @"`f@1/a/a@1`, `f@1/d/d@1`: the key is refused; to fix it, set a valid key");
    assert_eq!(unavailable.len(), 2);
    bench.drive(Input::Resume { max_cost: None });
    insta::assert_snapshot!(bench.script.ran.lock().unwrap().join(" "), @"a@1.1 b@1.1 d@1.1 c@1.1 a@1.1 d@1.1 j@1.1");
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> f (unconditional)
    f@1 forks 3, joins at j
      004 b@1 succeeded  -> c (unconditional)
      007 c@1 succeeded  -> j (unconditional)
      f@1/b succeeded
    paused: Unavailable []
    resumed
      003 a@1 succeeded  -> j (unconditional)
      f@1/a succeeded
      005 d@1 succeeded  -> j (unconditional)
      f@1/d succeeded
    002 f@1 succeeded  -> j (join)
    008 j@1 succeeded  -> exit (unconditional)
    009 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_branch_that_is_not_needed_does_not_pause_the_run() {
    let source = "digraph { start -> f; f [shape=component, join_policy=first_success]; \
        f -> a -> j; f -> b -> j; j [shape=tripleoctagon]; j -> exit }";
    let bench = Bench::new(source, &[("a", vec![no_model(FailureClass::Deterministic)])]);
    let end = bench.drive(Input::Start);
    assert!(matches!(end, RunEnd::Over(..)), "{end:?}");
}

#[test]
fn gates_wait_beside_it() {
    let source = "digraph { start -> f; f [shape=component]; f -> a -> j; f -> g; g [shape=hexagon]; \
        g -> j; j [shape=tripleoctagon]; j -> exit }";
    let replies = [("a", vec![no_model(FailureClass::Deterministic)]), ("g", vec![Reply::Suspend])];
    let bench = Bench::new(source, &replies);
    bench.drive(Input::Start);
    let events = bench.events();
    insta::assert_snapshot!(story(&events[events.len() - 1..]), @r#"paused: Unavailable ["g"]"#);
}

#[test]
fn what_failed_requests_used_counts_although_no_stage_has_it() {
    let source = "digraph { graph [max_cost=1.0]; start -> a -> exit }";
    let refused = || {
        let Reply::End(outcome) = no_model(FailureClass::TransientInfra) else { unreachable!() };
        let usage =
            Usage { input_tokens: 100, cost_usd: 0.6, failed_requests: 3, ..Usage::default() };
        Reply::End(Box::new(Outcome { usage: Some(usage), ..*outcome }))
    };
    let bench = Bench::new(source, &[("a", vec![refused(), refused(), ok()])]);
    let paused = |reason| RunEnd::Paused(reason);
    assert_eq!(bench.drive(Input::Start), paused(PauseReason::Unavailable));
    let usage = bench.state().usage;
    assert_eq!((usage.failed_requests, usage.input_tokens, usage.cost_usd), (3, 100, 0.6));
    bench.drive(Input::Resume { max_cost: None });
    let usage = bench.state().usage;
    assert_eq!((usage.failed_requests, usage.cost_usd), (6, 1.2));
    // The limit is reached.
    assert_eq!(bench.drive(Input::Resume { max_cost: None }), paused(PauseReason::Budget));
}

#[test]
fn a_branch_without_an_available_model_reports_it_when_another_branch_wins() {
    let source = "digraph { start -> f; f [shape=component, join_policy=first_success]; f -> a -> j; \
        f -> b -> c -> j; j [shape=tripleoctagon]; j -> exit }";
    let refused = || no_model(FailureClass::Deterministic);
    let bench = Bench::new(source, &[("a", vec![refused()])]);
    bench.drive(Input::Start);
    let ends = bench.events().into_iter().filter_map(|event| match event.entry.body {
        EventBody::BranchCompleted { status, canceled, failure, .. } => {
            let why = failure.map(|failure| failure.message).unwrap_or_default();
            Some(format!("{} {status} {canceled} {why}", event.entry.branch.unwrap()))
        }
        _ => None,
    });
    let ends: Vec<String> = ends.collect();
    assert!(ends.contains(&"f@1/a skipped true the key is refused".to_owned()), "{ends:?}");
}
