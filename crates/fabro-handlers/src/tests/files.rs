use super::*;

#[test]
fn every_attempt_keeps_its_files() {
    // A log is made with its first byte.
    let source = r#"digraph {
        start -> p -> c -> exit
        p [shape=tab, prompt="Plan {{ context.internal.retry_count.p | default(0) }}.", fidelity=truncate, max_retries=2]
        c [shape=parallelogram, script="cat count 2>/dev/null; echo x >> count; exit $(( $(wc -l < count) < 2 ))", retry_policy=none, max_retries=1]
    }"#;
    let model = r#"{"p": [{"error": "overloaded", "retry_after_s": 0}, {"error": "timeout", "retry_after_s": 0}, {"text": "done"}]}"#;
    let source = source.replace("retry_policy=none", "retry_policy=linear");
    let scene = Scene::new(&source).model(model).local();
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.stage_files(), @r"
    002-p@1/attempt-1/SHA256SUMS
    002-p@1/attempt-1/prompt.md
    002-p@1/attempt-1/status.json
    002-p@1/attempt-2/SHA256SUMS
    002-p@1/attempt-2/prompt.md
    002-p@1/attempt-2/status.json
    002-p@1/prompt.md
    002-p@1/response.md
    002-p@1/status.json
    003-c@1/attempt-1/SHA256SUMS
    003-c@1/attempt-1/script.sh
    003-c@1/attempt-1/status.json
    003-c@1/script.sh
    003-c@1/status.json
    003-c@1/stdout.log
    ");
    assert_eq!(scene.read("002-p@1/attempt-2/prompt.md"), "Goal: Ship it\nRun: RUN\n\nPlan 1.");
    assert_eq!(scene.read("002-p@1/prompt.md"), "Goal: Ship it\nRun: RUN\n\nPlan 2.");
    assert_eq!(scene.read("003-c@1/stdout.log"), "x\n");
    insta::assert_snapshot!(scene.read("002-p@1/attempt-2/status.json"), @r#"{"node":"p","visit":1,"rank":2,"attempts":2,"status":"failed","failure":{"class":"transient_infra","message":"the model did not answer in time: try again later","signature":"p|transient_infra|the model did not answer in time: try again later","retry_after_ms":0,"unavailable":"wait and ask again, or add a fallback model"},"usage":{"model":"scripted","input_tokens":0,"output_tokens":0,"failed_requests":1}}"#);
    insta::assert_snapshot!(scene.read("003-c@1/attempt-1/status.json"), @r#"{"node":"c","visit":1,"rank":3,"attempts":1,"status":"failed","failure":{"class":"deterministic","message":"exit code 1","signature":"c|deterministic|exit code <n>"}}"#);
}

#[test]
fn an_empty_directory_serves_the_next_stage() {
    // What outlives its stage writes where the stage was; none of it may appear in the next one.
    let source = r#"digraph {
        start -> one -> two -> three -> fan
        fan [shape=component]
        fan -> a -> join
        fan -> b -> join
        join [shape=tripleoctagon]
        join -> last -> exit
        one [shape=parallelogram, script="true"]
        two [shape=parallelogram, script="test -d \"$FABRO_STAGE_DIR\" && test -z \"$(ls -A \"$FABRO_STAGE_DIR\")\""]
        three [shape=parallelogram, script="echo mine > \"$FABRO_STAGE_DIR/mine\""]
        a [shape=parallelogram, script="test -d \"$FABRO_STAGE_DIR\" && test -z \"$(ls -A \"$FABRO_STAGE_DIR\")\""]
        b [shape=parallelogram, script="test -d \"$FABRO_STAGE_DIR\" && test -z \"$(ls -A \"$FABRO_STAGE_DIR\")\""]
        last [shape=parallelogram, script="test -d \"$FABRO_STAGE_DIR\" && test -z \"$(ls -A \"$FABRO_STAGE_DIR\")\""]
    }"#;
    let scene = Scene::new(source).local();
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.stage_files(), @r"
    004-three@1/mine
    004-three@1/script.sh
    004-three@1/status.json
    005-fan@1/status.json
    008-join@1/status.json
    ");
    let mut left: Vec<_> = std::fs::read_dir(scene.run_dir().join("stages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, [".spare", "004-three@1", "005-fan@1", "008-join@1"]);
}

#[test]
fn a_silent_stage_leaves_no_files() {
    let source = r#"digraph {
        start -> silent -> fails -> writes -> keeps -> exit
        silent [shape=parallelogram, script="test -d \"$FABRO_STAGE_DIR\""]
        fails [shape=parallelogram, script="exit 3"]
        writes [shape=parallelogram, script="echo out"]
        keeps [shape=parallelogram, script="echo own > \"$FABRO_STAGE_DIR/own\""]
    }"#;
    let scene = Scene::new(source).local();
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.stage_files(), @r"
    003-fails@1/script.sh
    003-fails@1/status.json
    004-writes@1/script.sh
    004-writes@1/status.json
    004-writes@1/stdout.log
    005-keeps@1/own
    005-keeps@1/script.sh
    005-keeps@1/status.json
    ");
    assert!(!scene.run_dir().join("stages/002-silent@1").exists());
    // Its end is in the log.
    let state = scene.state();
    let silent = state.main().unwrap().history.front().unwrap();
    assert_eq!(silent.end.outcome.status, fabro_types::Status::Succeeded);
}

#[test]
fn status_files_say_what_a_stage_came_to() {
    let source = r"digraph { start -> p; p [shape=tab, model=m]; p -> exit }";
    let model = r#"{"p": [{"text": "{\"outcome\": \"failed\", \"failure_reason\": \"no\", \"preferred_next_label\": \"x\", \"context_updates\": {\"a\": 1}}"}]}"#;
    let scene = Scene::new(source).model(model);
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.read("002-p@1/status.json"), @r#"{"node":"p","visit":1,"rank":2,"attempts":1,"status":"failed","preferred_label":"x","context_updates":{"a":1,"last_response":"{\"outcome\": \"failed\", \"failure_reason\": \"no\", \"preferred_next_label\": \"x\", \"context_updates\": {\"a\": 1}}","response.p":"{\"outcome\": \"failed\", \"failure_reason\": \"no\", \"preferred_next_label\": \"x\", \"context_updates\": {\"a\": 1}}"},"failure":{"class":"deterministic","message":"no","signature":"p|deterministic|no","stated":true},"usage":{"model":"m","input_tokens":0,"output_tokens":0,"turns":1},"duration_ms":0,"prompt":"blob://sha256/8f8e1464aeef5ae9534c6e992b0b2c40404710c1adfe9d658cf4481b3a8460f5"}"#);
}

#[test]
fn a_stage_that_cannot_be_recorded_ends_the_driver() {
    for source in [
        "digraph { start -> p -> exit; p [shape=tab] }",
        "digraph { start -> p -> exit; p [shape=parallelogram, script=run] }",
    ] {
        let mut scene =
            Scene::new(source).model(r#"{"p": [{"text": "x"}]}"#).prints(&[("run", "")]);
        let blocked = scene.dir.path().join("blocked");
        std::fs::write(&blocked, "a file").unwrap();
        scene.run_dir = Some(blocked.clone());
        let error = scene.drive().unwrap_err().to_string();
        let error = error.replace(&scene.dir.path().display().to_string(), "DIR");
        let error = error.replace(&scene.run_id().to_string(), "RUN");
        assert_eq!(
            error,
            "stage `p` cannot continue: write DIR/blocked/RUN/stages/002-p@1: Not a directory (os error 20); free some space or choose another store"
        );
        // Nothing was lost: with the obstacle gone the stage runs.
        std::fs::remove_file(&blocked).unwrap();
        assert!(scene.story().ends_with("run succeeded\n"));
    }
}

#[test]
fn a_dry_run_executes_nothing() {
    let source = r#"digraph {
        start -> c -> p -> w -> ask; ask -> fork [label="Yes"]; ask -> exit [label="No"]
        c [shape=parallelogram, script="touch made; echo {{ context.later }}"]
        p [prompt="Use {{ context.found }} and {{ goal }}"]
        w [shape=insulator, duration=5h]
        ask [shape=hexagon]
        fork [shape=component]; fork -> {x; y} -> join; x [shape=parallelogram, script=x]
        join [shape=tripleoctagon, prompt="Which?"]; join -> sub -> exit
        sub [shape=house, stack.child_dot_source="digraph { start -> d -> exit; d [shape=parallelogram, script=d] }"]
    }"#;
    let scene = Scene::new(source).dry();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded (dry run) -> p (unconditional)
    003 p@1 succeeded -> w (unconditional)
    004 w@1 succeeded (dry run) -> ask (unconditional)
    ask asks "ask": [Y] Yes, [N] No
    ask is told Y "Yes" None by auto
    005 ask@1 succeeded -> fork (preferred_label)
    fork forks 2, joins at join
      007 x@1 succeeded (dry run) -> join (unconditional)
      fork@1/x succeeded
      008 y@1 succeeded -> join (unconditional)
      fork@1/y succeeded
    006 fork@1 succeeded -> join (join)
    009 join@1 succeeded (the answer names no branch; the best status won) -> sub (unconditional)
    010 sub@1 succeeded -> exit (unconditional)
    011 exit@1 succeeded
    run succeeded
    "#);
    assert_eq!(std::fs::read_dir(scene.work_dir()).unwrap().count(), 0);
    insta::assert_snapshot!(scene.context(&["command", "parallel.fan_in", "response"]), @r#"
    command.exit_code = 0
    command.output = ""
    command.stderr = ""
    parallel.fan_in.best_head_sha = null
    parallel.fan_in.best_id = "x"
    parallel.fan_in.best_outcome = "succeeded"
    response.join = "[simulated] response for stage join"
    response.p = "[simulated] response for stage p"
    response.sub = ""
    "#);
    let state = scene.state();
    assert_eq!(state.updated_ms, state.started_ms);
}

#[test]
fn a_status_file_that_cannot_be_written_is_told_once() {
    let scene = Scene::new("digraph { start -> a -> exit; a [shape=insulator] }");
    scene.drive().unwrap();
    let blocked = scene.work_dir().join("blocked");
    std::fs::write(&blocked, "no directory").unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let warned = Arc::clone(&told);
    let files = StatusFiles::new(blocked, move |text| warned.lock().unwrap().push(text.to_owned()));
    scene.events().iter().for_each(|event| files.event(event));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("status.json of start cannot be written: "), "{told:?}");
}

#[test]
fn what_a_script_puts_in_the_place_of_its_status_is_replaced() {
    let source = r#"digraph {
        start -> pipe -> link -> exit
        pipe [shape=parallelogram, script="mkfifo $FABRO_STAGE_DIR/status.json"]
        link [shape=parallelogram, script="echo mine > mine; ln -s $PWD/mine $FABRO_STAGE_DIR/status.json"]
    }"#;
    let scene = Scene::new(source).local();
    scene.drive().unwrap();
    for (dir, node) in [("002-pipe@1", "pipe"), ("003-link@1", "link")] {
        let start = format!(r#"{{"node":"{node}","visit":1,"#);
        assert!(scene.read(&format!("{dir}/status.json")).starts_with(&start), "{dir}");
    }
    assert_eq!(std::fs::read_to_string(scene.work_dir().join("mine")).unwrap(), "mine\n");
}
