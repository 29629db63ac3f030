use insta::assert_snapshot;

use super::project::{Project, filters};

const FLOW: &str = r#"digraph flow {
    start -> count -> plan -> check
    check -> exit [condition="outcome=succeeded"]
    check -> plan
    count [shape=parallelogram, script="echo counted >> traces; ls *.fabro"]
    plan [prompt="@plan.md"]
    check [shape=parallelogram, script="test $(wc -l < traces) -ge 1"]
}"#;

const MODEL: &str = r#"{"plan": [
    {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "plan.txt", "content": "x"}}]},
    {"text": "Done."}]}"#;

fn project() -> Project {
    let files =
        [("flow.fabro", FLOW), ("plan.md", "Make a plan.\nBe short.\n"), ("model.json", MODEL)];
    let project = Project::with(&files);
    assert_eq!(project.exit(&["run", "flow.fabro", "--model-script", "model.json"]), 0);
    project
}

#[test]
fn a_run_comes_out_the_same_and_nothing_is_done() {
    let project = project();
    std::fs::remove_file(project.path().join("plan.txt")).unwrap();
    let events = project.output(&["events", "latest"]).stdout;
    // Neither the files nor the workflow are needed any more.
    project.write("plan.md", b"Something else");
    assert_snapshot!(project.run(&["replay", "latest"]), @r"
    exit 0
    ── stdout
    ✓ the same: 18 events
    ");
    assert_eq!(project.read("traces"), "counted\n");
    assert!(!project.path().join("plan.txt").exists());
    assert_eq!(project.output(&["events", "latest"]).stdout, events);
    assert_eq!(project.exit(&["rewind", "latest", "count"]), 0);
    assert_snapshot!(project.run(&["replay", "latest"]), @r"
    exit 0
    ── stdout
    ✓ the same: 0 events since the run was forked or rewound, up to the end of the record
    ");
}

#[test]
fn a_change_is_seen_where_it_begins() {
    let project = project();
    project.write("plan.md", b"Make a plan.\nBe brief.\n");
    filters().bind(|| {
        assert_snapshot!(project.run(&["replay", "latest", "--workflow", "flow.fabro"]), @r"
        exit 1
        ── stdout
        ✗ prompt of plan@1  event 10
        @@ -9,3 +9,3 @@
         
         Make a plan.
        -Be short.
        +Be brief.
        18 events compared
        ");
    });
    project.write("other.fabro", FLOW.replace("outcome=succeeded", "outcome=failed").as_bytes());
    project.write("plan.md", b"Make a plan.\nBe short.\n");
    assert_snapshot!(project.run(&["replay", "latest", "--workflow", "other.fabro"]), @r"
    exit 1
    ── stdout
    ✗ edge of check@1  event 19
      recorded  check@1 → exit
      replayed  check@1 → plan
    plan@2 needs something that was not recorded
    and then: event of exit@1; --json shows all
    16 events compared
    ");
    let json = project.output(&["replay", "latest", "--workflow", "other.fabro", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["differences"][0]["aspect"], "edge");
    assert_eq!(project.exit(&["replay", "latest", "--workflow", "gone.fabro"]), 2);
    assert_eq!(project.exit(&["replay", "01ZZZ"]), 2);
}

#[test]
fn a_copied_store_replays_the_same() {
    let flow = r#"digraph {
        start -> big -> plan -> exit; plan [prompt="Look at it."]
        big [shape=parallelogram, script="yes 0123456789 | head -c 300000"]
        graph [default_fidelity="summary:high"]
    }"#;
    let model = r#"{"*": [{"text": "Done."}]}"#;
    let files = [("flow.fabro", flow), ("model.json", model)];
    let project = Project::with(&files);
    assert_eq!(project.exit(&["run", "flow.fabro", "--model-script", "model.json"]), 0);
    let prompt = project.run(&["inspect", "latest", "plan"]);
    assert!(prompt.contains("DIR/.fabro/state/runs/"), "{prompt}");
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("the copy");
    let copied = std::process::Command::new("cp").arg("-r").args([project.path(), &copy]).status();
    assert!(copied.unwrap().success());
    let store = copy.join(".fabro/state").display().to_string();
    let shown = project.run(&["replay", "latest", "--store", &store]);
    assert!(shown.contains("✓ the same"), "{shown}");
}

#[test]
fn compare_shows_inputs_and_ignores_run_ids() {
    let source = r#"digraph {
        start -> a -> c -> exit
        a [shape=parallelogram, script="echo $FABRO_RUN_DIR"]
        c [shape=house, stack.child_workflow="c.fabro"]
    }"#;
    let project = Project::with(&[("w.fabro", source), ("c.fabro", "digraph { start -> exit }")]);
    assert_eq!(project.exit(&["run", "w.fabro", "-I", "lang=de", "-I", "n=1"]), 0);
    let first = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(project.exit(&["run", "w.fabro", "-I", "lang=fr", "-I", "n=1"]), 0);
    let text = project.run(&["compare", &first]);
    assert_snapshot!(text[text.find("the run").unwrap()..], @r#"
    the run inputs
    @@ -1,2 +1,2 @@
    -lang = "de"
    +lang = "fr"
     n = 1
    "#);
}

#[test]
fn compare_shows_the_old_run_first() {
    let project = Project::with(&[(
        "w.fabro",
        r#"digraph W {
            graph [on_failure=continue]
            start -> read -> check
            read [shape=parallelogram, script="cat x.txt"]
            check [shape=parallelogram, script="grep -q old x.txt"]
            check -> old [condition="outcome=succeeded"]; check -> new [condition="outcome=failed"]
            old [shape=parallelogram, script="true"]; new [shape=parallelogram, script="true"]
            old -> last; new -> last; last [shape=parallelogram, script="cat x.txt"]; last -> exit
        }"#,
    )]);
    project.write("x.txt", b"old\n");
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let first = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert!(project.run(&["compare", &first]).contains("no other differences in "));
    project.write("x.txt", b"new\n");
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let text = project.run(&["compare", &first, "latest"]);
    let is_time =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('s');
    let squeezed = |line: &str| {
        line.split_whitespace().filter(|word| !is_time(word)).collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = text.lines().map(squeezed).collect();
    let start = lines.iter().position(|line| line == "stage old new").unwrap();
    let end = lines.iter().position(|line| line == "check@1 context").unwrap();
    assert_snapshot!(lines[start..end].join("\n"), @r#"
    stage old new
    start@1 succeeded → read succeeded → read
    read@1 succeeded → check succeeded → check
    ! check@1 succeeded → old failed → new
    - old@1 succeeded → last
    + new@1 succeeded → last
    last@1 succeeded → exit succeeded → exit
    exit@1 succeeded succeeded

    read@1 context
    @@ -1,5 +1,5 @@
    {
    "command.exit_code": 0,
    - "command.output": "old",
    + "command.output": "new",
    "command.stderr": ""
    }

    check@1 outcome
    - succeeded
    + failed, because of exit code 1 (deterministic)

    "#);
    let json = project.json(&["compare", &first, "--json"]);
    assert_eq!(json["old"]["id"], *first);
    let stages = json["stages"].as_array().unwrap();
    let only = |side: &str| -> Vec<_> {
        let missing = stages.iter().filter(|pair| pair[side].is_null());
        missing.map(|pair| pair["stage"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((only("new"), only("old")), (vec!["old@1".into()], vec!["new@1".into()]));
    let last = json["differences"].as_array().unwrap().iter().find(|it| it["stage"] == "last@1");
    assert!(last.is_some(), "what follows the divergence is compared too: {json}");
}
