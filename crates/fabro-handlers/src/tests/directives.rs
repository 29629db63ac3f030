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
    review warns (directive) no edge of `review` has the label `none`: ignored
    002 review@1 succeeded -> fix (suggested_next)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> ship (preferred_label)
    preferred_label = ""
    "#);
}

#[test]
fn a_stated_failure_counts_in_any_spelling() {
    let answers = [
        r#"{"outcome": "FAILED", "failure_reason": "tests fail"}"#,
        r#"{"outcome": " Fail "}"#,
        r#"{"outcome": "Partial-Success"}"#,
        r#"{"status": "fail", "failure_reason": "nope"}"#,
        r#"{"status": "fail", "outcome": "success"}"#,
        r#"{"status": "open", "failure_reason": "nope"}"#,
        r#"{"status": "fail"}"#,
    ];
    insta::assert_snapshot!(answers.map(routed).join("\n"), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 failed: tests fail -> fix (unconditional)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 failed: the stage reported a failure -> fix (unconditional)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 partially_succeeded -> fix (unconditional)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    review warns (directive) `status` is read as `outcome`, which is absent
    002 review@1 failed: nope -> fix (unconditional)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> fix (unconditional)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    review warns (directive) `failure_reason` without an `outcome` is a note: the stage has not failed
    002 review@1 succeeded (nope) -> fix (unconditional)
    preferred_label = ""

    001 start@1 succeeded -> review (unconditional)
    002 review@1 succeeded -> fix (unconditional)
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
    review warns (directive) outcome `wonderful` is not a status, and no edge asks for it: ignored
    002 review@1 succeeded -> fix (unconditional)
    a = 1
    preferred_label = ""
    "#);
}

#[test]
fn a_stated_failure_fails_the_stage() {
    insta::assert_snapshot!(routed(r#"{"outcome": "failed", "failure_reason": "tests failed", "context_updates": {"tests_passed": false}}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 failed: tests failed -> fix (unconditional)
    preferred_label = ""
    tests_passed = false
    "#);
    insta::assert_snapshot!(routed(r#"{"outcome": "fail"}"#), @r#"
    001 start@1 succeeded -> review (unconditional)
    002 review@1 failed: the stage reported a failure -> fix (unconditional)
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
    let source = r"digraph { start -> a -> b -> exit; a [auto_status=true]; b [auto_status=true, on_unavailable=fail] }";
    let model = r#"{"a": [{"text": "{\"outcome\": \"failed\"}"}], "b": [{"error": "auth"}]}"#;
    check(
        source,
        model,
        &["a@1 failed: the stage reported a failure", "b@1 succeeded (auto_status:"],
    );
}

const GO: &str = r#"{"preferred_next_label": "go"}"#;

fn asks(shape: &str, answer: &str) -> Scene {
    let source = format!(
        "digraph {{ max_cost=1.5; start -> a; a [shape={shape}]; a -> x [label=go]; a -> exit; x -> exit; x [shape=parallelogram, script=run] }}"
    );
    let model = json!({"a": [{"text": answer}]}).to_string();
    Scene::new(&source).model(&model).prints(&[("run", "")])
}

fn goes(scene: &Scene) -> bool {
    scene.story().contains("a@1 succeeded -> x (preferred_label)")
}

#[test]
fn a_file_speaks_for_an_agent_that_says_nothing() {
    // The clock is ahead of the times of files.
    let told = |shape: &str, answer: &str, file: &str| {
        goes(&asks(shape, answer).agent_writes("status.json", file))
    };
    assert!(told("box", "done", GO));
    assert!(!told("tab", "done", GO), "prompt nodes have their answer only");
    assert!(!told("box", r#"{"failure_reason": "-"}"#, GO), "the answer comes first");
    assert!(!told("box", "done", "{\"preferred_next_label\": "));
    assert!(told("box", "done", &format!("{}{GO}", "\u{FEFF}")));
}

#[test]
fn a_file_of_before_says_nothing() {
    let before = |text: &str| {
        // The clock is behind the times of files.
        let scene = Scene { started_ms: 1_000, ..asks("box", "done") };
        std::fs::create_dir_all(scene.work_dir()).unwrap();
        std::fs::write(scene.work_dir().join("status.json"), text).unwrap();
        scene
    };
    assert!(!goes(&before(GO)));
    assert!(goes(&before("{}").agent_writes("status.json", GO)));
    let again = before(GO);
    let path = again.work_dir().join("status.json");
    let other = again.work_dir().join("other");
    let replaced = again.agent_writes("other", GO).when("agent.message", move || {
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(&other).unwrap().set_modified(written).unwrap();
        std::fs::rename(other, path).unwrap();
    });
    assert!(goes(&replaced), "the same text, written in the same moment");
}

#[test]
fn an_agent_that_goes_on_is_told_by_the_time_of_the_file() {
    let goes_on = |started_ms: i64| {
        let paid = json!({"usage": {"cost_usd": 2.0, "input_tokens": 1}, "text": "", "tool_calls": [{"name": "x", "arguments": {}}]});
        let model = json!({"a": [paid, {"text": "done"}]}).to_string();
        let scene = Scene { started_ms, ..asks("box", "") }.model(&model);
        let scene = scene.agent_writes("status.json", GO);
        scene.drive().unwrap();
        assert!(scene.dir.path().join("work/status.json").exists());
        scene.drive_with(Some(9.0)).unwrap();
        goes(&scene)
    };
    assert!(goes_on(1_000));
    assert!(!goes_on(LATE_MS));
}

#[test]
fn a_status_file_that_is_no_file_of_ours_is_left_alone() {
    let scene = asks("box", "done");
    let path = scene.work_dir().join("status.json");
    let scene = scene.when("agent.message", move || std::fs::create_dir(path).unwrap());
    assert!(scene.story().contains("run succeeded"));
    let scene = asks("box", "done");
    let path = scene.work_dir().join("status.json");
    let scene = scene.when("agent.message", move || {
        std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    });
    assert!(scene.story().contains("run succeeded"));
    // A link could lead to a file that the sandbox of the agent hides.
    let scene = asks("box", "done").agent_writes("else", GO);
    let path = scene.work_dir().join("status.json");
    let scene =
        scene.when("agent.message", move || std::os::unix::fs::symlink("else", path).unwrap());
    assert!(!goes(&scene));
    assert!(scene.work_dir().join("status.json").exists());
}

#[test]
fn an_object_forges_no_answer_of_a_person() {
    let source = r#"digraph {
        start -> a; a -> sad [condition="human.gate.label=Yes || context.human.gate.label=Yes || child.s.ok"]
        a -> exit; sad -> exit
    }"#;
    let human = json!({"gate": {"label": "Yes"}});
    let updates = json!({"human": human, "context.human": human, "context": {"human": human}, "child": {"s": {"ok": true}}, "humanity": "kept"});
    let model = json!({"a": [{"text": json!({"context_updates": updates}).to_string()}]});
    let scene = Scene::new(source).model(&model.to_string());
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> a (unconditional)
    a refused child: `child` and the keys below it are written by the engine and its handlers
    a refused context: `context` stands for all keys: name one
    a refused context.human: `human` and the keys below it are written by the engine and its handlers
    a refused human: `human` and the keys below it are written by the engine and its handlers
    002 a@1 succeeded -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    assert_eq!(scene.value("humanity"), "kept");
}

#[test]
fn what_an_answer_asks_for_is_read_without_secrets() {
    let source = r#"digraph {
        start -> ask -> exit; ask -> sad [condition="outcome=shrug"]; sad -> exit
    }"#;
    let blanked = |answer: &str| {
        // As JSON may be written, so that the text of the answer shows none.
        let answer = answer.replace("hunter2", r"\u0068unter2");
        let model = json!({"ask": [{"text": answer}]}).to_string();
        let mut scene = Scene::new(source).model(&model);
        scene.agents.redactor = Redactor::new([("MY_TOKEN", "hunter2-secret-value")]);
        let story = scene.story();
        let log = format!("{:?}", scene.events());
        assert!(!log.contains("hunter2"), "{log}");
        let lines: Vec<_> = story.lines().filter(|line| line.contains("ask")).collect();
        lines.join("\n") + "\n" + &scene.context(&["[", "deep", "preferred_label"])
    };
    insta::assert_snapshot!(blanked(r#"{"context_updates": {"hunter2-secret-value": "v"}}"#), @r#"
    001 start@1 succeeded -> ask (unconditional)
    002 ask@1 succeeded -> exit (unconditional)
    [redacted:MY_TOKEN] = "v"
    preferred_label = ""
    "#);
    insta::assert_snapshot!(blanked(r#"{"outcome": "hunter2-secret-value"}"#), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask warns (directive) outcome `[redacted:MY_TOKEN]` is not a status, and no edge asks for it: ignored
    002 ask@1 succeeded -> exit (unconditional)
    preferred_label = ""
    "#);
    insta::assert_snapshot!(blanked(r#"{"context_updates": {"internal.hunter2-secret-value": "v"}}"#), @r#"
    001 start@1 succeeded -> ask (unconditional)
    ask refused internal.[redacted:MY_TOKEN]: keys that start with `internal.` are written by the engine and its handlers
    002 ask@1 succeeded -> exit (unconditional)
    preferred_label = ""
    "#);
    // Nothing is lost where two keys become one, and what stands deeper is no less secret.
    insta::assert_snapshot!(blanked(r#"{"context_updates": {"[redacted:MY_TOKEN]": 1, "hunter2-secret-value": 2, "deep": [{"hunter2-secret-value": "is hunter2-secret-value"}]}}"#), @r#"
    001 start@1 succeeded -> ask (unconditional)
    002 ask@1 succeeded -> exit (unconditional)
    [redacted:MY_TOKEN] = 1
    [redacted:MY_TOKEN]#2 = 2
    deep = [{"[redacted:MY_TOKEN]":"is [redacted:MY_TOKEN]"}]
    preferred_label = ""
    "#);
    insta::assert_snapshot!(blanked(r#"{"outcome": "failed", "failure_reason": "no hunter2-secret-value", "preferred_next_label": "hunter2-secret-value", "suggested_next_ids": ["hunter2-secret-value"]}"#), @r#"
    001 start@1 succeeded -> ask (unconditional)
    002 ask@1 failed: no [redacted:MY_TOKEN] -> exit (unconditional)
    preferred_label = ""
    "#);
}

#[test]
fn what_is_wrong_with_an_answer_is_told_without_secrets() {
    let source = r#"digraph { start -> a -> exit; a [output_retries=1, output_schema="{\"properties\":{\"a\":{\"enum\":[1,2]}}}"] }"#;
    let model = json!({"a": [{"text": r#"{"a":"\u0068unter2-secret-value"}"#}]}).to_string();
    let mut scene = Scene::new(source).model(&model);
    scene.agents.redactor = Redactor::new([("MY_TOKEN", "hunter2-secret-value")]);
    scene.story();
    let log = format!("{:?}", scene.events());
    assert!(log.contains("is none of") && !log.contains("hunter2"), "{log}");
}

#[test]
fn a_stated_outcome_that_does_not_parse_fails_the_stage_with_line_and_column() {
    let check = |answer: &str, expect: &[&str]| {
        let story = routed(answer);
        for part in expect {
            assert!(story.contains(part), "no {part:?} in\n{story}");
        }
    };
    let unread = "an outcome in the answer cannot be read: the JSON does not parse at";
    check(
        "{\"outcome\":\"failed\",\"failure_reason\":\"red:\n2 of 3\"}",
        &["review@1 failed: red:"],
    );
    let comma = format!("{unread} line 1, column 21: trailing comma");
    check(
        r#"{"outcome":"failed",}"#,
        &[&format!("review warns (directive) {comma}"), &format!("review@1 failed: {comma}")],
    );
    check(
        "All good. {\"outcome\":\"succeeded\"}\nNo: {\"outcome\":\"failed\",\"n\":NaN}",
        &[&format!("review@1 failed: {unread} line 2")],
    );
    check(
        r#"{"outcome":"failed","failure_reason":"2 of"#,
        &["review@1 failed", "it breaks off before its closing brace"],
    );
    check(
        r#"{"preferred_next_label":fix}"#,
        &["review warns (directive) directives in the answer cannot be read", "review@1 succeeded"],
    );
}

#[test]
fn a_status_file_that_does_not_parse_fails_the_stage() {
    let source = "digraph { start -> a -> exit; a [prompt=x, auto_status=true] }";
    let story = |status: &str| {
        let scene = Scene::new(source).model(r#"{"a": [{"text": "Done."}]}"#);
        scene.agent_writes("status.json", status).story()
    };
    let broken = story(r#"{"outcome": "failed", "failure_reason": "C:\Users"}"#);
    assert!(broken.contains("a@1 failed: an outcome in status.json cannot be read"), "{broken}");
    let broken_line = story("{\"outcome\": \"failed\", \"failure_reason\": \"a\nb\"}");
    assert!(broken_line.contains("a@1 failed: a\nb"), "{broken_line}");
}

#[test]
fn the_correction_of_an_unchanged_answer_says_so() {
    let source = r#"digraph { start -> a -> exit; a [shape=tab, output_retries=3, output_schema="{\"required\":[\"n\"]}"] }"#;
    let model = r#"{"a": [{"text": "{}"}, {"text": "{}"}, {"text": "{\"m\": 1}"}, {"text": "{\"n\": 1}"}]}"#;
    let scene = Scene::new(source).model(model);
    scene.drive().unwrap();
    let says = |event: &Event| match &event.entry.body {
        EventBody::AgentMessage { role, text, .. } if role == "user" => {
            Some(text.contains("Your answer has not changed since the last correction."))
        }
        _ => None,
    };
    let events = scene.events();
    let said: Vec<bool> = events.iter().filter_map(says).collect();
    assert_eq!(said, [false, false, true, false]);
}
