//! What a green run means: which failures count, and how the run ends with them.

use fabro_events::StageFailure;

use super::*;

/// How the run ends: its last line, with what is named.
#[track_caller]
fn end(body: &str, replies: &[(&str, Vec<Reply>)]) -> String {
    let source = format!("digraph {{ {body} }}");
    let bench = Bench::new(&source, replies);
    bench.drive(Input::Start);
    let events = bench.events();
    let story = story(&events);
    let last = events.last().unwrap();
    let named: Vec<String> = last.entry.body.causes().iter().map(StageFailure::stage).collect();
    let line = story.lines().last().unwrap_or_default().to_owned();
    if named.is_empty() { line } else { format!("{line} [{}]", named.join(", ")) }
}

/// Where `a` fails, or `a` and other nodes.
fn ends(bodies: &[&str]) -> String {
    let replies: Vec<_> = ["a", "x", "y"].map(|node| (node, vec![exits(1)])).into();
    let lines = bodies.iter().map(|body| format!("{body}\n    {}\n", end(body, &replies)));
    lines.collect()
}

#[test]
fn edges_that_handle_a_failure() {
    insta::assert_snapshot!(ends(&[
        "start -> a -> exit",
        "start -> a -> b -> exit",
        "start -> a -> x -> exit",
        r#"start -> a; a -> exit [condition="outcome=fail"]"#,
        r#"start -> a; a -> b [condition="outcome=success"]; a -> exit; b -> exit"#,
        r#"start -> a -> c; c [shape=diamond]; c -> b [condition="outcome=success"]; c -> exit; b -> exit"#,
        r#"start -> a -> c -> d; c [shape=diamond]; d [shape=diamond]; d -> exit [condition="outcome=fail"]"#,
        "start -> a -> c -> exit; c [shape=diamond]",
        r#"start -> a -> b; b -> exit [condition="outcome=success"]"#,
        r#"start -> a -> exit; a -> b [label="fail"]; b -> exit"#,
    ]), @r#"
    start -> a -> exit
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> b -> exit
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> x -> exit
        run partially_succeeded; `a` failed: exit code 1; `x` failed: exit code 1 [a@1, x@1]
    start -> a; a -> exit [condition="outcome=fail"]
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a; a -> b [condition="outcome=success"]; a -> exit; b -> exit
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> c; c [shape=diamond]; c -> b [condition="outcome=success"]; c -> exit; b -> exit
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> c -> d; c [shape=diamond]; d [shape=diamond]; d -> exit [condition="outcome=fail"]
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> c -> exit; c [shape=diamond]
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> b; b -> exit [condition="outcome=success"]
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    start -> a -> exit; a -> b [label="fail"]; b -> exit
        run partially_succeeded; `a` failed: exit code 1 [a@1]
    "#);
}

#[test]
fn attributes_that_handle_a_failure() {
    insta::assert_snapshot!(ends(&[
        "start -> a -> exit; a [allow_partial=true]",
        "start -> a -> exit; a [auto_status=true]",
        "start -> a -> exit; a [on_failure=continue]",
        "start -> a -> b -> exit; graph [on_failure=continue]",
        "node [on_failure=continue]; start -> a -> b -> exit",
        "start -> a -> b -> exit; a [on_failure=stop]",
        "start -> a -> b -> exit; graph [on_failure=stop]",
        "start -> a -> x -> exit; graph [on_failure=stop]; a [on_failure=continue]",
        "start -> a -> x -> exit; graph [on_failure=continue]; x [on_failure=stop]",
        r#"start -> a; a -> exit [condition="outcome=fail"]; a [on_failure=stop]"#,
        r#"start -> a -> c; c [shape=diamond]; c -> exit [condition="outcome=fail"]; graph [on_failure=stop]"#,
        "start -> a -> c -> exit; c [shape=diamond]; graph [on_failure=stop]",
    ]), @r#"
    start -> a -> exit; a [allow_partial=true]
        run succeeded
    start -> a -> exit; a [auto_status=true]
        run succeeded
    start -> a -> exit; a [on_failure=continue]
        run succeeded
    start -> a -> b -> exit; graph [on_failure=continue]
        run succeeded
    node [on_failure=continue]; start -> a -> b -> exit
        run succeeded
    start -> a -> b -> exit; a [on_failure=stop]
        run failed: exit code 1 [a@1]
    start -> a -> b -> exit; graph [on_failure=stop]
        run failed: exit code 1 [a@1]
    start -> a -> x -> exit; graph [on_failure=stop]; a [on_failure=continue]
        run failed: exit code 1 [x@1]
    start -> a -> x -> exit; graph [on_failure=continue]; x [on_failure=stop]
        run failed: exit code 1 [x@1]
    start -> a; a -> exit [condition="outcome=fail"]; a [on_failure=stop]
        run failed: exit code 1 [a@1]
    start -> a -> c; c [shape=diamond]; c -> exit [condition="outcome=fail"]; graph [on_failure=stop]
        run failed: exit code 1 [a@1]
    start -> a -> c -> exit; c [shape=diamond]; graph [on_failure=stop]
        run failed: exit code 1 [a@1]
    "#);
}

#[test]
fn jumps_and_later_runs_that_handle_a_failure() {
    let again = [("a", vec![exits(1), ok()])];
    let late = fails(FailureClass::TransientInfra, "too late");
    let restarted = [("a", vec![late, ok()])];
    let target = r#"start -> b -> a; a -> exit [condition="outcome=success"]; a [retry_target=b]"#;
    insta::assert_snapshot!([
        end(target, &again),
        end("start -> b -> a -> exit; a [goal_gate=true, retry_target=b]", &again),
        end("start -> b -> a -> exit; a [goal_gate=true, retry_target=b]; graph [on_failure=stop]", &again),
        end(r#"start -> a -> b; b -> a [condition="internal.node_visit_count < 2"]; b -> exit"#, &again),
        end(r#"start -> a; a -> a [condition="outcome=fail", loop_restart=true]; a -> exit"#, &restarted),
        end(r#"start -> x -> a; a -> b [condition="outcome=fail", loop_restart=true]; a -> exit; b -> a"#,
            &[("x", vec![exits(2)]), restarted[0].clone()]),
        end(r#"start -> a -> b; b -> x [condition="internal.node_visit_count < 2"]; b -> exit; x -> b"#, &again),
    ].join("\n"), @r"
    run succeeded
    run succeeded
    run succeeded
    run succeeded
    run succeeded
    run partially_succeeded; `x` failed: exit code 2 [x@1]
    run partially_succeeded; `a` failed: exit code 1 [a@1]
    ");
}

#[test]
fn failures_in_branches() {
    let fan = |attrs: &str, more: &str| {
        format!(
            "start -> p; p [shape=component {attrs}]; p -> a -> j; p -> b -> j; p -> c -> j
             j [shape=tripleoctagon]; j -> exit; {more}"
        )
    };
    let conditional = |edge: &str, attrs: &str| {
        format!(
            "start -> p; p [shape=component {attrs}]; p -> a -> j; p -> b -> j
             j [shape=tripleoctagon]; {edge}; d [shape=diamond]; d -> exit [condition=\"outcome=success\"]; d -> exit"
        )
    };
    let one = [("a", vec![exits(1)])];
    let all = ["a", "b", "c"].map(|node| (node, vec![exits(1)]));
    insta::assert_snapshot!([
        end(&fan("", ""), &one),
        end(&fan("", ""), &all),
        end(&fan(", join_policy=first_success", ""), &one),
        end(&fan(", join_policy=quorum, quorum=2", ""), &one),
        end(&fan(", join_policy=quorum, quorum=3", ""), &one),
        end(&fan(", allow_partial=true", ""), &one),
        end(&fan(", on_failure=continue", ""), &one),
        end(&fan(", on_failure=stop", ""), &one),
        end(&fan("", "a [on_failure=continue]"), &one),
        end(&fan("", "a [on_failure=stop]"), &one),
        end(&fan("", "graph [on_failure=stop]"), &one),
        end(&fan(", join_policy=first_success", "graph [on_failure=stop]"), &one),
        end(&fan("", "graph [on_failure=continue]"), &all),
        end(&conditional(r#"j -> exit [condition="parallel.fan_in.best_outcome=success"]; j -> exit"#, ""), &one),
        end(&conditional("j -> d", ""), &one),
        end(&conditional("j -> d", ", on_failure=stop"), &one),
        end("start -> p; p [shape=component]; p -> a -> b -> j; p -> c -> j; j [shape=tripleoctagon]; j -> exit", &one),
        end(r#"start -> p; p [shape=component]; p -> a -> j; p -> c -> j; a -> b [condition="outcome=fail"]; b -> j
            j [shape=tripleoctagon]; j -> exit"#, &one),
        end(r#"start -> p; p [shape=component]; p -> a; p -> c -> j; a -> j [condition="outcome=success"]
            j [shape=tripleoctagon]; j -> exit"#, &one),
        end("start -> p -> q -> a -> i; q -> b -> i; p -> c -> j; i -> j -> exit
            p [shape=component]; q [shape=component]; i [shape=tripleoctagon]; j [shape=tripleoctagon]", &one),
        end("start -> p -> q -> a -> i; q -> b -> i; p -> c -> j; i -> j -> exit; p [shape=component, join_policy=first_success]
            q [shape=component, on_failure=stop]; i [shape=tripleoctagon]; j [shape=tripleoctagon]", &one),
        end(&fan(", max_retries=1, join_policy=quorum, quorum=3", ""), &[("a", vec![exits(1), ok()])]),
        end(&fan("", "j -> p [condition=\"internal.node_visit_count < 2\"]"), &[("a", vec![exits(1), ok()])]),
    ].join("\n"), @r"
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run partially_succeeded; `a` failed: exit code 1; `b` failed: exit code 1; `c` failed: exit code 1 [p@1/a/a@1, p@1/b/b@1, p@1/c/c@1]
    run succeeded
    run succeeded
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run succeeded
    run succeeded
    run failed: exit code 1 [p@1/a/a@1]
    run succeeded
    run failed: exit code 1 [p@1/a/a@1]
    run failed: exit code 1 [p@1/a/a@1]
    run succeeded
    run succeeded
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run failed: exit code 1 [p@1/a/a@1]
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run succeeded
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run partially_succeeded; `a` failed: exit code 1 [p@1/q/q@1/a/a@1]
    run succeeded
    run succeeded
    run succeeded
    ");
}

#[test]
fn a_join_handles_failures_only_if_it_looks_at_the_branches() {
    let after = |edges: &str, failing: &[&str]| {
        let body = format!(
            "start -> p; p [shape=component]; p -> a -> j; p -> b -> j; j [shape=tripleoctagon]; e -> exit; {edges}"
        );
        let replies: Vec<_> = failing.iter().map(|node| (*node, vec![exits(1)])).collect();
        end(&body, &replies)
    };
    insta::assert_snapshot!([
        after(r#"j -> e [condition="outcome=success"]"#, &["a"]),
        after(r#"j -> e; j -> exit [condition="outcome=fail"]"#, &["a"]),
        after(r#"j -> e [condition="outcome=success"]; graph [on_failure=stop]"#, &["a"]),
        after(r#"j -> e [condition="parallel.results"]"#, &["a"]),
        after(r#"j -> e [condition="internal.node_visit_count=1"]"#, &["a"]),
        after(r#"j -> e [condition="outcome=fail"]"#, &["a", "j"]),
        after(r#"j -> exit [condition="outcome=success"]; j -> e"#, &["a", "j"]),
    ].join("\n"), @r"
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run partially_succeeded; `a` failed: exit code 1 [p@1/a/a@1]
    run failed: exit code 1 [p@1/a/a@1]
    run succeeded
    run succeeded
    run succeeded
    run succeeded
    ");
}

#[test]
fn a_failure_that_a_fan_out_allows_hides_no_other() {
    let source = r#"start -> p; p [shape=component, on_failure=continue]; p -> a -> j; p -> b -> j
        j -> exit [condition="internal.node_visit_count > 1"]; j -> a"#;
    insta::assert_snapshot!(end(source, &[("a", vec![exits(1)])]), @"run partially_succeeded; `a` failed: exit code 1 [a@2]");
}

#[test]
fn a_branch_names_the_node_that_it_may_not_enter() {
    let source = r#"start -> p; p [shape=component]; p -> b -> c -> b; b [max_visits=1]
        c -> j [condition="never=1"]; p -> d -> j; j -> exit"#;
    insta::assert_snapshot!(end(source, &[]), @"run partially_succeeded; `b` failed: `b` was entered once, which is all that its visit limit allows [p@1/b/b@1]");
}

#[test]
fn what_ends_a_run_names_what_began_it() {
    let mend = |graph: &str| {
        format!(
            r#"{graph}; start -> test; test -> exit [condition="outcome=success"]; test -> mend -> test
            test [max_visits=3]"#
        )
    };
    let restart = |to: &str| {
        format!(
            r#"start -> a; a [max_visits=2]; a -> b [condition="outcome=success"]; b -> a; b [max_visits=2]
            a -> {to} [condition="outcome=fail", loop_restart=true]; b -> exit [condition="never"]"#
        )
    };
    let failing = [("test", vec![exits(1)])];
    let both = [("test", vec![exits(1)]), ("mend", vec![exits(7)])];
    insta::assert_snapshot!([
        end(&mend(""), &failing),
        end(&mend(""), &both),
        end(&mend("graph [on_failure=continue]"), &both),
        end(r#"start -> a; a -> b; b -> exit [condition="never"]"#, &[("a", vec![exits(4)])]),
        end(r#"start -> a -> b; b -> exit [condition="outcome=success"]"#, &[("a", vec![exits(4)]), ("b", vec![exits(5)])]),
        end("start -> a -> b -> exit; a [goal_gate=true]", &[("a", vec![exits(4)])]),
        end(r#"start -> a; a -> exit [condition="outcome=success"]; a [retry_target=a]"#, &[("a", vec![exits(4)])]),
        end(&restart("a"), &[("a", vec![fails(FailureClass::TransientInfra, "timed out")])]),
        end(&restart("b"), &[("a", vec![fails(FailureClass::TransientInfra, "timed out")])]),
        end(&restart("a"), &[("a", vec![fails(FailureClass::TransientInfra, "timed out"), ok()])]),
        end(&restart("a"), &[]),
    ].join("\n"), @r"
    run failed: `test` was entered 3 times, which is all that its visit limit allows; `test` failed: exit code 1 (compilation_loop) [test@3]
    run failed: `test` was entered 3 times, which is all that its visit limit allows; `mend` failed: exit code 7 (compilation_loop) [mend@1]
    run failed: `test` was entered 3 times, which is all that its visit limit allows; `mend` failed: exit code 7 (compilation_loop) [mend@3]
    run failed: no matching edge from `b`; `a` failed: exit code 4 (structural) [a@1]
    run failed: exit code 5 [a@1]
    run failed: goal gate `a` ended failed and has no retry target left: exit code 4 [a@1]
    run failed: the same failure 3 times: exit code 4 [a@3]
    run failed: `a` was entered 2 times, which is all that its visit limit allows; `a` failed: timed out (compilation_loop) [a@2]
    run failed: `a` was entered 2 times, which is all that its visit limit allows; `a` failed: timed out (compilation_loop) [a@2]
    run failed: `a` was entered 2 times, which is all that its visit limit allows (compilation_loop)
    run failed: `a` was entered 2 times, which is all that its visit limit allows (compilation_loop)
    ");
}

/// A run that is killed after any event, and resumed, ends the same way.
#[test]
fn a_resumed_run_ends_the_same_way() {
    for source in [
        "digraph { start -> a -> b -> exit }",
        "digraph { start -> a -> c -> exit; c [shape=diamond]; graph [on_failure=stop] }",
        "digraph { start -> p; p [shape=component]; p -> a -> j; p -> b -> j; j [shape=tripleoctagon]; j -> exit }",
        "digraph { start -> p; p [shape=component, join_policy=first_success, max_parallel=1]; p -> a -> d -> j; p -> b -> j; j -> exit }",
        "digraph { start -> p; p [shape=component, on_failure=stop]; p -> a -> d -> j; p -> b -> j; j -> exit }",
        r#"digraph { start -> a -> b; b -> a [condition="internal.node_visit_count < 2"]; b -> exit }"#,
    ] {
        super::resume::check_prefixes(source, &[("a", vec![exits(1)])]);
    }
}

/// A fork after the failure keeps it, one before it has none; a rewind takes it back.
#[test]
fn forks_and_rewinds_know_what_is_unhandled() {
    let source = "digraph { start -> b -> a -> c -> exit }";
    let whole = Bench::new(source, &[("a", vec![exits(1)])]);
    whole.drive(Input::Start);
    let events = whole.events();
    let counted = checkpoint::effective(&events);
    let mut ends = Vec::new();
    for stage in ["b", "a", "c"] {
        let at = checkpoint::find(&counted, Some(stage)).unwrap();
        let forked = Bench { run_id: RunId::from_parts(1, 2), ..Bench::new(source, &[]) };
        let set = fabro_types::ContextPatch::new();
        let copy = checkpoint::fork(&counted, &at, forked.run_id, 99, set.clone());
        now(forked.store.append(forked.run_id, 0, &Batch::of(&copy))).unwrap();
        forked.drive(Input::Resume { max_cost: None });
        ends.push(forked.state().status(false).as_str());

        let rewound = Bench::new(source, &[]);
        now(rewound.store.append(rewound.run_id, 1, &Batch::of(&events[1..]))).unwrap();
        let last = events.last().unwrap().seq;
        let rewind = checkpoint::rewind(rewound.run_id, &at, last, 99, set);
        now(rewound.store.append(rewound.run_id, last, &Batch::of(&[rewind]))).unwrap();
        assert!(rewound.state().causes.is_empty());
        rewound.drive(Input::Resume { max_cost: None });
        ends.push(rewound.state().status(false).as_str());
    }
    insta::assert_snapshot!(ends.join(" "), @"succeeded succeeded partially_succeeded partially_succeeded partially_succeeded partially_succeeded");
}

#[test]
fn a_fan_out_that_needs_every_branch_hides_no_failure() {
    let fan_out = |policy: &str| {
        format!(
            "start -> f; f [shape=component, join_policy={policy}]; f -> a -> c -> j; f -> b -> j; j -> exit"
        )
    };
    let end = |policy: &str| end(&fan_out(policy), &[("a", vec![exits(1)])]);
    insta::assert_snapshot!(end("wait_all"), @"run partially_succeeded; `a` failed: exit code 1 [f@1/a/a@1]");
    insta::assert_snapshot!(end("all_success"), @"run partially_succeeded; `a` failed: exit code 1 [f@1/a/a@1]");
    insta::assert_snapshot!(end("first_success"), @"run succeeded");
}

#[test]
fn a_goal_gate_in_a_branch_is_the_cause_of_its_run() {
    let body = "start -> f; f [shape=component, join_policy=first_success]; f -> a -> j; f -> b -> j; j -> exit; a [goal_gate=true]";
    insta::assert_snapshot!(end(body, &[("a", vec![exits(1)])]), @"run failed: goal gate `a` ended failed and has no retry target left: exit code 1 [a@1]");
}
