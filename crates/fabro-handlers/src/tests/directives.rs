use super::*;

/// What an agent's answer leads to, in a graph with one edge for everything.
#[track_caller]
fn routed(answer: &str) -> String {
    let source = r#"digraph {
        start; exit; node [fidelity=truncate]
        start -> review
        review -> fix [label="[F] Fix it"]
        review -> ship [label="Approve"]
        review -> docs [condition="outcome=needs_dod"]
        review -> look
        look [shape=diamond]; look -> sad [condition="outcome=shrug"]; look -> exit
        {fix; ship; docs; sad} -> exit
    }"#;
    let model = json!({"review": [{"text": answer}], "*": [{"text": "ok"}]});
    let scene = Scene::new(source).model(&model.to_string());
    let story = scene.story();
    let lines: Vec<_> = story.lines().filter(|line| line.contains("review")).collect();
    lines.join("\n") + "\n" + &scene.context(&["a", "preferred_label", "tests"])
}

#[test]
fn an_answer_chooses_by_label_or_id() {
    let answers = [
        r#"Fine. {"preferred_next_label": "fix it"}"#,
        r#"{"preferred_next_label": "F"}"#,
        r#"{"suggested_next_ids": ["nowhere", "ship"]}"#,
        r#"{"preferred_next_label": "none", "suggested_next_ids": ["fix"]}"#,
        r#"{"preferred_next_label": "fix it"} no: {"preferred_next_label": "approve"}"#,
    ];
    insta::assert_snapshot!(answers.map(routed).join("\n"), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> fix (preferred_label)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> fix (preferred_label)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> ship (suggested_next)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> fix (suggested_next)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> ship (preferred_label)
    preferred_label = ""
    "#);
}

#[test]
fn custom_words_are_those_that_edges_ask_for() {
    insta::assert_snapshot!(routed(r#"{"outcome": "needs_dod"}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 needs_dod -> docs (condition)
    preferred_label = ""
    "#);
    insta::assert_snapshot!(routed(r#"{"outcome": "shrug"}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 shrug -> fix (unconditional)
    preferred_label = ""
    "#);
    insta::assert_snapshot!(routed(r#"{"outcome": "wonderful", "context_updates": {"a": 1}}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    review warns (directive) outcome `wonderful` is no status, and no edge asks for it: ignored
    002 review@1 succeeded -> fix (unconditional)
    a = 1
    preferred_label = ""
    "#);
}

#[test]
fn a_stated_failure_fails_the_stage() {
    insta::assert_snapshot!(routed(r#"{"outcome": "failed", "failure_reason": "tests failed", "context_updates": {"tests_passed": false}}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 failed: tests failed (deterministic) -> fix (unconditional)
    preferred_label = ""
    tests_passed = false
    "#);
    insta::assert_snapshot!(routed(r#"{"outcome": "fail"}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 failed: the stage said it failed (deterministic) -> fix (unconditional)
    preferred_label = ""
    "#);
    insta::assert_snapshot!(routed(r#"{"outcome": "partial_success", "failure_reason": "half of it"}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 partially_succeeded (half of it) -> fix (unconditional)
    preferred_label = ""
    "#);
    insta::assert_snapshot!(routed(r#"{"preferred_next_label":"approve","context_updates":{"outcome":"failed"}}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    review refused outcome: `outcome` is written by the engine
    002 review@1 succeeded -> ship (preferred_label)
    preferred_label = ""
    "#);
}

#[test]
fn what_an_agent_may_not_write_is_refused_and_the_rest_applied() {
    insta::assert_snapshot!(routed(r#"{"context_updates": {"a": [1], "command.exit_code": 0, "internal.run_id": "x", "response.review": "y", "last_stage": "z", "apple": null}}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    review refused command.exit_code: keys that start with `command.` are written by the engine and its handlers
    review refused internal.run_id: keys that start with `internal.` are written by the engine and its handlers
    review refused last_stage: keys that start with `last_` are written by the engine and its handlers
    review refused response.review: keys that start with `response.` are written by the engine and its handlers
    002 review@1 succeeded -> fix (unconditional)
    a = [1]
    apple = null
    preferred_label = ""
    "#);
}

#[test]
fn wrong_types_are_ignored_field_by_field() {
    insta::assert_snapshot!(routed(r#"{"outcome": 7, "preferred_next_label": ["x"], "suggested_next_ids": "ship", "context_updates": {"a": 1}}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    review warns (directive) `outcome` is ignored: it must be a string, not a number
    review warns (directive) `preferred_next_label` is ignored: it must be a string, not an array
    review warns (directive) `suggested_next_ids` is ignored: it must be an array of strings, not a string
    002 review@1 succeeded -> fix (unconditional)
    a = 1
    preferred_label = ""
    "#);
    insta::assert_snapshot!(routed(r#"{"suggested_next_ids": ["ship", 4], "context_updates": []}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    review warns (directive) `suggested_next_ids` is ignored: it must be an array of strings, not an array with a number
    review warns (directive) `context_updates` is ignored: it must be an object, not an array
    002 review@1 succeeded -> fix (unconditional)
    preferred_label = ""
    "#);
}

#[test]
fn auto_status_leaves_a_stated_failure_alone() {
    let source = r"digraph { start -> a -> b -> exit; a [auto_status=true]; b [auto_status=true] }";
    let model = r#"{"a": [{"text": "{\"outcome\": \"failed\"}"}], "b": [{"error": "auth"}]}"#;
    check(source, model, &["a@1 failed: the stage said it failed", "b@1 succeeded (auto_status:"]);
}

#[test]
fn a_file_speaks_for_an_agent_that_says_nothing() {
    let source = |shape: &str| {
        format!(
            "digraph {{ start -> a; a [shape={shape}]; a -> x [label=go]; a -> exit; x -> exit; x [shape=parallelogram, script=run] }}"
        )
    };
    let told = |shape: &str, answer: &str, file: &str, started_ms: i64| {
        let model = json!({"a": [{"text": answer}]}).to_string();
        let mut scene = Scene::new(&source(shape)).model(&model).prints(&[("run", "")]);
        scene.started_ms = started_ms;
        std::fs::create_dir_all(scene.work_dir()).unwrap();
        std::fs::write(scene.work_dir().join("status.json"), file).unwrap();
        let story = scene.story();
        story.contains("a@1 succeeded -> x (preferred_label)")
    };
    let go = r#"{"preferred_next_label": "go"}"#;
    assert!(told("box", "done", go, 1_000));
    assert!(!told("box", "done", go, LATE_MS), "older than the stage");
    assert!(!told("tab", "done", go, 1_000), "prompt nodes have their answer only");
    assert!(!told("box", r#"{"failure_reason": "-"}"#, go, 1_000), "the answer comes first");
    assert!(!told("box", "done", "{\"preferred_next_label\": ", 1_000));
    assert!(told("box", "done", &format!("{}{go}", "\u{FEFF}"), 1_000));
}

#[test]
fn a_status_file_that_is_no_file_of_ours_is_left_alone() {
    let source = "digraph { start -> a -> exit }";
    let scene =
        Scene { started_ms: 1_000, ..Scene::new(source) }.model(r#"{"a": [{"text": "x"}]}"#);
    let path = scene.work_dir().join("status.json");
    std::fs::create_dir_all(&path).unwrap();
    assert!(scene.story().contains("run succeeded"));
    let scene =
        Scene { started_ms: 1_000, ..Scene::new(source) }.model(r#"{"a": [{"text": "x"}]}"#);
    std::fs::create_dir_all(scene.work_dir()).unwrap();
    let file = std::fs::File::create(scene.work_dir().join("status.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    assert!(scene.story().contains("run succeeded"));
}
