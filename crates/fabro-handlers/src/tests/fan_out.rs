use super::*;

const FORK: &str = r#"digraph {
    start; exit; node [shape=tab]
    start -> fork; fork [shape=component, max_parallel=1]
    fork -> {a; b} -> join; join [shape=tripleoctagon]
    join -> next -> exit; next [prompt="Go on."]
    a [shape=parallelogram, script="a"]; b [shape=parallelogram, script="b"]
}"#;

fn forked(a: i32, b: i32) -> Scene {
    let exec = FakeExec::new().with("a", Exit::Code(a), "output of a").with(
        "b",
        Exit::Code(b),
        "output of b",
    );
    Scene::new(FORK).exec(exec).model(r#"{"next": [{"text": "ok"}]}"#)
}

#[test]
fn the_best_branch_is_the_first_of_the_best_status() {
    let best = |a, b| {
        let scene = forked(a, b);
        scene.drive().unwrap();
        scene.context(&["parallel.fan_in.best_id", "parallel.fan_in.best_outcome"])
    };
    insta::assert_snapshot!(best(0, 0), @r#"
    parallel.fan_in.best_id = "a"
    parallel.fan_in.best_outcome = "succeeded"
    "#);
    insta::assert_snapshot!(best(1, 0), @r#"
    parallel.fan_in.best_id = "b"
    parallel.fan_in.best_outcome = "succeeded"
    "#);
    insta::assert_snapshot!(best(1, 2), @r#"
    parallel.fan_in.best_id = "a"
    parallel.fan_in.best_outcome = "failed"
    "#);
}

#[test]
fn a_fan_in_fails_when_all_branches_failed() {
    insta::assert_snapshot!(forked(1, 2).story(), @r"
    001 start@1 succeeded -> fork (unconditional)
    fork forks 2, joins at join
      003 a@1 failed: exit code 1: output of a -> join (unconditional)
      fork@1/a failed
      004 b@1 failed: exit code 2: output of b -> join (unconditional)
      fork@1/b failed
    002 fork@1 failed: 2 of 2 branches failed: a: exit code 1: output of a; b: exit code 2: output of b -> join (join)
    005 join@1 failed: all 2 branches failed -> next (unconditional)
    006 next@1 succeeded -> exit (unconditional)
    007 exit@1 succeeded
    run partially_succeeded
    ");
}

#[test]
fn the_next_preamble_shows_every_branch() {
    let scene = forked(0, 2);
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.read("006-next@1/prompt.md"), @r"
    Goal: Ship it

    ## Completed stages
    - **fork**: partial success
      - Branches:
        - **a**: success
          - Output:
            ```
            output of a
            ```
        - **b**: fail
          - Notes: exit code 2: output of b
          - Output:
            ```
            output of b
            ```
    - **join**: success

    ## Context
    - parallel.fan_in.best_id: a
    - parallel.fan_in.best_outcome: succeeded

    Go on.
    ");
    let results = scene.value("parallel.results");
    assert_eq!(results[0]["id"], "a");
    assert_eq!(results[1]["status"], "failed");
    assert_eq!(scene.value("command.output"), Value::Null, "updates of branches are not merged");
}

#[test]
fn a_model_chooses_where_there_is_a_prompt() {
    let source =
        FORK.replace("[shape=tripleoctagon]", "[shape=tripleoctagon, prompt=\"Which for $goal?\"]");
    let told = |answer: &str, codes: (i32, i32)| {
        let scene = forked(codes.0, codes.1);
        let model = json!({"join": [{"text": answer}], "next": [{"text": "ok"}]}).to_string();
        let mut scene = Scene { model, ..scene };
        scene.bundle.source = source.clone();
        let story = scene.story();
        let join = story.lines().find(|line| line.contains(" join@1")).unwrap_or_default();
        let prompt = scene.read("005-join@1/prompt.md");
        (format!("{join}\n{}", scene.context(&["parallel.fan_in", "last_response"])), prompt)
    };
    let (context, prompt) = told("I like **b**.", (0, 0));
    insta::assert_snapshot!(context, @r#"
    005 join@1 succeeded -> next (unconditional)
    last_response = "ok"
    parallel.fan_in.best_head_sha = null
    parallel.fan_in.best_id = "b"
    parallel.fan_in.best_outcome = "succeeded"
    "#);
    insta::assert_snapshot!(prompt, @r"
    Goal: Ship it

    ## Completed stages
    - **fork**: success

    Which for Ship it?

    ## Branches

    ### a: success
    - Output:
      ```
      output of a
      ```

    ### b: success
    - Output:
      ```
      output of b
      ```

    Name the id of the best branch on the last line of your answer.
    ");
    insta::assert_snapshot!(told("Hard to say.", (1, 0)).0, @r#"
    005 join@1 succeeded (the answer names no branch; the best status won) -> next (unconditional)
    last_response = "ok"
    parallel.fan_in.best_head_sha = null
    parallel.fan_in.best_id = "b"
    parallel.fan_in.best_outcome = "succeeded"
    "#);
}

#[test]
fn a_model_that_fails_leaves_the_choice_to_the_status_unless_it_could_not_be_asked() {
    let run = |attribute: &str, error: &str| {
        let mut scene = forked(1, 0);
        let prompt = format!("[shape=tripleoctagon, prompt=\"Which?\"{attribute}]");
        scene.bundle.source = FORK.replace("[shape=tripleoctagon]", &prompt);
        scene.model =
            format!(r#"{{"join": [{{"error": "{error}"}}], "next": [{{"text": "ok"}}]}}"#);
        let story = scene.story();
        let join: Vec<_> = story.lines().filter(|line| line.contains("join@")).collect();
        let best = scene.value("parallel.fan_in.best_id");
        format!("{}\nbest: {best}", join.join("\n"))
    };
    insta::assert_snapshot!(run("", "invalid_request"), @r#"
    005 join@1 succeeded (the model cannot choose; the best status won) -> next (unconditional)
    best: "b"
    "#);
    insta::assert_snapshot!(run(", on_unavailable=fail", "auth"), @r#"
    005 join@1 failed: the model's provider refused the key: check it -> next (unconditional)
    best: "b"
    "#);
    insta::assert_snapshot!(run(", retry_target=a, max_visits=1", "auth"), @r#"
    005 join@1 failed: the model's provider refused the key: check it -> next (unconditional)
    best: "b"
    "#);
    assert!(!run("", "auth").contains("join@"));
}

#[test]
fn nested_fan_outs_show_the_output_of_the_outer_branches() {
    let source = r#"digraph {
        start; exit; node [shape=tab]
        start -> outer; outer [shape=component]
        outer -> {inner; c}; inner [shape=component]
        inner -> {a; b} -> meet; meet [shape=tripleoctagon]
        meet -> after -> join; c -> join; join [shape=tripleoctagon]
        join -> next -> exit
        after [prompt="Go on."]; next [prompt="Go on."]
    }"#;
    let model = r#"{"a": [{"text": "from a"}], "b": [{"text": "from b"}], "c": [{"text": "from c"}], "after": [{"text": "from after"}], "next": [{"text": "ok"}]}"#;
    let scene = Scene::new(source).model(model);
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> outer (unconditional)
    outer forks 2, joins at join
      inner forks 2, joins at meet
        005 a@1 succeeded -> meet (unconditional)
        outer@1/inner/inner@1/a succeeded
        007 b@1 succeeded -> meet (unconditional)
        outer@1/inner/inner@1/b succeeded
      003 inner@1 succeeded -> meet (join)
      004 c@1 succeeded -> join (unconditional)
      outer@1/c succeeded
      009 meet@1 succeeded -> after (unconditional)
      011 after@1 succeeded -> join (unconditional)
      outer@1/inner succeeded
    002 outer@1 succeeded -> join (join)
    012 join@1 succeeded -> next (unconditional)
    013 next@1 succeeded -> exit (unconditional)
    014 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(scene.state().main().unwrap().history.iter().map(|r| format!("{}@{}", r.node, r.visit)).collect::<Vec<_>>().join(" "), @"outer@1 join@1 next@1");
    let rank = scene.events().iter().find_map(|event| match &event.entry.body {
        EventBody::StageStarted { rank, .. } if event.entry.node_id.as_deref() == Some("after") => {
            Some(*rank)
        }
        _ => None,
    });
    insta::assert_snapshot!(scene.read(&format!("{:03}-after@1/prompt.md", rank.unwrap())), @r"
    Goal: Ship it

    ## Completed stages
    - **inner**: success
      - Branches:
        - **a**: success
          - Output:
            ```
            from a
            ```
        - **b**: success
          - Output:
            ```
            from b
            ```
    - **meet**: success

    ## Context
    - parallel.fan_in.best_id: a
    - parallel.fan_in.best_outcome: succeeded

    Go on.
    ");
    let next = scene.events().iter().find_map(|event| match &event.entry.body {
        EventBody::StageStarted { rank, .. } if event.entry.node_id.as_deref() == Some("next") => {
            Some(*rank)
        }
        _ => None,
    });
    insta::assert_snapshot!(scene.read(&format!("{:03}-next@1/prompt.md", next.unwrap())), @r"
    Goal: Ship it

    ## Completed stages
    - **outer**: success
      - Branches:
        - **inner**: success
          - Output:
            ```
            from after
            ```
        - **c**: success
          - Output:
            ```
            from c
            ```
    - **join**: success

    ## Context
    - parallel.fan_in.best_id: inner
    - parallel.fan_in.best_outcome: succeeded

    Go on.
    ");
}

#[test]
fn a_large_output_of_a_branch_is_named_by_its_path() {
    let model = json!({"x": [{"text": "x".repeat(150_000)}], "y": [{"text": "short"}], "next": [{"text": "ok"}]});
    let source = r#"digraph {
        start; exit; node [shape=tab, prompt="Go on."]
        start -> fork; fork [shape=component]; fork -> {x; y} -> next -> exit
    }"#;
    let scene = Scene::new(source).model(&model.to_string());
    scene.drive().unwrap();
    let prompt = scene.read("005-next@1/prompt.md");
    let hex = prompt.split("blobs/").nth(1).unwrap().split('.').next().unwrap();
    insta::assert_snapshot!(prompt.replace(hex, "HEX"), @r"
    Goal: Ship it

    ## Completed stages
    - **fork**: success
      - Branches:
        - **x**: success
          - Output: See: DIR/runs/RUN/runtime/blobs/HEX.json
        - **y**: success
          - Output:
            ```
            short
            ```

    Go on.
    ");
}

#[test]
fn a_fan_in_without_a_fan_out_fails() {
    let source = "digraph { start -> join -> exit; join [shape=tripleoctagon] }";
    check(source, "{}", &["join@1 failed: a fan-in needs a fan-out before it"]);
}

#[test]
fn templates_see_what_branches_printed() {
    let mut scene = forked(0, 0);
    let prompt =
        "{% for r in context.parallel.results %}{{ r.id }}: {{ r.response }}\n{% endfor %}";
    scene.bundle.source =
        FORK.replace("next [prompt=\"Go on.\"]", "next [prompt=\"@next.j2\", fidelity=full]");
    let scene = scene.file("next.j2", prompt);
    scene.drive().unwrap();
    assert_eq!(scene.read("006-next@1/prompt.md"), "a: output of a\nb: output of b\n");
}

#[test]
fn conditions_see_what_branches_printed() {
    let mut scene = forked(0, 0);
    scene.bundle.source = FORK.replace(
        "join -> next -> exit;",
        r#"join -> next [condition="parallel.results.1.response = \"output of b\" && context.parallel.results.0.updates.command.output = \"output of a\""]; join -> exit; next -> exit;"#,
    );
    assert!(scene.story().contains("join@1 succeeded -> next (condition)"));
}
