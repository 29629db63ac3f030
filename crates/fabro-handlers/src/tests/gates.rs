use super::*;
use fabro_store::{Inbox, StoreError};

const GATE: &str = r#"digraph {
    start; exit; node [shape=parallelogram, script=run]
    start -> ask; ask [shape=hexagon, label="Ship it?"]
    ask -> ship [label="[A] Approve"]
    ask -> plan [label="Revise"]
    ask -> plan
    ask -> note [freeform=true, label="Say more"]
    {ship; plan; note} -> exit
}"#;

const PLAIN: &str = r#"digraph {
    start; exit; node [shape=parallelogram, script=run]
    start -> ask; ask [shape=hexagon]
    ask -> ship [label="[A] Approve"]; ask -> plan [label="Revise"]
    {ship; plan} -> exit
}"#;

#[track_caller]
fn answered(source: &str, answers: &[&str]) -> String {
    let scene = Scene::new(source).prints(&[("run", "")]);
    let scene = scene.answers(&json!({"ask": answers}).to_string());
    let story = scene.story();
    let lines: Vec<_> = story.lines().filter(|line| line.contains("ask")).collect();
    lines.join("\n") + "\n" + &scene.context(&["human.", "preferred_label"])
}

#[test]
fn a_gate_asks_what_its_edges_offer() {
    insta::assert_snapshot!(answered(GATE, &["a"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told A "Approve" None by answers
    002 ask@1 succeeded -> ship (preferred_label)
    human.gate.ask.answer = "A"
    human.gate.ask.label = "[A] Approve"
    human.gate.ask.question = "Ship it?"
    human.gate.label = "[A] Approve"
    human.gate.selected = "A"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(GATE, &["revise"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told R "Revise" None by answers
    002 ask@1 succeeded -> plan (preferred_label)
    human.gate.ask.answer = "R"
    human.gate.ask.label = "Revise"
    human.gate.ask.question = "Ship it?"
    human.gate.label = "Revise"
    human.gate.selected = "R"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(GATE, &["3"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told P "plan" None by answers
    002 ask@1 succeeded -> plan (suggested_next)
    human.gate.ask.answer = "P"
    human.gate.ask.label = "plan"
    human.gate.ask.question = "Ship it?"
    human.gate.label = "plan"
    human.gate.selected = "P"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(GATE, &["later, perhaps"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told freeform "Say more" Some("later, perhaps") by answers
    002 ask@1 succeeded -> note (preferred_label)
    human.gate.ask.answer = "later, perhaps"
    human.gate.ask.label = "Say more"
    human.gate.ask.question = "Ship it?"
    human.gate.label = "Say more"
    human.gate.selected = "freeform"
    human.gate.text = "later, perhaps"
    preferred_label = ""
    "#);
}

#[test]
fn an_answer_that_means_nothing_is_asked_again() {
    insta::assert_snapshot!(answered(PLAIN, &["what?", "", "A"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask warns (gate) "what?" is not an answer: choose [A] Approve or [R] Revise
    ask warns (gate) "" is not an answer: choose [A] Approve or [R] Revise
    ask is told A "Approve" None by answers
    002 ask@1 succeeded -> ship (preferred_label)
    human.gate.ask.answer = "A"
    human.gate.ask.label = "[A] Approve"
    human.gate.ask.question = "ask"
    human.gate.label = "[A] Approve"
    human.gate.selected = "A"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(PLAIN, &["what?"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask warns (gate) "what?" is not an answer: choose [A] Approve or [R] Revise
    paused: Human ["ask"]
    preferred_label = ""
    "#);
}

#[test]
fn options_of_the_same_label_are_told_apart() {
    let source = PLAIN.replace("\"[A] Approve\"", "\"[A] Go\"").replace("\"Revise\"", "\"[B] go\"");
    insta::assert_snapshot!(answered(&source, &["A"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Go, [B] go
    ask is told A "Go" None by answers
    002 ask@1 succeeded -> ship (suggested_next)
    human.gate.ask.answer = "A"
    human.gate.ask.label = "[A] Go"
    human.gate.ask.question = "ask"
    human.gate.label = "[A] Go"
    human.gate.selected = "A"
    preferred_label = ""
    "#);
}

#[test]
fn a_gate_with_conditions_only_offers_them() {
    let source = r#"digraph {
        start -> ask; ask [shape=hexagon]
        ask -> a [condition="human.gate.selected=A"]; ask -> b [condition="human.gate.selected=B"]
        {a; b} -> exit
    }"#;
    let scene = Scene::new(source).agreeing().model(r#"{"*": [{"text": "ok"}]}"#);
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] a, [B] b
    ask is told A "a" None by auto
    002 ask@1 succeeded -> a (condition)
    003 a@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);
    let scene = Scene::new("digraph { start -> ask; ask [shape=hexagon] }").agreeing();
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> ask (unconditional)
    002 ask@1 failed: the gate has no edge to choose: add one with a label (structural)
    run failed: the gate has no edge to choose: add one with a label (structural)
    ");
}

/// A gate with options of which some may not be taken.
fn guarded(gate: &str, approve: &str, reject: &str) -> String {
    format!(
        r#"digraph {{
        start; exit; node [shape=parallelogram, script=run]
        start -> ask; ask [shape=hexagon{gate}]
        ask -> ship [label="[A] Approve"{approve}]; ask -> plan [label="[R] Reject"{reject}]
        {{ship; plan}} -> exit
    }}"#
    )
}

#[test]
fn an_option_whose_condition_does_not_hold_is_refused() {
    let closed = r#", condition="tests=passed""#;
    insta::assert_snapshot!(answered(&guarded("", closed, ""), &["Approve", "r"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve (not now: tests=passed does not hold, there is no value), [R] Reject
    ask warns (gate) "Approve" cannot be chosen, because tests=passed does not hold, there is no value: choose [R] Reject
    ask is told R "Reject" None by answers
    002 ask@1 succeeded -> plan (preferred_label)
    human.gate.ask.answer = "R"
    human.gate.ask.label = "[R] Reject"
    human.gate.ask.question = "ask"
    human.gate.label = "[R] Reject"
    human.gate.selected = "R"
    preferred_label = ""
    "#);
    let source = guarded(", human.default_choice=ship", closed, "");
    insta::assert_snapshot!(Scene::new(&source).prints(&[("run", "")]).agreeing().story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve (not now: tests=passed does not hold, there is no value), [R] Reject
    ask is told R "Reject" None by auto
    002 ask@1 succeeded -> plan (preferred_label)
    003 plan@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);
    // A default that cannot be taken does not count.
    let source = guarded(", timeout=3m, human.default_choice=ship", closed, "");
    insta::assert_snapshot!(Scene::new(&source).story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve (not now: tests=passed does not hold, there is no value), [R] Reject
    002 ask@1 failed: no answer within 180s, and the default [A] Approve cannot be chosen: tests=passed does not hold, there is no value: raise its `timeout`, or name another `human.default_choice` (transient_infra)
    run failed: no answer within 180s, and the default [A] Approve cannot be chosen: tests=passed does not hold, there is no value: raise its `timeout`, or name another `human.default_choice` (transient_infra)
    "#);
    // Nothing is left to choose.
    let source = guarded("", closed, r#", condition="last_stage=start && outcome=succeeded""#);
    insta::assert_snapshot!(Scene::new(&source).story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    002 ask@1 failed: no option of the gate can be chosen: [A] Approve: tests=passed does not hold, there is no value; [R] Reject: last_stage=start does not hold, the value is "ask"
    run failed: no option of the gate can be chosen: [A] Approve: tests=passed does not hold, there is no value; [R] Reject: last_stage=start does not hold, the value is "ask"
    "#);
}

#[test]
fn an_answer_never_leads_to_another_option() {
    // Conditions on the answer itself hold after it.
    let of_answer = guarded(
        "",
        r#", condition="human.gate.selected=A && preferred_label=Approve && outcome=succeeded""#,
        r#", condition="human.gate.label=\"[R] Reject\" && last_stage=ask""#,
    );
    // One that holds always, and a higher weight, are no answer.
    let holds = guarded("", "", r#", condition="outcome=succeeded", weight=9"#);
    let weighs =
        guarded("", r#", condition="outcome=succeeded""#, r#", condition="last_stage", weight=9"#);
    for source in [&of_answer, &holds, &weighs] {
        for (answer, to) in [("a", "-> ship"), ("r", "-> plan")] {
            let story = answered(source, &[answer]);
            assert!(story.contains(to), "{source}\n{answer}: {story}");
        }
    }
    // An edge that is no option is taken when its condition holds.
    let early =
        holds.replace("ask -> ship", "ask -> exit [condition=\"outcome=succeeded\"]; ask -> ship");
    assert!(answered(&early, &["a"]).contains("ask@1 succeeded -> exit (condition)"));
}

#[test]
fn the_key_of_the_free_text_edge_chooses_it() {
    let source = GATE.replace("\"Say more\"", "\"[S] Say more\"");
    insta::assert_snapshot!(answered(&source, &["s"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told freeform "Say more" Some("") by answers
    002 ask@1 succeeded -> note (preferred_label)
    human.gate.ask.answer = ""
    human.gate.ask.label = "[S] Say more"
    human.gate.ask.question = "Ship it?"
    human.gate.label = "[S] Say more"
    human.gate.selected = "freeform"
    human.gate.text = ""
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(&source, &["[S] a"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told freeform "Say more" Some("a") by answers
    002 ask@1 succeeded -> note (preferred_label)
    human.gate.ask.answer = "a"
    human.gate.ask.label = "[S] Say more"
    human.gate.ask.question = "Ship it?"
    human.gate.label = "[S] Say more"
    human.gate.selected = "freeform"
    human.gate.text = "a"
    preferred_label = ""
    "#);
}

#[test]
fn types_of_questions() {
    let source =
        |attrs: &str| PLAIN.replace("[shape=hexagon]", &format!("[shape=hexagon, {attrs}]"));
    insta::assert_snapshot!(answered(&source("question_type=yes_no"), &["no"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask is told R "Revise" None by answers
    002 ask@1 succeeded -> plan (preferred_label)
    human.gate.ask.answer = "no"
    human.gate.ask.label = "Revise"
    human.gate.ask.question = "ask"
    human.gate.label = "Revise"
    human.gate.selected = "R"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(&source("question_type=multi_select"), &["r, a"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask is told A, R "Approve, Revise" None by answers
    002 ask@1 succeeded -> ship (preferred_label)
    human.gate.ask.answer = "A, R"
    human.gate.ask.label = "[A] Approve, Revise"
    human.gate.ask.question = "ask"
    human.gate.label = "[A] Approve, Revise"
    human.gate.selected = "A, R"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(answered(&source("question_type=freeform"), &["whatever"]), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask is told freeform "" Some("whatever") by answers
    002 ask@1 succeeded -> plan (unconditional)
    human.gate.ask.answer = "whatever"
    human.gate.ask.label = "whatever"
    human.gate.ask.question = "ask"
    human.gate.label = ""
    human.gate.selected = "freeform"
    human.gate.text = "whatever"
    preferred_label = ""
    "#);
}

#[test]
fn nobody_there_pauses_the_run_and_days_later_it_goes_on() {
    let scene = Scene::new(PLAIN).prints(&[("run", "")]);
    scene.drive().unwrap();
    now(scene.store.post(scene.run_id(), &answer("ask", "Revise"))).unwrap();
    let second = now(scene.store.post(scene.run_id(), &answer("ask", "A")));
    assert!(matches!(second, Err(StoreError::AlreadyAnswered { .. })));
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    paused: Human ["ask"]
    resumed
    ask is told R "Revise" None by inbox
    002 ask@1 succeeded -> plan (preferred_label)
    003 plan@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);
}

#[test]
fn an_answer_from_elsewhere_ends_the_question() {
    let scene = Scene::new(PLAIN).prints(&[("run", "")]).thinking();
    let scene = scene.posts("gate.asked", answer("ask", "approve"));
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask is told A "Approve" None by inbox
    002 ask@1 succeeded -> ship (preferred_label)
    003 ship@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);
    let late = now(scene.store.post(scene.run_id(), &answer("ask", "R")));
    assert!(matches!(late, Err(StoreError::AlreadyAnswered { .. })));
}

#[test]
fn a_wrong_answer_from_elsewhere_leaves_the_gate_open() {
    let scene = Scene::new(PLAIN).prints(&[("run", "")]).thinking();
    let scene = scene.posts("gate.asked", answer("ask", "dunno"));
    let scene = scene.posts("gate.asked", answer("ask", "A"));
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask warns (gate) "dunno" is not an answer: choose [A] Approve or [R] Revise
    ask asks "ask": [A] Approve, [R] Revise
    ask is told A "Approve" None by inbox
    002 ask@1 succeeded -> ship (preferred_label)
    003 ship@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);

    let paused = Scene::new(PLAIN).prints(&[("run", "")]);
    paused.drive().unwrap();
    now(paused.store.post(paused.run_id(), &answer("ask", "dunno"))).unwrap();
    paused.drive().unwrap();
    now(paused.store.post(paused.run_id(), &answer("ask", "R"))).unwrap();
    insta::assert_snapshot!(paused.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    paused: Human ["ask"]
    resumed
    ask warns (gate) "dunno" is not an answer: choose [A] Approve or [R] Revise
    ask asks "ask": [A] Approve, [R] Revise
    paused: Human ["ask"]
    resumed
    ask is told R "Revise" None by inbox
    002 ask@1 succeeded -> plan (preferred_label)
    003 plan@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);
}

#[test]
fn a_gate_gives_up_after_its_time() {
    let source = |attrs: &str| {
        PLAIN.replace("[shape=hexagon]", &format!("[shape=hexagon, timeout=3m, {attrs}]"))
    };
    let told = |source: &str| {
        let scene = Scene::new(source).prints(&[("run", "")]).thinking();
        let story = scene.story();
        let state = scene.state();
        let waited = state.updated_ms - state.started_ms;
        format!("{story}{waited} ms\n{}", scene.context(&["human", "failure_class"]))
    };
    insta::assert_snapshot!(told(&source("human.default_choice=plan")), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask is told R "Revise" None by timeout
    002 ask@1 succeeded (no answer within 180s: the default was taken) -> plan (preferred_label)
    003 plan@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    180000 ms
    human.gate.ask.answer = "timeout"
    human.gate.ask.label = "Revise"
    human.gate.ask.question = "ask"
    human.gate.label = "Revise"
    human.gate.selected = "R"
    "#);
    insta::assert_snapshot!(told(&source("x=1")), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    002 ask@1 failed: no answer within 180s: raise its `timeout`, or name a `human.default_choice` (transient_infra)
    run failed: no answer within 180s: raise its `timeout`, or name a `human.default_choice` (transient_infra)
    180000 ms
    failure_class = "transient_infra"
    "#);
    let edges = "ask -> plan [condition=\"outcome=failed\"]; ask -> ship";
    insta::assert_snapshot!(told(&source("x=1").replace("ask -> ship", edges)), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    002 ask@1 failed: no answer within 180s: raise its `timeout`, or name a `human.default_choice` (transient_infra) -> plan (condition)
    003 plan@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    180000 ms
    failure_class = ""
    "#);
    let text = GATE.replace("label=\"Ship it?\"", "timeout=3m, human.default_choice=note");
    insta::assert_snapshot!(told(&text), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise, [P] plan or text
    ask is told freeform "Say more" Some("") by timeout
    002 ask@1 succeeded (no answer within 180s: the default was taken) -> note (preferred_label)
    003 note@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    180000 ms
    human.gate.ask.answer = "timeout"
    human.gate.ask.label = "Say more"
    human.gate.ask.question = "ask"
    human.gate.label = "Say more"
    human.gate.selected = "freeform"
    human.gate.text = ""
    "#);
}

#[test]
fn a_question_with_a_limit_can_be_left_for_later() {
    let source = PLAIN.replace("[shape=hexagon]", "[shape=hexagon, timeout=3m]");
    let scene = Scene::new(&source).prints(&[("run", "")]).leaving();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    paused: Human ["ask"]
    "#);
}

#[test]
fn a_broken_terminal_is_a_warning() {
    for attrs in ["shape=hexagon", "shape=hexagon, timeout=3m, human.default_choice=plan"] {
        let source = PLAIN.replace("shape=hexagon", attrs);
        let scene = Scene::new(&source).prints(&[("run", "")]).with_a_broken_terminal();
        let story = scene.story();
        assert!(story.contains("ask at the terminal: no such device"), "{story}");
    }
}

#[test]
fn time_goes_on_while_nobody_drives_the_run() {
    let source = PLAIN.replace("[shape=hexagon]", "[shape=hexagon, timeout=3m]");
    // A driver that dies: its log ends with the question.
    let asked_and_died = || {
        let scene = Scene::new(&source).prints(&[("run", "")]).thinking();
        scene.drive().unwrap();
        let events = scene.events();
        let end = events.iter().position(|e| matches!(e.entry.body, EventBody::GateAsked { .. }));
        let again = Scene::new(&source).prints(&[("run", "")]).thinking();
        let kept = &events[..=end.unwrap()];
        now(again.store.append(again.run_id(), 0, &Batch::of(kept))).unwrap();
        let bundle = again.bundle.to_bytes();
        fabro_blob::BlobStore::put(&*again.store, &bundle).unwrap();
        again
    };
    let scene = asked_and_died();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    resumed
    002 ask@1 failed: no answer within 180s: raise its `timeout`, or name a `human.default_choice` (transient_infra)
    run failed: no answer within 180s: raise its `timeout`, or name a `human.default_choice` (transient_infra)
    "#);
    // An answer that was there in time counts, however late the next driver comes.
    let scene = asked_and_died();
    now(scene.store.post(scene.run_id(), &answer("ask", "A"))).unwrap();
    let asked_ms = scene.state().updated_ms;
    let resumed = fabro_events::Event {
        run_id: scene.run_id(),
        seq: scene.state().last_seq + 1,
        ts_ms: asked_ms + 10 * 3_600_000,
        entry: fabro_events::Entry::new(EventBody::RunResumed { max_cost: None }),
    };
    now(scene.store.append(scene.run_id(), resumed.seq - 1, &Batch::of(&[resumed]))).unwrap();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    resumed
    resumed
    ask is told A "Approve" None by inbox
    002 ask@1 succeeded -> ship (preferred_label)
    003 ship@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    "#);
}

#[test]
fn a_clock_that_was_set_back_does_not_prolong_a_gate() {
    let source = PLAIN.replace("[shape=hexagon]", "[shape=hexagon, timeout=3m]");
    let scene = Scene::new(&source).prints(&[("run", "")]).leaving();
    scene.drive().unwrap();
    let two_days = 2 * 24 * 3_600_000;
    let resumed_ms = scene.state().updated_ms - two_days;
    let resumed = fabro_events::Event {
        run_id: scene.run_id(),
        seq: scene.state().last_seq + 1,
        ts_ms: resumed_ms,
        entry: fabro_events::Entry::new(EventBody::RunResumed { max_cost: None }),
    };
    now(scene.store.append(scene.run_id(), resumed.seq - 1, &Batch::of(&[resumed]))).unwrap();
    let scene = scene.thinking();
    assert!(scene.story().contains("no answer within 180s"));
    let waited_ms = scene.state().updated_ms - resumed_ms;
    assert!((180_000..200_000).contains(&waited_ms), "{waited_ms}");
}

#[test]
fn approving_everything_takes_the_default_else_the_first() {
    let first = Scene::new(PLAIN).prints(&[("run", "")]).agreeing();
    assert!(first.story().contains("ask is told A \"Approve\" None by auto"));
    let source = PLAIN.replace("[shape=hexagon]", "[shape=hexagon, human.default_choice=plan]");
    let default = Scene::new(&source).prints(&[("run", "")]).agreeing();
    assert!(default.story().contains("ask is told R \"Revise\" None by auto"));
}

#[test]
fn the_next_preamble_tells_what_was_said() {
    let source = r#"digraph {
        start; exit; node [shape=tab, prompt="Go on."]
        start -> ask; ask [shape=hexagon, label="Ship it?"]
        ask -> no [label="No"]; ask -> note [freeform=true]; {no; note} -> exit
    }"#;
    let scene = Scene::new(source).model(r#"{"*": [{"text": "ok"}]}"#);
    let scene = scene.answers(r#"{"ask": ["make it blue"]}"#);
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.read("003-note@1/prompt.md"), @r"
    Goal: Ship it

    ## Completed stages
    - **ask**: success
      - Question: Ship it?
      - Text: make it blue

    ## Context
    - human.gate.selected: freeform

    Go on.
    ");
}

#[test]
fn gates_in_branches_wait_for_their_own_answers() {
    let source = r"digraph {
        start; exit; node [shape=hexagon]
        start -> fork; fork [shape=component]
        fork -> {one; two}; one -> join [label=Yes]; two -> join [label=Yes]
        join [shape=tripleoctagon]; join -> exit
    }";
    let scene = Scene::new(source).answers(r#"{"one": ["y"]}"#);
    scene.drive().unwrap();
    let mut letter = answer("two", "yes");
    if let fabro_store::Message::Answer { branch, .. } = &mut letter {
        *branch = Some("fork@1/two".into());
    }
    now(scene.store.post(scene.run_id(), &letter)).unwrap();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> fork (unconditional)
    fork forks 2, joins at join
      one asks "one": [Y] Yes
      two asks "two": [Y] Yes
      one is told Y "Yes" None by answers
      003 one@1 succeeded -> join (preferred_label)
      fork@1/one succeeded
    paused: Human ["two"]
    resumed
      two is told Y "Yes" None by inbox
      004 two@1 succeeded -> join (preferred_label)
      fork@1/two succeeded
    002 fork@1 succeeded -> join (join)
    005 join@1 succeeded -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    "#);
}

#[test]
fn free_text_is_recorded_without_secrets() {
    let redactor = Redactor::new([("PASSWORD", "hunter2-hunter2")]);
    let blanked = |source: &str, answers: Value| {
        let mut scene = Scene::new(source).prints(&[("run", "")]).answers(&answers.to_string());
        scene.agents.redactor = redactor.clone();
        let story = scene.story();
        let log = format!("{:?}", scene.events());
        assert!(!log.contains("hunter2"), "{log}");
        story.lines().filter(|line| line.contains("ask ")).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(blanked(GATE, json!({"ask": ["it is hunter2-hunter2"]})), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "Ship it?": [A] Approve, [R] Revise, [P] plan or text
    ask is told freeform "Say more" Some("it is [redacted:PASSWORD]") by answers
    "#);
    // The beginning of one is no less secret.
    let long = format!("{}hunter2-hunter2", "-".repeat(50));
    insta::assert_snapshot!(blanked(PLAIN, json!({"ask": [long, "A"]})), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask asks "ask": [A] Approve, [R] Revise
    ask warns (gate) "--------------------------------------------------[redacted:…" is not an answer: choose [A] Approve or [R] Revise
    ask is told A "Approve" None by answers
    "#);
}

#[test]
fn an_option_is_chosen_by_its_own_words() {
    let source = PLAIN.replace("Revise", "use hunter2-hunter2");
    let mut scene = Scene::new(&source).prints(&[("run", "")]);
    scene.agents.redactor = Redactor::new([("PASSWORD", "hunter2-hunter2")]);
    let scene = scene.answers(r#"{"ask": ["Use hunter2-hunter2"]}"#);
    assert!(scene.story().contains("002 ask@1 succeeded -> plan"));
}

#[test]
fn records_who_answered() {
    let answered_by = |scene: &Scene| {
        scene.drive().unwrap();
        let events = scene.events();
        let mut answers = events.iter().filter_map(|event| match &event.entry.body {
            EventBody::GateAnswered { by, .. } => Some(by.clone()),
            _ => None,
        });
        answers.next().unwrap().map(|by| by.to_string())
    };
    let scene = || Scene::new(PLAIN).prints(&[("run", "")]);
    let prepared = scene().answers(r#"{"ask": ["A"]}"#);
    assert_eq!(answered_by(&prepared).as_deref(), Some("ann (answers)"));
    let sent = scene();
    sent.drive().unwrap();
    let mut message = answer("ask", "A");
    if let fabro_store::Message::Answer { by, .. } = &mut message {
        *by = Some(fabro_events::AnsweredBy::new("bob", "page"));
    }
    now(sent.store.post(sent.run_id(), &message)).unwrap();
    assert_eq!(answered_by(&sent).as_deref(), Some("bob (page)"));
}
