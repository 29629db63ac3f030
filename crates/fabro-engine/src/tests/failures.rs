use super::*;

/// The edges that the run, or its first branch that failed, could not leave its last stage by.
fn stuck_at(events: &[Event]) -> String {
    let looked_at = events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunFailed { candidates, .. } | EventBody::BranchCompleted { candidates, .. } => {
            (!candidates.is_empty()).then_some(candidates)
        }
        _ => None,
    });
    let seen = looked_at.into_iter().flatten().map(|candidate| {
        let clauses = candidate.clauses.iter().map(|it| format!(" {} saw {}", it.text, it.value));
        format!("{} {}{}", candidate.to, candidate.holds, clauses.collect::<String>())
    });
    seen.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_line_that_finds_no_way_on_says_what_it_looked_at() {
    let check = |source: &str, replies: &[(&str, Vec<Reply>)]| {
        let bench = Bench::new(source, replies);
        bench.story();
        stuck_at(&bench.events())
    };
    let plain = r#"digraph { start -> a
        a -> exit [condition="outcome=success && context.size > 7"]; a -> a [condition="context.size=9"] }"#;
    let small = [("a", vec![sets("size", 5)])];
    insta::assert_snapshot!(check(plain, &small), @r"
    exit false outcome=success saw succeeded context.size > 7 saw 5
    a false context.size=9 saw 5
    ");
    insta::assert_snapshot!(check(plain, &[("a", vec![exits(1)])]), @r"
    exit false outcome=success saw failed context.size > 7 saw 
    a false context.size=9 saw
    ");
    let tripped =
        r#"digraph { start -> a; a -> exit [condition="outcome=success"]; a [retry_target=a] }"#;
    insta::assert_snapshot!(check(tripped, &[("a", vec![exits(1)])]), @"exit false outcome=success saw failed");
    let restart = "digraph { start -> a; a -> start2 [loop_restart=true]; start2 -> exit }";
    insta::assert_snapshot!(check(restart, &[("a", vec![exits(1)])]), @"start2 true");
    let branch = r#"digraph { start -> fork; fork [shape=component]; fork -> a; a -> join [condition="outcome=success && context.size > 7"]
        fork -> b -> join; join [shape=tripleoctagon]; join -> exit }"#;
    insta::assert_snapshot!(check(branch, &small), @"join false outcome=success saw succeeded context.size > 7 saw 5");
    insta::assert_snapshot!(check("digraph { start -> a -> exit }", &[]), @"");
}

#[test]
fn a_failure_without_an_edge_takes_the_retry_target() {
    let source = r#"digraph {
        start -> work -> test; test -> exit [condition="outcome=success"]
        test [retry_target=work]
    }"#;
    insta::assert_snapshot!(run(source, &[("test", vec![exits(1), ok()])]), @r"
    001 start@1 succeeded  -> work (unconditional)
    002 work@1 succeeded  -> test (unconditional)
    003 test@1 failed  -> work (retry_target)
    004 work@2 succeeded  -> test (unconditional)
    005 test@2 succeeded  -> exit (condition)
    006 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(run("digraph { start -> a; a -> exit [condition=\"outcome=success\"] }", &[("a", vec![exits(2)])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 failed
    run failed: exit code 2
    ");
}

#[test]
fn a_failure_may_leave_by_a_plain_edge() {
    insta::assert_snapshot!(run("digraph { start -> a -> exit }", &[("a", vec![exits(2)])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 failed  -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded; `a` failed: exit code 2
    ");
}

#[test]
fn the_breaker_ends_a_loop_of_the_same_failure() {
    let source = r#"digraph {
        start -> test; test -> exit [condition="outcome=success"]
        test [retry_target=test]
    }"#;
    insta::assert_snapshot!(run(source, &[("test", vec![exits(7)])]), @r"
    001 start@1 succeeded  -> test (unconditional)
    002 test@1 failed  -> test (retry_target)
    003 test@2 failed  -> test (retry_target)
    004 test@3 failed
    run failed: the same failure 3 times: exit code 7
    ");
}

#[test]
fn attempts_are_counted_and_delayed() {
    let source = "digraph { start -> a -> exit; a [max_retries=2] }";
    let bench = Bench::new(source, &[("a", vec![exits(1), exits(2), ok()])]);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> a (unconditional)
    a@1 retries: exit code 1
    a@1 retries: exit code 2
    002 a@1 succeeded in 3  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    let state = bench.state();
    let retries = state.main().unwrap().context.get("internal.retry_count.a");
    assert_eq!(retries, Some(&2.into()));
}

#[test]
fn the_graphs_default_retries_transient_failures_only() {
    let source = r"digraph { graph [default_max_retries=1]; start -> a -> exit }";
    let transient = fails(FailureClass::TransientInfra, "rate limit");
    insta::assert_snapshot!(run(source, &[("a", vec![transient, ok()])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    a@1 retries: rate limit (transient_infra)
    002 a@1 succeeded in 2  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(run(source, &[("a", vec![exits(1), ok()])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 failed  -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded; `a` failed: exit code 1
    ");
}

#[test]
fn visits_are_limited() {
    let source =
        "digraph { start -> a -> b -> a; b -> exit [condition=\"never\"]; a [max_visits=2] }";
    insta::assert_snapshot!(run(source, &[]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded  -> b (unconditional)
    003 b@1 succeeded  -> a (unconditional)
    004 a@2 succeeded  -> b (unconditional)
    005 b@2 succeeded  -> a (unconditional)
    run failed: `a` was entered 2 times, which is all that its visit limit allows (compilation_loop)
    ");
}

#[test]
fn a_visit_limit_of_zero_is_none() {
    let check = |graph: &str, node: &str, expect: [Option<u32>; 2]| {
        let source = format!("digraph {{ graph [{graph}]; start -> a -> exit; a [{node}] }}");
        let plan = Bench::new(&source, &[]).plan;
        let a = plan.find("a").unwrap();
        assert_eq!(
            [false, true].map(|dry| crate::limits::visit_limit(a, dry)),
            expect,
            "{graph} {node}"
        );
    };
    check("", "", [None, Some(10)]);
    check("max_node_visits=0", "", [None, None]);
    check("max_node_visits=30", "", [Some(30), Some(30)]);
    check("", "max_visits=0", [None, None]);
    check("max_node_visits=5", "max_visits=0", [None, None]);
    check("max_node_visits=0", "max_visits=2", [Some(2), Some(2)]);
}

#[test]
fn goal_gates_send_the_run_back_from_the_exit() {
    let source = r"digraph {
        start -> work -> test -> exit
        test [goal_gate=true, retry_target=work]
    }";
    insta::assert_snapshot!(run(source, &[("test", vec![exits(1), ok()])]), @r"
    001 start@1 succeeded  -> work (unconditional)
    002 work@1 succeeded  -> test (unconditional)
    003 test@1 failed  -> exit (unconditional)  -> work (goal_gate)
    004 work@2 succeeded  -> test (unconditional)
    005 test@2 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
    let hopeless = "digraph { start -> test -> exit; test [goal_gate=true] }";
    insta::assert_snapshot!(run(hopeless, &[("test", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> test (unconditional)
    002 test@1 failed  -> exit (unconditional)
    run failed: goal gate `test` ended failed and has no retry target left: exit code 1
    ");
}

#[test]
fn a_time_limit_ends_a_stage() {
    let source = "digraph { start -> a -> exit; a [timeout=5s] }";
    let bench = Bench::new(source, &[("a", vec![Reply::Hang])]);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 failed  -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded; `a` failed: timed out after 5s: raise its `timeout` if it needs longer
    ");
    insta::assert_snapshot!(run(source, &[("a", vec![Reply::Tidy])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    let partial = "digraph { start -> a -> exit; a [timeout=5s, allow_partial=true] }";
    insta::assert_snapshot!(run(partial, &[("a", vec![Reply::Hang])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 partially_succeeded  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn the_watchdog_ends_a_silent_model_but_no_command() {
    let source = "digraph { graph [stall_timeout=60s]; start -> a -> exit; a [max_retries=1] }";
    insta::assert_snapshot!(run(source, &[("a", vec![Reply::Hang, ok()])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    a@1 retries: no activity for 60s: raise the graph's `stall_timeout` if that is normal here (transient_infra)
    002 a@1 succeeded in 2  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn auto_status_forgives_what_nobody_stated() {
    let source = "digraph { start -> a -> exit; a [auto_status=true] }";
    insta::assert_snapshot!(run(source, &[("a", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    let mut stated = Failure::new(FailureClass::Deterministic, "no");
    stated.stated = true;
    let reply = Reply::End(Box::new(Outcome::failed(stated)));
    insta::assert_snapshot!(run(source, &[("a", vec![reply])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 failed  -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded; `a` failed: no
    ");
}

#[test]
fn a_restart_after_a_deterministic_failure_fails_the_run() {
    let source = r#"digraph { start -> a; a -> a [condition="outcome=fail", loop_restart=true]; a -> exit }"#;
    insta::assert_snapshot!(run(source, &[("a", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 failed
    run failed: a failure of class deterministic does not restart the loop: exit code 1
    ");
}

#[test]
fn the_breaker_counts_a_goal_gate_that_stands_in_a_branch() {
    let source = r"digraph {
        start -> checks; checks [shape=component]
        checks -> {lint; test} -> merge -> exit
        test [goal_gate=true, retry_target=checks]
    }";
    insta::assert_snapshot!(run(source, &[("test", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 succeeded  -> merge (unconditional)
      checks@1/lint succeeded
      004 test@1 failed  -> merge (unconditional)
      checks@1/test failed
    002 checks@1 partially_succeeded  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)  -> checks (goal_gate)
    checks@2 forks 2, joins at merge
      007 lint@2 succeeded  -> merge (unconditional)
      checks@2/lint succeeded
      008 test@2 failed  -> merge (unconditional)
      checks@2/test failed
    006 checks@2 partially_succeeded  -> merge (join)
    009 merge@2 succeeded  -> exit (unconditional)  -> checks (goal_gate)
    checks@3 forks 2, joins at merge
      011 lint@3 succeeded  -> merge (unconditional)
      checks@3/lint succeeded
      012 test@3 failed  -> merge (unconditional)
      checks@3/test failed
    010 checks@3 partially_succeeded  -> merge (join)
    013 merge@3 succeeded  -> exit (unconditional)
    run failed: the same failure 3 times: exit code 1
    ");
}

#[test]
fn a_goal_gate_whose_retry_target_runs_nothing_ends_the_run() {
    for target in ["exit", "again"] {
        let source = format!(
            r"digraph {{
                start -> test -> exit; again [shape=diamond]; again -> exit
                test [goal_gate=true, retry_target={target}]
            }}"
        );
        let late = fails(FailureClass::TransientInfra, "too late");
        let story = run(&source, &[("test", vec![late])]);
        assert!(
            story.ends_with("is an endless loop of nodes that do no work (compilation_loop)\n")
        );
    }
}

#[test]
fn a_retry_target_that_does_nothing_is_never_out_of_visits() {
    let source = r#"digraph {
        graph [max_node_visits=3]
        start -> c; c [shape=diamond]; c -> a; a -> c; c -> b [condition="outcome=success && last_stage=a"]
        b [retry_target=c]; b -> exit [condition="outcome=success"]
    }"#;
    insta::assert_snapshot!(run(source, &[("b", vec![exits(1), exits(2), ok()])]), @r"
    001 start@1 succeeded  -> c (unconditional)
    002 c@1 succeeded  -> a (unconditional)
    003 a@1 succeeded  -> c (unconditional)
    004 c@2 succeeded  -> b (condition)
    005 b@1 failed  -> c (retry_target)
    006 c@3 failed  -> a (unconditional)
    007 a@2 succeeded  -> c (unconditional)
    008 c@4 succeeded  -> b (condition)
    009 b@2 failed  -> c (retry_target)
    010 c@5 failed  -> a (unconditional)
    011 a@3 succeeded  -> c (unconditional)
    012 c@6 succeeded  -> b (condition)
    013 b@3 succeeded  -> exit (condition)
    014 exit@1 succeeded
    run succeeded
    ");
}
