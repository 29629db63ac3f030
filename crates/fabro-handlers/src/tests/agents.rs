use super::*;

const ONE: &str = r#"digraph { start -> p -> exit; p [shape=tab, prompt="Plan."] }"#;

/// A failure of the model is one of the stage.
const FAILS: &str =
    r#"digraph { start -> p -> exit; p [shape=tab, prompt="Plan.", on_unavailable=fail] }"#;

#[test]
fn an_answer_writes_its_keys() {
    let text = "é".repeat(300);
    let scene = Scene::new(ONE).model(&json!({"p": [{"text": text}]}).to_string());
    scene.drive().unwrap();
    assert_eq!(scene.value("last_response"), "é".repeat(200));
    assert_eq!(scene.value("response.p"), "é".repeat(300));
    assert_eq!(scene.read("002-p@1/prompt.md"), "Goal: Ship it\n\nPlan.");
    assert_eq!(scene.read("002-p@1/response.md"), text);
}

#[test]
fn a_node_without_a_prompt_asks_its_label() {
    let source = r#"digraph { start -> a -> b -> exit; a [label="Look around", fidelity=full]; b [fidelity=full] }"#;
    let scene = check(source, r#"{"*": [{"text": "ok"}]}"#, &["run succeeded"]);
    insta::assert_snapshot!(scene.asked(), @r"
    a: > Look around
    b: > b
    ");
}

#[test]
fn the_model_is_the_nodes_then_the_runs_then_the_graphs() {
    let source = r##"digraph {
        graph [default_model=graphs, model_stylesheet="#sheet { model: sheets; reasoning_effort: low }"]
        node [shape=tab, prompt="x"]
        start -> own -> sheet -> plain -> exit
        start [shape=Mdiamond]; exit [shape=Msquare]
        own [model=owns, reasoning_effort=high, speed=fast, max_tokens=9, provider=prov]
    }"##;
    let models = |run: Option<&str>, configured: Option<&str>| {
        let mut scene = Scene::new(source).model(r#"{"*": [{"text": "ok"}]}"#);
        scene.defaults.run = run.map(str::to_owned);
        scene.defaults.configured = configured.map(str::to_owned);
        scene.drive().unwrap();
        let asked = scene.asked.0.lock().unwrap();
        let asked: Vec<_> = asked.iter().map(|(_, request)| request).collect();
        let models: Vec<_> = asked.iter().map(|r| r.model.clone().unwrap_or_default()).collect();
        let own = asked[0];
        assert_eq!(own.reasoning_effort.as_deref(), Some("high"));
        assert_eq!((own.speed.as_deref(), own.max_tokens), (Some("fast"), Some(9)));
        assert_eq!((own.provider.as_deref(), asked[2].provider.as_deref()), (Some("prov"), None));
        assert_eq!(asked[1].reasoning_effort.as_deref(), Some("low"));
        models.join(" ")
    };
    assert_eq!(models(None, Some("mine")), "owns sheets graphs");
    assert_eq!(models(Some("runs"), Some("mine")), "owns sheets runs");
}

#[test]
fn the_system_prompt_lists_the_tools_that_the_agent_has() {
    let script = r#"{"*": [{"text": "ok"}]}"#;
    for attrs in
        ["", ", tools=\"read_file,spawn_agent\"", ", tools=read_file", ", permissions=full"]
    {
        let source = format!(
            r#"digraph {{ start -> a -> exit; start [shape=Mdiamond]; exit [shape=Msquare]
            a [shape=box, prompt="x"{attrs}] }}"#
        );
        let scene = Scene::new(&source).model(script);
        scene.drive().unwrap();
        let asked = scene.asked.0.lock().unwrap();
        let request = &asked[0].1;
        let system = format!("{:?}", request.messages[0]);
        let listed = system.split("Your tools: ").nth(1).and_then(|rest| rest.split('.').next());
        let mut listed: Vec<_> = listed.into_iter().flat_map(|names| names.split(", ")).collect();
        let mut had: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        listed.sort_unstable();
        had.sort_unstable();
        assert_eq!(listed, had, "{attrs}");
    }
}

#[test]
fn errors_of_the_model_have_their_class() {
    let classes = |error: &str| {
        let script = json!({"p": [{"error": error}]}).to_string();
        let scene = Scene::new(FAILS).model(&script);
        scene.drive().unwrap();
        let class = scene.value("failure_class");
        class.as_str().unwrap().to_owned()
    };
    for (error, class) in [
        ("rate_limit", "transient_infra"),
        ("overloaded", "transient_infra"),
        ("timeout", "transient_infra"),
        ("auth", "deterministic"),
        ("invalid_request", "deterministic"),
        ("quota", "budget_exhausted"),
        ("context_overflow", "budget_exhausted"),
    ] {
        assert_eq!(classes(error), class, "{error}");
    }
    let unlisted = Scene::new(FAILS).model(r#"{"q": [{"text": "x"}]}"#);
    insta::assert_snapshot!(unlisted.story(), @r#"
    001 start@1 succeeded -> p (unconditional)
    002 p@1 failed: the model script has no turns for node `p`: add a list for "p", or one for "*" -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    "#);
}

#[test]
fn transient_errors_are_retried_and_wait_as_asked() {
    let graph = r"digraph { graph [default_max_retries=3, on_unavailable=fail]; start -> p -> exit; p [shape=tab] }";
    let model = r#"{"p": [{"error": "rate_limit", "retry_after_s": 12.5}, {"error": "overloaded", "retry_after_s": 900}, {"error": "timeout", "retry_after_s": 0}, {"text": "at last"}]}"#;
    insta::assert_snapshot!(Scene::new(graph).model(model).story(), @r"
    001 start@1 succeeded -> p (unconditional)
    p retries in 12500 ms: the model's rate limit is reached: try again later (transient_infra)
    p retries in 60000 ms: the model's server is overloaded or has failed: try again later (transient_infra)
    p retries in 0 ms: the model did not answer in time: try again later (transient_infra)
    002 p@1 succeeded in 4 -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    let model = r#"{"p": [{"error": "auth"}, {"text": "never"}]}"#;
    insta::assert_snapshot!(Scene::new(graph).model(model).story(), @r"
    001 start@1 succeeded -> p (unconditional)
    002 p@1 failed: the model's provider refused the key: check it -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    ");
    let own = r"digraph { start -> p -> exit; p [shape=tab, max_retries=1] }";
    let model = r#"{"p": [{"error": "quota", "retry_after_s": 1}, {"text": "paid"}]}"#;
    insta::assert_snapshot!(Scene::new(own).model(model).story(), @r"
    001 start@1 succeeded -> p (unconditional)
    p retries in 1000 ms: the quota at the model's provider is used up: raise it (budget_exhausted)
    002 p@1 succeeded in 2 -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn usage_is_of_all_attempts() {
    let source = r"digraph { start -> p -> exit; p [shape=tab, retry_policy=linear, model=m] }";
    let model = r#"{"p": [{"error": "auth", "usage": {"input_tokens": 5}}, {"text": "x", "usage": {"input_tokens": 7, "output_tokens": 2}}]}"#;
    let scene = check(source, model, &["p@1 succeeded in 2"]);
    let usage = serde_json::to_string(&scene.state().usage).unwrap();
    insta::assert_snapshot!(usage, @r#"{"model":"m","input_tokens":12,"output_tokens":2,"unpriced_requests":2,"turns":1,"failed_requests":1}"#);
}

#[test]
fn a_turn_that_took_too_long_is_a_turn() {
    let source = r"digraph { start -> p -> exit; p [shape=tab, timeout=5s, max_retries=1] }";
    let model = r#"{"p": [{"text": "slow", "delay_ms": 60000}, {"text": "fast"}]}"#;
    insta::assert_snapshot!(Scene::new(source).model(model).story(), @r"
    001 start@1 succeeded -> p (unconditional)
    p retries in 5475 ms: timed out after 5s: raise its `timeout` if it needs longer (transient_infra)
    002 p@1 succeeded in 2 -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    let watched = r"digraph { graph [stall_timeout=30s, default_max_retries=1]; start -> p -> exit; p [shape=tab] }";
    insta::assert_snapshot!(Scene::new(watched).model(model).story(), @r"
    001 start@1 succeeded -> p (unconditional)
    p retries in 5475 ms: no activity for 30s: raise the graph's `stall_timeout` if that is normal here (transient_infra)
    002 p@1 succeeded in 2 -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn the_script_goes_on_over_visits_and_branches() {
    let source = r#"digraph {
        start; exit; node [fidelity=truncate]
        start -> work -> fork; fork [shape=component]
        fork -> {a; b} -> join; join [shape=tripleoctagon]
        join -> work [condition="internal.node_visit_count < 2"]
        join -> exit
    }"#;
    let model = r#"{"work": [{"text": "w0"}, {"text": "w1"}], "*": [{"text": "o0"}, {"text": "o1"}, {"text": "o2"}]}"#;
    let scene = Scene::new(source).model(model);
    scene.drive().unwrap();
    // Branches that run at the same time answer in either order.
    let mut answers = std::collections::BTreeMap::<_, Vec<_>>::new();
    for event in scene.events() {
        if let EventBody::AgentMessage { text, usage: Some(_), .. } = &event.entry.body {
            answers.entry(event.entry.node_id.unwrap()).or_default().push(text.clone());
        }
    }
    insta::assert_snapshot!(format!("{answers:?}"), @r#"{"a": ["o0", "o2"], "b": ["o0", "o2"], "work": ["w0", "w1"]}"#);
}

#[test]
fn the_edge_that_was_taken_says_the_fidelity() {
    let source = r"digraph {
        start -> a; node [shape=tab]
        a -> b [fidelity=truncate, label=short]; a -> b [fidelity=full]; a -> b [fidelity=compact, label=long]
        b -> exit
    }";
    let told = |answer: &str| {
        let model = json!({"a": [{"text": answer}], "b": [{"text": "ok"}]}).to_string();
        let scene = Scene::new(source).model(&model);
        scene.drive().unwrap();
        scene.read("003-b@1/prompt.md").lines().count()
    };
    assert_eq!(told(r#"{"preferred_next_label": "short"}"#), 4);
    assert!(told(r#"{"preferred_next_label": "long"}"#) > 4);
}

#[test]
fn a_large_answer_is_offloaded() {
    let source = r#"digraph { start -> plan -> next -> exit; plan [shape=tab, model="claude-sonnet-4-5"]; next [shape=tab, prompt="Go on."] }"#;
    let text = "p".repeat(200_000);
    let model = json!({"plan": [{"text": text, "usage": {"input_tokens": 12_400, "output_tokens": 3_200}}], "next": [{"text": "ok"}]});
    let scene = Scene::new(source).model(&model.to_string());
    scene.drive().unwrap();
    assert_eq!(scene.value("response.plan"), text);
    let prompt = scene.read("003-next@1/prompt.md");
    let hex = prompt.split("blobs/").nth(1).unwrap().split('.').next().unwrap();
    insta::assert_snapshot!(prompt.replace(hex, "HEX"), @r"
    Goal: Ship it

    ## Completed stages
    - **plan**: success
      - Model: claude-sonnet-4-5, 12.4k tokens in / 3.2k out
      - Response: See: DIR/runs/RUN/runtime/blobs/HEX.json

    Go on.
    ");
}

#[test]
fn fidelity_is_the_edges_the_nodes_the_graphs() {
    let source = r#"digraph {
        start; exit; node [shape=tab, prompt="Next."]
        graph [default_fidelity="summary:low"]
        start -> c; c [shape=parallelogram, script=run]
        c -> a -> b; b -> d [fidelity=truncate]; d -> e -> exit
        a [fidelity=compact]; d [fidelity="summary:medium"]; e [fidelity="summary:high"]
        c [shape=parallelogram]
    }"#;
    let scene = Scene::new(source)
        .model(r#"{"*": [{"text": "All is well.", "usage": {"input_tokens": 1500, "output_tokens": 20}}]}"#)
        .prints(&[("run", "fine")]);
    scene.drive().unwrap();
    let prompts = ["003-a@1", "004-b@1", "005-d@1", "006-e@1"];
    let prompts = prompts.map(|stage| scene.read(&format!("{stage}/prompt.md")));
    insta::assert_snapshot!(prompts.join("\n=====\n"), @r"
    Goal: Ship it

    ## Completed stages
    - **c**: success
      - Script: `run`
      - Stdout:
        ```
        fine
        ```
      - Stderr: (empty)

    Next.
    =====
    Goal: Ship it

    ## Completed stages
    - **c**: success
    - **a**: success

    Next.
    =====
    Goal: Ship it
    Run: RUN

    Next.
    =====
    Goal: Ship it

    ## Completed stages

    ### c: success
    - Script: `run`
    - Stdout:
      ```
      fine
      ```
    - Stderr: (empty)

    ### a: success
    - Model: scripted, 1.5k tokens in / 20 out
    - Response:
      ```
      All is well.
      ```

    ### b: success
    - Model: scripted, 1.5k tokens in / 20 out
    - Response:
      ```
      All is well.
      ```

    ### d: success
    - Model: scripted, 1.5k tokens in / 20 out
    - Response:
      ```
      All is well.
      ```

    Next.
    ");
}
