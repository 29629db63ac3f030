use super::*;

/// A log cut after any decision and resumed comes to the same final context. (The events of one
/// decision are one commit; the bench's clock gives each decision a time of its own.)
#[test]
fn any_prefix_of_the_log_can_be_resumed() {
    let source = r#"digraph {
        start -> work -> checks; checks [shape=component, max_parallel=2]
        checks -> {lint; test; audit} -> merge
        merge -> work [condition="internal.node_visit_count < 2"]
        merge -> exit
        work [max_retries=1]
    }"#;
    let replies = [
        ("work", vec![sets("round", 1), exits(1), sets("round", 2)]),
        ("lint", vec![sets("lint", "ok")]),
    ];
    check_prefixes(source, &replies);
}

#[test]
fn any_prefix_of_the_attempts_of_a_fan_out_can_be_resumed() {
    let source = r#"digraph {
        start -> outer -> {fork; c}; outer [shape=component, timeout=1h]
        fork [shape=component, max_retries=3, timeout=10s, max_parallel=1]; fork -> {a; b} -> merge
        c -> done -> exit
        merge [retry_target=fork]; merge -> done [condition="outcome=success"]
    }"#;
    let replies = [
        ("a", vec![exits(1), exits(1), ok(), exits(1), sets("made", "a")]),
        ("b", vec![exits(2)]),
        ("merge", vec![exits(3), ok()]),
    ];
    check_prefixes(source, &replies);
    check_prefixes(&source.replace("max_retries=3", "allow_partial=true"), &replies);
    check_prefixes(&source.replace("max_retries=3", "auto_status=true"), &replies);
}

#[track_caller]
pub(super) fn check_prefixes(source: &str, replies: &[(&str, Vec<Reply>)]) {
    let whole = Bench::new(source, replies);
    whole.drive(Input::Start);
    let events = whole.events();
    let end = whole.state();
    for cut in 1..events.len() {
        if events.get(cut + 1).is_some_and(|next| next.ts_ms == events[cut].ts_ms) {
            continue;
        }
        let bench = Bench::new(source, &[]);
        let prefix = &events[1..=cut.min(events.len() - 1)];
        now(bench.store.append(bench.run_id, 1, &Batch::of(prefix))).unwrap();
        // What a stage does depends on what was committed, as it would with a real command.
        let state = bench.state();
        let taken = |node: &str| {
            let retries = prefix.iter().filter(|event| {
                event.entry.node_id.as_deref() == Some(node)
                    && matches!(
                        event.entry.body,
                        EventBody::StageCompleted(_)
                            | EventBody::StageFailed(_)
                            | EventBody::StageRetrying { .. }
                    )
            });
            retries.count()
        };
        let mut ends = bench.script.ends.lock().unwrap();
        for (node, list) in replies {
            let from = taken(node).min(list.len() - 1);
            ends.insert((*node).to_owned(), list[from..].to_vec());
        }
        drop(ends);
        let first = if state.phase == Phase::Created {
            Input::Start
        } else {
            Input::Resume { max_cost: None }
        };
        bench.drive(first);
        let again = bench.state();
        assert_eq!(again.phase, end.phase, "cut after {cut}");
        assert_eq!(
            again.main().unwrap().context.to_json(),
            end.main().unwrap().context.to_json(),
            "cut after {cut}"
        );
    }
}

#[test]
fn a_gate_that_nobody_answers_pauses_the_run() {
    let source = "digraph { start -> ask -> exit; ask [shape=hexagon] }";
    let bench = Bench::new(source, &[("ask", vec![Reply::Suspend, ok()])]);
    assert_eq!(bench.drive(Input::Start), RunEnd::Paused(fabro_events::PauseReason::Human));
    assert_eq!(
        bench.drive(Input::Resume { max_cost: None }),
        RunEnd::Over(fabro_types::RunStatus::Succeeded, None)
    );
    insta::assert_snapshot!(story(&bench.events()), @r#"
    001 start@1 succeeded  -> ask (unconditional)
    paused: Human ["ask"]
    resumed
    002 ask@1 succeeded  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    "#);
}

#[test]
fn a_budget_pauses_the_run_and_a_larger_one_goes_on() {
    let source = "digraph { graph [max_cost=1.0]; start -> a -> b -> exit }";
    let bench = Bench::new(source, &[("a", vec![costs(1.5)])]);
    assert_eq!(bench.drive(Input::Start), RunEnd::Paused(fabro_events::PauseReason::Budget));
    assert_eq!(
        bench.drive(Input::Resume { max_cost: Some(5.0) }),
        RunEnd::Over(fabro_types::RunStatus::Succeeded, None)
    );
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded  -> b (unconditional)
    paused: Budget []
    resumed
    003 b@1 succeeded  -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_message_cancels_the_run() {
    use fabro_store::{Inbox, Message};
    let bench = Bench::new("digraph { start -> a -> exit }", &[("a", vec![Reply::Hang])]);
    now(bench.store.post(bench.run_id, &Message::Cancel { reason: "enough".into() })).unwrap();
    assert_eq!(bench.drive(Input::Start), RunEnd::Over(fabro_types::RunStatus::Canceled, None));
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> a (unconditional)
    run canceled: enough
    ");
}

#[test]
fn a_fork_and_a_rewind_choose_the_outgoing_edge_again() {
    let source = r#"digraph {
        start -> test
        test -> exit [condition="passed=true"]
        test -> fix; fix -> exit
    }"#;
    let bench = Bench::new(source, &[]);
    bench.drive(Input::Start);
    let events = bench.events();
    let counted = checkpoint::effective(&events);
    let at = checkpoint::find(&counted, Some("test")).unwrap();
    assert_eq!(checkpoint::find(&counted, None).unwrap().stage, "fix@1");
    assert_eq!(checkpoint::find(&counted, Some("exit")), None);
    let set = fabro_types::ContextPatch::from([("passed".to_owned(), Arc::new(true.into()))]);

    let forked = Bench { run_id: RunId::from_parts(1, 2), ..Bench::new(source, &[]) };
    let copy = checkpoint::fork(&counted, &at, forked.run_id, 99, set.clone());
    now(forked.store.append(forked.run_id, 0, &Batch::of(&copy))).unwrap();
    forked.drive(Input::Resume { max_cost: None });
    insta::assert_snapshot!(story(&forked.events()), @r"
    001 start@1 succeeded  -> test (unconditional)
    002 test@1 succeeded
    resumed  -> exit (condition)
    003 exit@1 succeeded
    run succeeded
    ");

    let last = events.len() as u64;
    let rewound = checkpoint::rewind(bench.run_id, &at, last, 99, set);
    now(bench.store.append(bench.run_id, last, &Batch::of(&[rewound]))).unwrap();
    bench.drive(Input::Resume { max_cost: None });
    assert_eq!(bench.script.ran.lock().unwrap().join(" "), "test@1.1 fix@1.1");
    assert_eq!(bench.state().main().unwrap().visits.get("fix"), None);
}

#[test]
fn a_message_cancels_a_run_that_has_nothing_to_do() {
    use fabro_store::{Inbox, Message};
    let bench = Bench::new("digraph { graph [max_cost=0.0]; start -> a -> exit }", &[]);
    now(bench.store.post(bench.run_id, &Message::Cancel { reason: "enough".into() })).unwrap();
    assert_eq!(bench.drive(Input::Start), RunEnd::Over(fabro_types::RunStatus::Canceled, None));
    insta::assert_snapshot!(story(&bench.events()), @"run canceled: enough");
    assert_eq!(now(bench.store.pending(bench.run_id)).unwrap(), []);
}

/// A fork may cut the log inside of one commit, with branches open.
#[test]
fn a_run_can_be_forked_at_the_end_of_every_stage() {
    let source = r#"digraph {
        start -> outer; outer [shape=component, max_parallel=2]
        outer -> {a; inner; look}
        inner [shape=component, join_policy=first_success]; inner -> {x; y} -> merge -> done
        look [shape=diamond]; look -> b; a -> done; b -> done
        done -> outer [condition="internal.node_visit_count < 2"]
        done -> exit
    }"#;
    check_forks(source, &[]);
    let again = r"digraph {
        start -> outer -> {a; inner}; outer [shape=component, timeout=1h]
        inner [shape=component, max_retries=2]; inner -> {x; y} -> merge -> done
        a -> done -> exit
    }";
    check_forks(again, &[("x", vec![exits(1), exits(1), ok()]), ("y", vec![exits(2)])]);
}

#[track_caller]
fn check_forks(source: &str, replies: &[(&str, Vec<Reply>)]) {
    let whole = Bench::new(source, replies);
    whole.drive(Input::Start);
    let events = whole.events();
    let counted = checkpoint::effective(&events);
    let ends = events.iter().filter(|event| {
        matches!(event.entry.body, EventBody::StageCompleted(_))
            && event.entry.node_id.as_deref() != Some("exit")
    });
    for end in ends {
        let at = checkpoint::Checkpoint { seq: end.seq, stage: String::new() };
        let forked = Bench { run_id: RunId::from_parts(1, 2), ..Bench::new(source, &[]) };
        let copy =
            checkpoint::fork(&counted, &at, forked.run_id, 99, fabro_types::ContextPatch::new());
        now(forked.store.append(forked.run_id, 0, &Batch::of(&copy))).unwrap();
        forked.drive(Input::Resume { max_cost: None });
        let ran = story(&forked.events());
        let reached = ["\nrun succeeded", "\nrun partially_succeeded"];
        assert!(reached.iter().any(|end| ran.contains(end)), "cut after {}: {ran}", end.seq);
        let visits = |bench: &Bench| bench.state().main().unwrap().visits.get("done").copied();
        assert_eq!(visits(&forked), visits(&whole), "cut after {}", end.seq);
    }
}

#[test]
fn another_attempt_waits_for_the_budget_too() {
    let source = "digraph { graph [max_cost=1.0]; start -> a -> exit; a [max_retries=1] }";
    let mut dear = Outcome::failed(Failure::new(FailureClass::Deterministic, "no"));
    dear.usage = Some(fabro_types::Usage { cost_usd: 1.5, ..fabro_types::Usage::default() });
    let bench = Bench::new(source, &[("a", vec![Reply::End(Box::new(dear)), ok()])]);
    assert_eq!(bench.drive(Input::Start), RunEnd::Paused(fabro_events::PauseReason::Budget));
    bench.drive(Input::Resume { max_cost: Some(5.0) });
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> a (unconditional)
    a@1 retries: no
    paused: Budget []
    resumed
    002 a@1 succeeded in 2  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn stages_of_branches_are_told_apart_by_their_branch() {
    let source = r#"digraph {
        start -> fork; fork [shape=component, max_parallel=1]; fork -> a -> c; fork -> b -> c; fork -> d
        c -> join; d -> join -> more; more -> c [condition="internal.node_visit_count < 2"]; more -> exit
    }"#;
    let bench = Bench::new(source, &[]);
    bench.drive(Input::Start);
    let events = bench.events();
    let counted = checkpoint::effective(&events);
    let meant = |text| checkpoint::meant(&counted, checkpoint::StageName::parse(text)).join(" ");
    assert_eq!(meant("c@1"), "fork@1/a/c@1 fork@1/b/c@1");
    assert_eq!(meant("fork@1/a/c@1"), "fork@1/a/c@1");
    assert_eq!(meant("fork@1/a/c"), "fork@1/a/c@1");
    assert_eq!(meant("c"), "c@3");
    assert_eq!(meant("c@2"), "");
    assert_eq!(meant("a/c@1"), "fork@1/a/c@1");
    assert_eq!(meant("k@1/a/c@1"), "");
    let branch_at = |text| {
        let at = checkpoint::find(&counted, Some(text))?;
        let end = counted.iter().find(|event| event.seq == at.seq)?;
        end.entry.branch.as_deref()
    };
    assert_eq!(branch_at("fork@1/a/c@1"), Some("fork@1/a"));
    assert_eq!(branch_at("fork@1/b/c"), Some("fork@1/b"));
    assert_eq!(branch_at("c@1"), Some("fork@1/b"));
    assert_eq!(branch_at("fork@2/b/c@1"), None);
}
