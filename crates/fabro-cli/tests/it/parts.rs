//! Imported parts and sub-workflows: what crosses their borders, replayed, forked and rewound.

use insta::assert_snapshot;

use super::project::Project;

/// Checked twice, the first time without success.
const PART: &str = r#"digraph Part {
    start -> attempt -> check
    attempt [prompt="Try {{ goal }}."]
    check [shape=parallelogram, script="sh once.sh check", retry_target=attempt]
    check -> done [condition="outcome=success"]
    done [shape=diamond]
    done -> exit
}"#;

/// Fails at the first call with a name.
const ONCE: &str = "test -e \"$1\" || { touch \"$1\"; echo \"$1 is not there\"; exit 1; }";

fn stages(project: &Project, run: &str) -> String {
    let stages = project.json(&["inspect", run, "--json"])["stages"].clone();
    let stages = stages.as_array().unwrap().iter();
    let names = stages.map(|stage| {
        format!("{}@{} {}", stage["node"].as_str().unwrap(), stage["visit"], stage["status"])
    });
    names.collect::<Vec<_>>().join("\n")
}

fn prompt(project: &Project, stage: &str) -> String {
    let stage = project.json(&["inspect", "latest", stage, "--json"]);
    stage["prompt"].as_str().unwrap().to_owned()
}

/// The run is the same when it is replayed, and can be copied up to this stage and finished.
#[track_caller]
fn replay_and_fork(project: &Project, stage: &str) {
    let replayed = project.run(&["replay", "latest"]);
    assert!(replayed.starts_with("exit 0\n"), "{replayed}");
    let shown = project.run(&["fork", "latest", stage]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    let resumed = project.run(&["resume", "latest"]);
    assert!(resumed.starts_with("exit 0\n"), "{resumed}");
}

#[test]
fn retry_targets_and_fidelity_cross_the_border_of_an_import() {
    let source = r#"digraph {
        goal = "it"
        start -> plan -> part -> last
        plan [prompt="Plan it.", fidelity=full, thread_id=work]
        part [import="lib/part.fabro", fidelity=full, thread_id=work]
        last [shape=parallelogram, script="sh once.sh last", retry_target=part]
        last -> exit [condition="outcome=success"]
    }"#;
    let model = r#"{"*": [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]}"#;
    let files = [
        ("flow.fabro", source),
        ("lib/part.fabro", PART),
        ("once.sh", ONCE),
        ("model.json", model),
    ];
    let project = Project::with(&files);
    let shown = project.run(&["run", "flow.fabro", "--model-script", "model.json"]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    assert_snapshot!(stages(&project, "latest"), @r#"
    start@1 "succeeded"
    plan@1 "succeeded"
    part.attempt@1 "succeeded"
    part.check@1 "failed"
    part.attempt@2 "succeeded"
    part.check@2 "succeeded"
    part.done@1 "succeeded"
    last@1 "failed"
    part.attempt@3 "succeeded"
    part.check@3 "succeeded"
    part.done@2 "succeeded"
    last@2 "succeeded"
    exit@1 "succeeded"
    "#);
    // The conversation of `plan` continues inside of the part.
    assert_eq!(prompt(&project, "part.attempt"), "Try it.");
    replay_and_fork(&project, "part.check@2");
    project.run(&["rewind", "latest", "plan"]);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_snapshot!(stages(&project, "latest"), @r#"
    start@1 "succeeded"
    plan@1 "succeeded"
    part.attempt@1 "succeeded"
    part.check@1 "succeeded"
    part.done@1 "succeeded"
    last@1 "succeeded"
    exit@1 "succeeded"
    "#);
}

#[test]
fn inputs_and_outputs_go_through_three_levels() {
    let top = r#"digraph Top {
        start -> middle -> say -> exit
        middle [shape=house, stack.child_workflow="middle.fabro", inputs.words="[\"a\", \"b\"]"]
        say [shape=parallelogram, script="echo {{ context.child.middle.child.low.output.ask.count }}"]
    }"#;
    let middle = r#"digraph Middle {
        start -> low -> exit
        low [shape=house, stack.child_workflow="low.fabro",
             inputs.words="{{ inputs.words }}", inputs.times=2]
    }"#;
    let low = r#"digraph Low {
        start -> each -> echo -> join -> part -> ask -> exit
        each [shape=component, for_each="{{ inputs.words }}"]
        echo [shape=parallelogram, script="echo {{ context.item }} {{ inputs.times }}"]
        join [shape=tripleoctagon]
        part [import="part.fabro"]
        ask [shape=tab, prompt="Count {{ context.parallel.outputs }}.", output_schema="{}"]
    }"#;
    let model = r#"{"part.attempt": [{"text": "One."}, {"text": "Two."}],
        "ask": [{"text": "{\"count\": 42}"}]}"#;
    let files = [
        ("flow.fabro", top),
        ("middle.fabro", middle),
        ("low.fabro", low),
        ("part.fabro", PART),
        ("once.sh", ONCE),
        ("model.json", model),
    ];
    let project = Project::with(&files);
    let shown = project.run(&["run", "flow.fabro", "--model-script", "model.json"]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    let output = |run: &str| project.json(&["context", run, "--json", "--resolve"]);
    assert_eq!(output("latest")["command.output"], "42");
    replay_and_fork(&project, "middle");
    assert_eq!(output("latest")["command.output"], "42");
}
