use super::*;

const ONE: &str = r#"digraph { start -> c -> exit; c [shape=tab, type=command, script="run"] }"#;

#[test]
fn a_command_writes_its_keys() {
    let exec = FakeExec::new().with_finished("run", printed(Exit::Code(0), "two\nlines", "warn"));
    let scene = Scene::new(ONE).exec(exec);
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(scene.context(&["command", "last_", "outcome", "failure"]), @r#"
    command.exit_code = 0
    command.output = "two\nlines"
    command.stderr = "warn"
    last_stage = "exit"
    outcome = "succeeded"
    "#);
}

#[test]
fn a_failed_command_quotes_its_last_line() {
    let exec =
        FakeExec::new().with_finished("run", printed(Exit::Code(3), "out", "bad\nworse\n\n"));
    let scene = Scene::new(ONE).exec(exec);
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 failed: exit code 3: worse -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    ");
    insta::assert_snapshot!(scene.context(&["command", "outcome", "failure"]), @r#"
    command.exit_code = 3
    command.output = "out"
    command.stderr = "bad\nworse\n\n"
    failure_class = "deterministic"
    failure_signature = "c|deterministic|exit code <n>: worse"
    outcome = "succeeded"
    "#);

    let long = "x".repeat(500);
    let scene = Scene::new(ONE).exec(FakeExec::new().with("run", Exit::Code(1), &long));
    scene.drive().unwrap();
    assert!(story(&scene.events()).contains(&format!("exit code 1: {} ", "x".repeat(200))));
}

#[test]
fn a_signal_has_the_shells_exit_code() {
    let scene = Scene::new(ONE).exec(FakeExec::new().with("run", Exit::Signal(9), ""));
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 failed: killed by signal 9 -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    ");
    assert_eq!(scene.value("command.exit_code"), 137);
}

#[test]
fn a_time_limit_ends_a_command() {
    let source = r#"digraph {
        start -> c; c [shape=parallelogram, script="sleep 1h", timeout=5s]
        c -> late [condition="outcome=failed && failure_class=transient_infra"]; c -> exit
        late [shape=parallelogram, script="echo late"]
        late -> exit
    }"#;
    let exec = FakeExec::new().with_endless("sleep 1h").with("echo late", Exit::Code(0), "late");
    insta::assert_snapshot!(Scene::new(source).exec(exec).story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 failed: timed out after 5s: raise its `timeout` if it needs longer (transient_infra) -> late (condition)
    003 late@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn commands_route() {
    let source = r#"digraph {
        start -> list -> plan; plan -> no; plan -> use [label="Go"]; use -> typed -> wrong -> none -> exit; no -> exit
        list [shape=parallelogram, script="echo '{\"big\": [1, {\"a\": \"x\"}]}'", output_schema="{}"]
        plan [shape=parallelogram, stdin_source="context.output.list.big", output_schema=routing, script="input=$(cat); echo starting >&2
            echo \"{\\\"preferred_next_label\\\": \\\"Go\\\", \\\"context_updates\\\": {\\\"seen\\\": $input, \\\"output.more\\\": 3, \\\"outcome\\\": 1}}\" >&2"]
        use [shape=parallelogram, script="cat", stdin_source="seen"]
        typed [shape=parallelogram, script="echo log; echo '{\"n\": 1}'; echo err >&2", merge_stderr=true, output_schema="{\"properties\":{\"n\":{\"type\":\"integer\"}}}"]
        wrong [shape=parallelogram, script="echo '{\"n\": \"x\"}'", output_schema="{\"properties\":{\"n\":{\"type\":\"integer\"}}}"]
        none [shape=parallelogram, script="cat", stdin_source="context.missing"]
        no [shape=parallelogram, script="echo no"]
    }"#;
    let scene = Scene::new(source).local();
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> list (unconditional)
    002 list@1 succeeded -> plan (unconditional)
    plan refused outcome: `outcome` is written by the engine
    003 plan@1 succeeded -> use (preferred_label)
    004 use@1 succeeded -> typed (unconditional)
    005 typed@1 succeeded -> wrong (unconditional)
    006 wrong@1 failed: the output does not match output_schema: /n: it must be of type integer, not a string -> none (unconditional)
    007 none@1 failed: stdin_source: the context has no key `missing`; write it in an earlier stage -> exit (unconditional)
    008 exit@1 succeeded
    run partially_succeeded
    ");
    insta::assert_snapshot!(scene.context(&["output", "seen", "command"]), @r#"
    command.exit_code = 0
    command.output = "{\"n\": \"x\"}"
    command.stderr = ""
    output.list = {"big":[1,{"a":"x"}]}
    output.more = 3
    output.typed = {"n":1}
    seen = [1,{"a":"x"}]
    "#);
}

#[test]
fn large_values_inside_of_others_are_read_back() {
    let hits = "'x' * 100 for n in range(1500)";
    let source = format!(
        r#"digraph {{ start -> l -> each -> hit -> join -> count -> say -> exit; l [script="printf '[1]'"]
        each [shape=component, for_each="command.output"]; join [shape=tripleoctagon]
        hit [language=python, output_schema=routing, script="import json; print(json.dumps({{'context_updates': {{'hits': [{hits}]}}}}))"]
        count [language=python, stdin_source="parallel.results", script="import json, sys; print(len(json.load(sys.stdin)[0]['context_updates']['hits']))"]
        say [env.N="{{{{ context.parallel.results[0].context_updates.hits | length }}}}", script="echo $N {{{{ context.command.output }}}}"] }}"#
    );
    let scene = Scene::new(&source).local();
    scene.drive().unwrap();
    assert_eq!(scene.value("command.output"), "1500 1500");
}

#[test]
fn a_secret_behind_an_escape_is_redacted_in_the_output_of_a_command() {
    let source = r#"digraph { start -> a -> b -> exit
        a [script=keys, output_schema="{}"]
        b [script=keys, output_schema="{\"properties\":{\"k\":{\"maxLength\":3}}}"] }"#;
    let scene = Scene::new(source).prints(&[("keys", r#"{"k": "AKIA\u0049OSFODNN7EXAMPL3"}"#)]);
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> a (unconditional)
    002 a@1 succeeded -> b (unconditional)
    003 b@1 failed: the output does not match output_schema: /k: "[redacted]" is longer than 3 characters -> exit (unconditional)
    004 exit@1 succeeded
    run partially_succeeded
    "#);
    assert_eq!(scene.value("output.a"), json!({"k": "[redacted]"}));
}

#[test]
fn a_schema_checks_the_output_of_a_command_before_redaction() {
    let source = r#"digraph { start -> right -> wrong -> exit
        right [script="echo '{\"k\": \"AKIAIOSFODNN7EXAMPL3\"}'", output_schema="{\"properties\":{\"k\":{\"pattern\":\"^AKIA.*3$\"}}}"]
        wrong [script="echo '{\"k\": \"AKIAIOSFODNN7EXAMPL4\"}'", output_schema="{\"properties\":{\"k\":{\"const\":\"[redacted]\"}}}"] }"#;
    let scene = Scene::new(source).local();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> right (unconditional)
    002 right@1 succeeded -> wrong (unconditional)
    003 wrong@1 failed: the output does not match output_schema: /k: "[redacted]" was expected -> exit (unconditional)
    004 exit@1 succeeded
    run partially_succeeded
    "#);
    assert_eq!(scene.value("output.right"), json!({"k": "[redacted]"}));
    assert!(!format!("{:?}", scene.events()).contains("AKIA"));
}

#[test]
fn real_scripts_run_in_the_working_directory() {
    let source = r#"digraph {
        start -> shell -> python -> broken -> killed -> exit
        shell [shape=parallelogram, script="printf 'one  \ntwo\n\n\n'; echo warn >&2; basename \"$PWD\"; echo \"$FABRO_NODE@$FABRO_VISIT.$FABRO_ATTEMPT\""]
        python [shape=parallelogram, language=python, script="import sys; print(1 + 1); sys.exit(0)"]
        broken [shape=parallelogram, script="echo half; exit 42"]
        killed [shape=parallelogram, script="kill -KILL $$"]
    }"#;
    let scene = Scene::new(source).local();
    let story = scene.story();
    insta::assert_snapshot!(story, @r"
    001 start@1 succeeded -> shell (unconditional)
    002 shell@1 succeeded -> python (unconditional)
    003 python@1 succeeded -> broken (unconditional)
    004 broken@1 failed: exit code 42: half -> killed (unconditional)
    005 killed@1 failed: killed by signal 9 -> exit (unconditional)
    006 exit@1 succeeded
    run partially_succeeded
    ");
    let output = |node: &str| {
        let state = scene.state();
        let history = &state.main().unwrap().history;
        let record = history.iter().find(|record| record.node.as_ref() == node).unwrap();
        let output = &record.end.outcome.context_updates["command.output"];
        fabro_engine::read_blob(&*scene.store, &BlobRef::from_value(output).unwrap()).unwrap()
    };
    assert_eq!(output("shell"), "one  \ntwo\n\n\nwork\nshell@1.1");
    assert_eq!(output("python"), "2");
    assert_eq!(output("broken"), "half");
    assert_eq!(scene.read("002-shell@1/stdout.log"), "one  \ntwo\n\n\nwork\nshell@1.1\n");
    insta::assert_snapshot!(scene.stage_files(), @r"
    002-shell@1/script.sh
    002-shell@1/status.json
    002-shell@1/stderr.log
    002-shell@1/stdout.log
    003-python@1/script.py
    003-python@1/status.json
    003-python@1/stdout.log
    004-broken@1/script.sh
    004-broken@1/status.json
    004-broken@1/stdout.log
    005-killed@1/script.sh
    005-killed@1/status.json
    ");
}

#[test]
fn large_output_is_a_file_for_later_stages() {
    let source = r#"digraph {
        start -> big -> next -> use -> exit
        big [shape=parallelogram, script="yes 0123456789 | head -n 20000; exit 7"]
        next [prompt="Look."]
        use [shape=parallelogram, script="echo {{ context.command.output }}"]
    }"#;
    let scene = Scene::new(source).model(r#"{"*": [{"text": "seen"}]}"#).local();
    insta::assert_snapshot!(scene.story().replace(&scene.dir.path().display().to_string(), "DIR"), @r"
    001 start@1 succeeded -> big (unconditional)
    002 big@1 failed: exit code 7: 0123456789 -> next (unconditional)
    003 next@1 succeeded -> use (unconditional)
    004 use@1 failed: `context.command.output` has 219999 bytes, and a script takes at most 131072 of one value; read it from the file DIR/runs/01HF7YAT000000000000000007/runtime/blobs/cd61b9d5155bfef8324999f9608ac3e9d83323d62e89185b56b1396118337628.json -> exit (unconditional)
    005 exit@1 succeeded
    run partially_succeeded
    ");
    let prompt = scene.read("003-next@1/prompt.md");
    let hidden = short_names(&prompt);
    insta::assert_snapshot!(hidden, @r"
    Goal: Ship it

    ## Completed stages
    - **big**: fail
      - Script: `yes 0123456789 | head -n 20000; exit 7`
      - Stdout: See: DIR/runs/RUN/runtime/blobs/HEX.json
      - Stderr: (empty)
      - Failure: exit code 7: 0123456789

    Look.
    ");
    let path = prompt.lines().find_map(|line| line.trim().strip_prefix("- Stdout: See: ")).unwrap();
    let path = path.replace("DIR", &scene.dir.path().display().to_string());
    let path = path.replace("RUN", &scene.run_id().to_string());
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(value.as_str().unwrap().len(), 11 * 20_000 - 1);
}

/// With long hexadecimal names replaced.
fn short_names(text: &str) -> String {
    let mut shown = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_hexdigit()) {
        let name = part.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
        shown.push_str(&if name.len() == 64 { part.replace(name, "HEX") } else { part.to_owned() });
    }
    shown
}

#[test]
fn a_command_without_a_place_to_run_says_so() {
    let source = r#"digraph { start -> c -> exit; c [shape=parallelogram, script="true"] }"#;
    let scene = Scene::new(source).local();
    let nowhere = scene.work_dir();
    std::fs::write(&nowhere, "a file").unwrap();
    let story = scene.story();
    let story = story.replace(&scene.dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!(story, @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 failed: working directory DIR/work is not a directory: create it, or choose another -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    ");
}

#[test]
fn waiting_takes_its_time() {
    let source = r"digraph {
        start -> w -> limited -> exit
        w [shape=insulator, duration=90s]
        limited [shape=insulator, duration=2m, timeout=10s]
    }";
    let scene = Scene::new(source);
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> w (unconditional)
    002 w@1 succeeded -> limited (unconditional)
    003 limited@1 failed: timed out after 10s: raise its `timeout` if it needs longer (transient_infra) -> exit (unconditional)
    004 exit@1 succeeded
    run partially_succeeded
    ");
    let state = scene.state();
    assert_eq!(state.updated_ms - state.started_ms, 100_000);
}

#[test]
fn files_that_commands_touch_are_asked_of_git() {
    let scene = Scene::new(
        r#"digraph { start; exit; node [shape=parallelogram]; start -> a -> b -> c -> exit
            a [script="echo 1 > one; echo 2 > two"]; b [script="true"]; c [script="echo 3 > two; rm kept; touch of-hunter2-hunter2"] }"#,
    )
    .agents(Agents {
        redactor: Redactor::new([("PASSWORD", "hunter2-hunter2")]),
        ..Agents::default()
    })
    .local();
    let dir = scene.work_dir();
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("kept"), "x").unwrap();
    let git = |args: &[&str]| {
        let settings = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let mut git = std::process::Command::new("git");
        git.args(settings).args(args).current_dir(&dir);
        assert!(git.output().unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "kept"]);
    git(&["commit", "-qm", "first"]);
    scene.drive().unwrap();
    let touched: Vec<_> = scene
        .events()
        .iter()
        .filter_map(|event| match &event.entry.body {
            EventBody::StageCompleted(end) => Some(end.outcome.files_touched.join(" ")),
            _ => None,
        })
        .collect();
    assert_eq!(touched, ["", "one two", "", "kept of-[redacted:PASSWORD] two", ""]);
}
