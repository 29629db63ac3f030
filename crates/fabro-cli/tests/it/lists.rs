//! Lists, `for_each`: run, shown, replayed, killed and resumed, forked and rewound.

use std::process::Stdio;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::json;

use super::project::Project;

/// The example of the documentation.
fn documented() -> &'static str {
    let docs = include_str!("../../../../docs/workflow-language.md");
    let mut blocks = docs.split("```dot\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.starts_with("digraph Translate")).unwrap()
}

fn outputs(project: &Project, run: &str) -> String {
    project.json(&["context", run, "--json", "--resolve"])["parallel.outputs"].to_string()
}

#[test]
fn the_documented_list_runs() {
    let model = r#"{"translate[0]": [{"text": "un"}], "translate[1]": [{"text": "deux"}], "translate": [{"text": "trois"}]}"#;
    let files = [
        ("flow.fabro", documented()),
        ("model.json", model),
        ("a.txt", "a"),
        ("b.txt", "b"),
        ("c d.txt", "c"),
    ];
    let project = Project::with(&files);
    assert_eq!(project.exit(&["validate", "flow.fabro"]), 0);
    assert_eq!(project.exit(&["run", "flow.fabro", "--model-script", "model.json"]), 0);
    assert_snapshot!(outputs(&project, "latest"), @r#"["un","deux","trois"]"#);
    let stages = project.json(&["inspect", "latest", "--json"]);
    let of_branches = stages["stages"].as_array().unwrap().iter();
    let of_branches: Vec<String> = of_branches
        .filter(|stage| stage["branch"].is_string())
        .map(|stage| format!("{} {} {}", stage["rank"], stage["branch"], stage["node"]))
        .collect();
    assert_snapshot!(of_branches.join("\n"), @r#"
    4 "each@1/translate[0]" "translate"
    5 "each@1/translate[1]" "translate"
    6 "each@1/translate[2]" "translate"
    7 "each@1/translate[0]" "check"
    8 "each@1/translate[1]" "check"
    9 "each@1/translate[2]" "check"
    "#);
    assert_snapshot!(project.run(&["logs", "latest", "translate[2]"]), @r"
    exit 0
    ── stdout
    ── each@1/translate[2]/translate@1
    trois
    ");
    let prompt = project.json(&["inspect", "latest", "translate[2]", "--json"])["prompt"].clone();
    assert!(prompt.as_str().unwrap().ends_with("Translate c d.txt, number 2."), "{prompt}");
    assert_snapshot!(project.run(&["explain", "latest", "translate[1]/check@1"]), @r"
    exit 0
    ── stdout
    each@1/translate[1]/check@1 → join  by rule unconditional
      ✓ join  unconditional
    ");
    assert_snapshot!(project.run(&["replay", "latest"]), @r"
    exit 0
    ── stdout
    ✓ the same: 50 events
    ");
    assert_eq!(project.exit(&["run", "flow.fabro", "--dry-run"]), 0);
}

const WORK: &str = r#"digraph Work {
    graph [on_failure=stop]
    start -> list -> each -> work -> join -> exit
    list [shape=parallelogram, script="echo listed >> listed; seq 1 6"]
    each [shape=component, for_each="command.output", max_parallel=2]
    work [shape=parallelogram, script="echo {{ context.item }} >> worked; while test {{ context.item }} -ge 3 && test ! -e go; do sleep 0.02; done; echo did {{ context.item }}"]
    join [shape=tripleoctagon]
}"#;

const ALL: &str = r#"["did 1","did 2","did 3","did 4","did 5","did 6"]"#;

#[test]
fn a_list_that_was_killed_is_resumed_forked_and_rewound() {
    let project = Project::with(&[("flow.fabro", WORK)]);
    let mut run = project.command(&["run", "flow.fabro", "--quiet"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    // The first two are recorded once the next two have begun.
    while project.read_or_default("worked").lines().count() < 4 {
        assert!(begun.elapsed() < Duration::from_mins(1), "the first elements are not done");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    project.write("go", b"");
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_eq!(outputs(&project, "latest"), ALL);
    assert_eq!(project.read("listed"), "listed\n", "the list is made once");
    let mut worked: Vec<String> = project.read("worked").lines().map(str::to_owned).collect();
    worked.sort();
    assert_eq!(worked.join(" "), "1 2 3 3 4 4 5 6", "what was committed does not run again");
    assert_snapshot!(project.run(&["replay", "latest"]), @r"
    exit 0
    ── stdout
    ✓ the same: 47 events
    ");

    let id = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let set = ["--set", "command.output=other"];
    let fork = [&["fork", &id, "work[1]"], &set[..]].concat();
    assert_eq!(project.exit(&fork), 0);
    let fork = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_ne!(fork, id);
    assert_eq!(project.exit(&["resume", &fork]), 0);
    assert_eq!(outputs(&project, &fork), ALL);
    assert_eq!(project.exit(&["rewind", &id, "each@1/work[4]/work@1"]), 0);
    assert_eq!(project.exit(&["resume", &id]), 0);
    assert_eq!(outputs(&project, &id), ALL);
    assert_eq!(project.exit(&["rewind", &id, "list"]), 0);
    assert_eq!(project.exit(&["resume", &id]), 0);
    assert_eq!(outputs(&project, &id), ALL);
    assert_eq!(project.read("listed"), "listed\n");
    assert_eq!(project.exit(&["replay", &id]), 0);
    assert_eq!(project.exit(&["replay", &fork]), 0);
}

#[test]
fn a_list_that_a_model_wrote_goes_through_sub_workflows() {
    let main = r#"digraph Main {
        graph [on_failure=stop]
        start -> plan -> each -> part -> join -> exit
        plan [shape=tab, prompt="Plan.", output_schema="{\"type\": \"object\", \"required\": [\"parts\"]}"]
        each [shape=component, for_each="output.plan.parts", as=part]
        part [shape=house, stack.child_workflow="one.fabro", inputs.words="{{ context.part.words }}", inputs.name="{{ context.part.name }}"]
        join [shape=tripleoctagon]
    }"#;
    let one = r#"digraph One {
        graph [on_failure=stop]
        start -> each -> deeper -> join -> exit
        each [shape=component, for_each="{{ inputs.words }}"]
        deeper [shape=house, stack.child_workflow="two.fabro", inputs.word="{{ context.item }}", inputs.of="{{ inputs.name }}"]
        join [shape=tripleoctagon]
    }"#;
    let two = r#"digraph Two {
        graph [on_failure=stop]
        start -> ask -> each -> say -> join -> exit
        ask [shape=tab, prompt="Letters of {{ inputs.word }}"]
        each [shape=component, for_each="response.ask", as=letter]
        say [shape=parallelogram, script="echo {{ inputs.of }}: {{ inputs.word }} {{ context.letter }}"]
        join [shape=tripleoctagon]
    }"#;
    let parts = json!({"parts": [{"name": "A", "words": ["x", "y"]}, {"name": "B", "words": []}, {"name": "C", "words": ["z"]}]});
    let model = json!({"plan": [{"text": parts.to_string()}], "ask": [{"text": "Here:\n```json\n[\"a\", \"b\"]\n```"}]});
    let model = model.to_string();
    let files =
        [("main.fabro", main), ("one.fabro", one), ("two.fabro", two), ("model.json", &model)];
    let project = Project::with(&files);
    assert_snapshot!(project.run(&["validate", "main.fabro"]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    ");
    assert_eq!(project.exit(&["run", "main.fabro", "--model-script", "model.json"]), 0);
    assert_snapshot!(outputs(&project, "latest"), @r#"[[["A: x a","A: x b"],["A: y a","A: y b"]],[],[["C: z a","C: z b"]]]"#);
    let cost = project.run(&["cost", "latest"]);
    for stage in ["ask[0][0]@1", "ask[0][1]@1", "ask[2][0]@1"] {
        assert!(cost.contains(stage), "{stage} in {cost}");
    }
    assert_eq!(project.exit(&["replay", "latest"]), 0);
    assert_eq!(project.exit(&["run", "main.fabro", "--dry-run"]), 0);
}

#[test]
fn a_list_of_a_thousand_elements() {
    let flow = r#"digraph Many {
        start -> list -> each -> work -> join -> exit
        list [shape=parallelogram, script="seq 1000"]
        each [shape=component, for_each="command.output", max_parallel=16]
        work [shape=insulator, duration="0s"]
        join [shape=tripleoctagon]
    }"#;
    let project =
        Project::with(&[("flow.fabro", flow), ("long.fabro", &flow.replace("1000", "1001"))]);
    assert_eq!(project.exit(&["run", "flow.fabro", "--quiet"]), 0);
    let run = project.json(&["inspect", "latest", "--json"]);
    assert_eq!(run["stages"].as_array().unwrap().len(), 1_005);
    assert_eq!(project.exit(&["explain", "latest", "work[999]"]), 0);
    assert_snapshot!(project.run(&["explain", "latest", "work[1000]"]), @r"
    exit 2
    ── stderr
    error: the run has no stage `work[1000]`; it has entered start, list, each, work, join, exit
    ");
    assert_eq!(project.exit(&["replay", "latest"]), 0);
    assert_eq!(project.exit(&["run", "long.fabro", "--quiet"]), 1);
}

#[test]
fn a_failure_in_one_branch_shows_in_the_table() {
    let flow = r#"digraph { start -> fan; fan [shape=component, for_each="[0, 1, 2]", max_parallel=1]
        fan -> work -> join; join [shape=tripleoctagon]; join -> exit
        work [shape=parallelogram, on_failure=continue, script="exit {{ context.item | int }}"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    let shown = project.run(&["run", "flow.fabro"]);
    let row = shown.lines().find(|line| line.starts_with("work ")).unwrap();
    assert!(row.contains("3  failed in 2 of 3 branches"), "{shown}");
}

#[test]
fn sub_workflows_are_indented_below_their_stage() {
    let project = Project::with(&[
        (
            "w.fabro",
            "digraph { start -> a -> exit; a [shape=house, stack.child_workflow=\"c.fabro\"] }",
        ),
        (
            "c.fabro",
            "digraph { start -> b -> exit; b [shape=house, stack.child_workflow=\"d.fabro\"] }",
        ),
        ("d.fabro", "digraph { start -> c -> exit; c [shape=parallelogram, script=true] }"),
    ]);
    let shown = project.run(&["run", "w.fabro"]);
    let stages: Vec<_> = shown.lines().filter(|line| line.trim_start().starts_with('✓')).collect();
    let starts: Vec<_> =
        stages.iter().map(|line| line.split_at(line.find('✓').unwrap() + 5).0).collect();
    assert_eq!(starts, ["    ✓ c", "  ✓ b", "✓ a"], "{shown}");
}

#[test]
fn unused_lists_of_a_model_script_are_warnings() {
    let flow = r#"digraph { start -> list -> each -> work -> join -> sum -> exit
        list [shape=parallelogram, script="printf 'a\nb\n'"]
        each [shape=component, for_each="command.output"]
        work [shape=tab, prompt="Do {{ context.item }}."]; join [shape=tripleoctagon]; sum [shape=tab, prompt=Sum] }"#;
    let model = r#"{"work": [{"text": "x"}], "work[1]": [{"text": "y"}], "sum[0]": [{"text": "z"}], "wrok": [{"text": "z"}], "sum": [{"text": "s"}]}"#;
    let project = Project::with(&[("flow.fabro", flow), ("model.json", model)]);
    let shown = project.run(&["run", "flow.fabro", "--model-script", "model.json"]);
    let warnings: Vec<_> = shown.lines().filter(|line| line.contains("has a list for")).collect();
    assert_snapshot!(warnings.join("\n"), @r"
    warning: the model script has a list for `sum[0]`, but `sum` is not on the path of a list (`for_each`)
    warning: the model script has a list for `wrok`, which is not a stage that asks a model: did you mean `work`?
    ");
    assert_eq!(outputs(&project, "latest"), r#"["x","y"]"#);
}

#[test]
fn invalid_json_lists_fail_with_line_and_column() {
    let flow = r#"digraph { graph [on_failure=stop]; start -> list -> each -> work -> join -> exit
        list [shape=parallelogram, script="printf '[NaN, 1]'"]
        each [shape=component, for_each="command.output"]
        work [shape=parallelogram, script="echo {{ context.item }}"]; join [shape=tripleoctagon] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    let shown = project.run(&["run", "flow.fabro"]);
    let place = "holds invalid JSON at line 1, column 2 (expected value)";
    assert!(shown.starts_with("exit 1") && shown.contains(place), "{shown}");
}

#[test]
fn runs_with_values_too_large_to_read_are_replayed() {
    let flow = r#"digraph { start -> list -> note -> exit
        list [shape=parallelogram, script="head -c 17000000 /dev/zero | tr '\\0' x"]
        note [shape=parallelogram, script="echo noted"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    assert_snapshot!(project.run(&["replay", "latest"]), @r"
    exit 0
    ── stdout
    ✓ the same: 12 events
    ");
}
