use super::*;

#[test]
fn a_line_of_stages() {
    insta::assert_snapshot!(run("digraph { start -> plan -> build -> exit }", &[]), @r"
    001 start@1 succeeded  -> plan (unconditional)
    002 plan@1 succeeded  -> build (unconditional)
    003 build@1 succeeded  -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn conditions_come_first_then_labels_then_weight() {
    let source = r#"digraph {
        start -> review
        review -> ship [label="[A] Approve"]
        review -> fix [label="[R] Revise", weight=9]
        review -> stop [condition="context.score < 10", weight=1]
        ship -> exit; fix -> review; stop -> exit
    }"#;
    insta::assert_snapshot!(run(source, &[("review", vec![ok(), wants("a")])]), @r"
    001 start@1 succeeded  -> review (unconditional)
    002 review@1 succeeded  -> fix (unconditional)
    003 fix@1 succeeded  -> review (unconditional)
    004 review@2 succeeded  -> ship (preferred_label)
    005 ship@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(run(source, &[("review", vec![sets("score", 3)])]), @r"
    001 start@1 succeeded  -> review (unconditional)
    002 review@1 succeeded  -> stop (condition)
    003 stop@1 succeeded  -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn conditional_nodes_pass_the_signals_on() {
    let source = r#"digraph {
        start -> test -> gate
        gate [shape=diamond]
        gate -> exit [condition="outcome=success"]
        gate -> test [condition="outcome=fail"]
    }"#;
    insta::assert_snapshot!(run(source, &[("test", vec![exits(1), ok()])]), @r"
    001 start@1 succeeded  -> test (unconditional)
    002 test@1 failed  -> gate (unconditional)
    003 gate@1 failed  -> test (condition)
    004 test@2 succeeded  -> gate (unconditional)
    005 gate@2 succeeded  -> exit (condition)
    006 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn of_two_edges_to_the_same_node_the_one_taken_gives_fidelity_and_thread() {
    let started = |source: &str| -> Vec<String> {
        let bench = Bench::new(source, &[("a", vec![exits(1)])]);
        bench.story();
        let events = bench.events();
        let stages = events.iter().filter_map(|event| match &event.entry.body {
            EventBody::StageStarted { fidelity, thread_id, .. } => {
                let node = event.entry.node_id.as_deref()?;
                let thread = thread_id.as_deref().unwrap_or("-");
                node.starts_with('b').then(|| format!("{node} {fidelity} {thread}"))
            }
            _ => None,
        });
        stages.collect()
    };
    let conditions = r#"digraph {
        start -> a
        a -> b [condition="outcome=success", fidelity=full, thread_id=one]
        a -> b [condition="outcome=fail", fidelity=full, thread_id=two]
        b -> exit
    }"#;
    assert_eq!(started(conditions), ["b full two"]);
    let branches = r"digraph {
        fan [shape=component]
        start -> fan
        fan -> b [fidelity=full, thread_id=one]
        fan -> b [fidelity=truncate]
        fan -> c -> join -> exit
        b -> join
    }";
    assert_eq!(started(branches), ["b full one", "b truncate -"]);
}

#[test]
fn nothing_matches() {
    let source = r#"digraph { start -> a; a -> exit [condition="x=1"] }"#;
    insta::assert_snapshot!(run(source, &[]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded
    run failed: no matching edge from `a`: add an edge without a condition, or one for this result (structural)
    ");
}

#[test]
fn a_restart_begins_with_a_fresh_context() {
    let source = r#"digraph {
        graph [goal="g"]
        start -> work -> check
        check -> work [condition="internal.node_visit_count < 2", loop_restart=true]
        check -> exit
    }"#;
    let bench = Bench::new(source, &[("work", vec![sets("junk", 1), ok()])]);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> work (unconditional)
    002 work@1 succeeded  -> check (unconditional)
    003 check@1 succeeded  -> work (condition)
    restart at work
    004 work@2 succeeded  -> check (unconditional)
    005 check@2 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
    let state = bench.state();
    let context = &state.main().unwrap().context;
    assert_eq!(context.get("junk"), None);
    assert_eq!(context.text("graph.goal"), "test it");
}

#[test]
fn a_loop_of_conditional_nodes_ends() {
    let source = r#"digraph { start -> a; a [shape=diamond]; b [shape=diamond]; a -> b -> a; b -> exit [condition="never"] }"#;
    insta::assert_snapshot!(run(source, &[]).lines().last().unwrap(), @"run failed: the path to `b` is an endless loop of nodes that do no work (compilation_loop)");
}

#[test]
fn random_selection_depends_on_the_seed_only() {
    let source = r"digraph { start -> pick; pick [selection=random]; pick -> a [weight=3]; pick -> b; a -> exit; b -> exit }";
    assert_eq!(run(source, &[]), run(source, &[]));
    let drawn = |source: &str| {
        let bench = Bench::new(source, &[]);
        bench.story();
        let events = bench.events();
        let drawn = events.iter().filter(
            |event| matches!(&event.entry.body, EventBody::EdgeSelected(choice) if choice.random),
        );
        drawn.filter_map(|event| event.entry.node_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(drawn(source), ["pick".into()]);
    // Where a rule leaves one edge, nothing is drawn.
    let single = r#"digraph { start -> pick; pick [selection=random]; pick -> a [condition="outcome=success"]; pick -> b; a -> exit; b -> exit }"#;
    assert_eq!(drawn(single), [] as [Arc<str>; 0]);
}
