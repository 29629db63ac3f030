use super::*;

const TWO: &str = r"digraph {
    start -> checks; checks [shape=component]
    checks -> lint -> merge
    checks -> test -> fix -> merge
    merge -> exit
}";

#[test]
fn branches_meet_at_the_first_common_node() {
    let bench = Bench::new(TWO, &[("lint", vec![sets("lint_ok", true)])]);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 succeeded  -> merge (unconditional)
      checks@1/lint succeeded
      004 test@1 succeeded  -> fix (unconditional)
      006 fix@1 succeeded  -> merge (unconditional)
      checks@1/test succeeded
    002 checks@1 succeeded  -> merge (join)
    007 merge@1 succeeded  -> exit (unconditional)
    008 exit@1 succeeded
    run succeeded
    ");
    let state = bench.state();
    let context = &state.main().unwrap().context;
    assert_eq!(context.get("lint_ok"), None);
    insta::assert_snapshot!(context.get("parallel.results").unwrap(), @r#"[{"id":"lint","status":"succeeded","notes":null,"response":null,"output":null,"updates":{"lint_ok":true},"head_sha":null,"index":0,"item_label":"lint","context_updates":{"lint_ok":true}},{"id":"test","status":"succeeded","notes":null,"response":null,"output":null,"updates":{},"head_sha":null,"index":1,"item_label":"test","context_updates":{}}]"#);
}

#[test]
fn join_policies() {
    insta::assert_snapshot!(run(TWO, &[("lint", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 failed  -> merge (unconditional)
      checks@1/lint failed
      004 test@1 succeeded  -> fix (unconditional)
      006 fix@1 succeeded  -> merge (unconditional)
      checks@1/test succeeded
    002 checks@1 partially_succeeded  -> merge (join)
    007 merge@1 succeeded  -> exit (unconditional)
    008 exit@1 succeeded
    run partially_succeeded; `lint` failed: exit code 1
    ");
    let first = TWO.replace("shape=component", "shape=component, join_policy=first_success");
    insta::assert_snapshot!(run(&first, &[("test", vec![Reply::Hang])]), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 succeeded  -> merge (unconditional)
      checks@1/lint succeeded
      checks@1/test canceled
    002 checks@1 succeeded  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_goal_gate_that_is_canceled_with_its_branch_is_not_met() {
    let race = TWO.replace("shape=component", "shape=component, join_policy=first_success");
    let gate = race.replacen('{', "{ test [goal_gate=true];", 1);
    insta::assert_snapshot!(run(&gate, &[("test", vec![Reply::Hang])]), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 succeeded  -> merge (unconditional)
      checks@1/lint succeeded
      checks@1/test canceled
    002 checks@1 succeeded  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)
    run failed: goal gate `test` ended skipped and has no retry target left: it was canceled with its branch
    ");
    let retried = gate.replace("goal_gate=true", "goal_gate=true, retry_target=test");
    insta::assert_snapshot!(run(&retried, &[("test", vec![Reply::Hang, ok()])]), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 succeeded  -> merge (unconditional)
      checks@1/lint succeeded
      checks@1/test canceled
    002 checks@1 succeeded  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)  -> test (goal_gate)
    006 test@2 succeeded  -> fix (unconditional)
    007 fix@1 succeeded  -> merge (unconditional)
    008 merge@2 succeeded  -> exit (unconditional)
    009 exit@1 succeeded
    run succeeded
    ");
    let inner = r"digraph {
        start -> race; race [shape=component, join_policy=first_success]
        race -> more -> {slow; slower} -> merge; race -> fast -> merge -> exit
        more [shape=component]; slower [goal_gate=true]
    }";
    let hang = vec![Reply::Hang];
    let story = run(inner, &[("slow", hang.clone()), ("slower", hang)]);
    insta::assert_snapshot!(story.lines().last().unwrap(), @"run failed: goal gate `slower` ended skipped and has no retry target left: it was canceled with its branch");
}

#[test]
fn fan_outs_nest_and_slots_are_limited() {
    let source = r"digraph {
        start -> outer -> {a; inner}; outer [shape=component, max_parallel=1]
        inner [shape=component]; inner -> {x; y} -> merge -> done
        a -> done -> exit
    }";
    let bench = Bench::new(source, &[]);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> outer (unconditional)
    outer@1 forks 2, joins at done
      003 a@1 succeeded  -> done (unconditional)
      outer@1/a succeeded
      inner@1 forks 2, joins at merge
        006 x@1 succeeded  -> merge (unconditional)
        outer@1/inner/inner@1/x succeeded
        008 y@1 succeeded  -> merge (unconditional)
        outer@1/inner/inner@1/y succeeded
      004 inner@1 succeeded  -> merge (join)
      010 merge@1 succeeded  -> done (unconditional)
      outer@1/inner succeeded
    002 outer@1 succeeded  -> done (join)
    011 done@1 succeeded  -> exit (unconditional)
    012 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_branch_canceled_amid_its_own_fan_out_keeps_its_ranks_and_visits() {
    let source = r#"digraph {
        start -> race; race [shape=component, join_policy=first_success]
        race -> more -> {slow; slower} -> merge
        race -> fast -> faster -> merge
        more [shape=component]
        merge -> slow [condition="internal.node_visit_count < 2"]
        merge -> exit
    }"#;
    let hang = vec![Reply::Hang, ok()];
    let replies = [("slow", hang.clone()), ("slower", hang)];
    insta::assert_snapshot!(run(source, &replies), @r"
    001 start@1 succeeded  -> race (unconditional)
    race@1 forks 2, joins at merge
      more@1 forks 2, joins at merge
      004 fast@1 succeeded  -> faster (unconditional)
      006 faster@1 succeeded  -> merge (unconditional)
      race@1/fast succeeded
      race@1/more canceled
    002 race@1 succeeded  -> merge (join)
    008 merge@1 succeeded  -> slow (condition)
    009 slow@2 succeeded  -> merge (unconditional)
    010 merge@2 succeeded  -> exit (unconditional)
    011 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_failed_branch_does_not_end_the_run() {
    let source = TWO.replace("test -> fix", "test -> fix [condition=\"outcome=success\"]; fix");
    insta::assert_snapshot!(run(&source, &[("test", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> checks (unconditional)
    checks@1 forks 2, joins at merge
      003 lint@1 succeeded  -> merge (unconditional)
      checks@1/lint succeeded
      004 test@1 failed
      checks@1/test failed
    002 checks@1 partially_succeeded  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run partially_succeeded; `test` failed: exit code 1
    ");
}

#[test]
fn a_fan_out_may_be_entered_again() {
    let source = r#"digraph {
        start -> fork; fork [shape=component]; fork -> {a; b} -> merge
        merge -> fork [condition="internal.node_visit_count < 2"]
        merge -> exit
    }"#;
    insta::assert_snapshot!(run(source, &[]), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      003 a@1 succeeded  -> merge (unconditional)
      fork@1/a succeeded
      004 b@1 succeeded  -> merge (unconditional)
      fork@1/b succeeded
    002 fork@1 succeeded  -> merge (join)
    005 merge@1 succeeded  -> fork (condition)
    fork@2 forks 2, joins at merge
      007 a@2 succeeded  -> merge (unconditional)
      fork@2/a succeeded
      008 b@2 succeeded  -> merge (unconditional)
      fork@2/b succeeded
    006 fork@2 succeeded  -> merge (join)
    009 merge@2 succeeded  -> exit (unconditional)
    010 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn branches_that_fail_for_want_of_an_edge_still_meet() {
    let source = r#"digraph {
        start -> fork; fork [shape=component]
        fork -> {a; b}
        a -> merge [condition="never"]; b -> merge [condition="never"]
        merge -> exit
    }"#;
    insta::assert_snapshot!(run(source, &[]), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      003 a@1 succeeded
      fork@1/a failed
      004 b@1 succeeded
      fork@1/b failed
    002 fork@1 failed  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run partially_succeeded; `a` failed: no matching edge from `a`: add an edge without a condition, or one for this result; `b` failed: no matching edge from `b`: add an edge without a condition, or one for this result
    ");
}

#[test]
fn a_fan_out_without_a_branch_fails_where_it_stands() {
    let source = r#"digraph {
        start -> fork; fork [shape=component]
        fork -> a [condition="never"]; fork -> b [condition="never"]
        a -> merge; b -> merge; merge -> exit
    }"#;
    insta::assert_snapshot!(run(source, &[]), @r"
    001 start@1 succeeded  -> fork (unconditional)
    002 fork@1 failed
    run failed: no edge of the fan-out may be taken (structural)
    ");
}

#[test]
fn a_fan_out_that_does_nothing_does_not_go_round_for_ever() {
    let source = r#"digraph {
        start -> fork; fork [shape=component]
        fork -> meet; fork -> meet [label=again]
        meet [shape=diamond]; meet -> fork; meet -> exit [condition="never"]
    }"#;
    insta::assert_snapshot!(run(source, &[]).lines().last().unwrap(), @"run failed: the path to `meet` is an endless loop of nodes that do no work (compilation_loop)");
}

#[test]
fn many_branches_may_begin_with_conditional_nodes() {
    let mut source =
        String::from("digraph { start -> fork; fork [shape=component, max_parallel=2000]\n");
    for index in 0..1_100 {
        let c = format!("c{index}");
        let s = format!("s{index}");
        source.extend([&c, " [shape=diamond]; fork -> ", &c, " -> ", &s, " -> merge\n"]);
    }
    source += "merge -> exit }";
    assert!(run(&source, &[]).ends_with("run succeeded\n"));
}

#[test]
fn a_quorum_that_cannot_be_had_says_so() {
    let source = TWO.replace("shape=component", "shape=component, join_policy=quorum, quorum=3");
    let bench = Bench::new(&source, &[]);
    bench.drive(Input::Start);
    let ends = bench.state().main().unwrap().ends.clone();
    let failure = ends.get("checks").unwrap().failure.clone().unwrap();
    assert_eq!(
        failure.message,
        "0 of 2 branches succeeded and none failed, but the join policy needs 3"
    );
}

#[test]
fn a_branch_does_not_leave_for_the_graphs_retry_target() {
    let source = r#"digraph {
        graph [retry_target=plan]
        start -> plan -> fork; fork [shape=component]; fork -> {a; b} -> merge -> exit
        b -> merge [condition="outcome=success"]
    }"#;
    let source = source.replace("fork -> {a; b} -> merge", "fork -> {a; b}; a -> merge; merge");
    insta::assert_snapshot!(run(&source, &[("b", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> plan (unconditional)
    002 plan@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      004 a@1 succeeded  -> merge (unconditional)
      fork@1/a succeeded
      005 b@1 failed
      fork@1/b failed
    003 fork@1 partially_succeeded  -> merge (join)
    006 merge@1 succeeded  -> exit (unconditional)
    007 exit@1 succeeded
    run partially_succeeded; `b` failed: exit code 1
    ");
}

#[test]
fn a_fan_out_is_not_entered_from_its_own_branch() {
    let source = r#"digraph {
        start -> plan -> fork; fork [shape=component]; fork -> {a; b}; a -> merge; merge -> exit
        b -> merge [condition="outcome=success"]; b [retry_target=plan]
    }"#;
    insta::assert_snapshot!(run(source, &[("b", vec![exits(1)])]), @r"
    001 start@1 succeeded  -> plan (unconditional)
    002 plan@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      004 a@1 succeeded  -> merge (unconditional)
      fork@1/a succeeded
      005 b@1 failed  -> plan (retry_target)
      007 plan@2 succeeded  -> fork (unconditional)
      009 fork@2 failed
      fork@1/b failed
    003 fork@1 partially_succeeded  -> merge (join)
    010 merge@1 succeeded  -> exit (unconditional)
    011 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_fan_out_takes_as_long_as_from_its_start_to_its_end() {
    let bench = Bench::new(
        "digraph { start -> fork; fork [shape=component]; fork -> a -> join; fork -> b -> join; join -> exit }",
        &[],
    );
    bench.story();
    let events = bench.events();
    let of_fork = |event: &&Event| event.entry.node_id.as_deref() == Some("fork");
    let started = events.iter().find(of_fork).unwrap();
    let (end, took) = events
        .iter()
        .filter(of_fork)
        .find_map(|event| match &event.entry.body {
            EventBody::StageCompleted(end) => Some((event, end.outcome.duration_ms)),
            _ => None,
        })
        .unwrap();
    assert!(took > 0);
    assert_eq!(i64::try_from(took).unwrap(), end.ts_ms - started.ts_ms);
}

#[test]
fn a_stage_that_waits_for_a_place_does_not_time_out() {
    let source = "digraph {
        start -> fork; fork [shape=component, max_parallel=50]
        fork -> {a; b; c; d} -> merge -> exit
        node [timeout=10s]; a; b; c; d
    }";
    let slow = ["a", "b", "c", "d"].map(|node| (node, vec![Reply::Slow]));
    let mut bench = Bench::new(source, &slow);
    let script = Arc::get_mut(&mut bench.script).unwrap();
    script.places = Some(Arc::new(tokio::sync::Semaphore::new(1)));
    assert!(bench.story().ends_with("run succeeded\n"));
}
