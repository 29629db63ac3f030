//! What `run` warns of before the first stage.

use std::fmt::Write as _;

use insta::assert_snapshot;

use crate::project::{Project, filters};

#[test]
fn warnings_of_the_workflow_are_shown_before_it_runs() {
    let _filters = filters().bind_to_scope();
    let mut many = "digraph many { start -> exit\n".to_owned();
    for node in 0..14 {
        let _ = writeln!(many, "  n{node} [shape=parallelogram, script=true]");
    }
    many.push('}');
    let project = Project::with(&[
        (
            "one.fabro",
            "digraph one {\n  start -> work -> exit\n  work [shape=parallelogram, script=\"cd .\", promt=\"Do it\"]\n}",
        ),
        ("flows/many.fabro", &many),
    ]);
    assert_snapshot!(project.run(&["run", "one.fabro"]), @r#"
    exit 0
    ── stderr
    one.fabro:2:12: warning[unhandled-failure]: when `work` fails, the run continues and ends partially_succeeded (add an edge for it: work -> … [condition="outcome=failed"]; or on_failure="stop" or "continue" for the node or the graph)
    one.fabro:3:45: warning[misspelled-attribute]: `promt` is not an attribute of nodes (did you mean `prompt`?)
    run [ID] · fabro logs [ID] -f
    ✓ work [T]  → exit

    stage  visits  status time  tokens
    work        1  succeeded [T]
    succeeded in [T], 1 stage
    "#);
    let text = project.run(&["run", "flows/many.fabro"]);
    assert_snapshot!(text.lines().skip(8).take(6).collect::<Vec<_>>().join("\n"), @r"
    flows/many.fabro:8:3: warning[unreachable-node]: no path leads from the start to `n6` (add an edge to it, or remove it)
    flows/many.fabro:9:3: warning[unreachable-node]: no path leads from the start to `n7` (add an edge to it, or remove it)
    flows/many.fabro:10:3: warning[unreachable-node]: no path leads from the start to `n8` (add an edge to it, or remove it)
    flows/many.fabro:11:3: warning[unreachable-node]: no path leads from the start to `n9` (add an edge to it, or remove it)
    … and 4 more: fabro validate flows/many.fabro
    run [ID] · fabro logs [ID] -f
    ");
    assert_snapshot!(project.run(&["run", "one.fabro", "--quiet"]), @"exit 0");
    let json = project.output(&["run", "one.fabro", "--json"]);
    assert!(json.stderr.is_empty());
}

#[test]
fn inputs_that_nothing_reads_are_warned_of() {
    let project = Project::with(&[
        (
            "flow.fabro",
            r#"digraph flow { start -> a
            a [shape=parallelogram, script="echo {{ inputs.branch | default('main') }} {{ inputs.repo.name }}"]
            a -> exit [condition="outcome=success"]; a -> over [condition="outcome=fail"]; over [shape=Msquare, status=failed] }"#,
        ),
        (
            "run.toml",
            "_version = 1\n[workflow]\ngraph = \"flow.fabro\"\n[run]\ngoal = \"Fix {{ inputs.issue }}\"\n[run.inputs]\nissue = 7\nrepo = { name = \"demo\" }\ndepth = 1\n",
        ),
    ]);
    let warnings = |args: &[&str]| {
        let output = project.output(args);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().filter(|line| line.contains("warning")).collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(warnings(&["run", "run.toml", "-I", "brnch=dev"]), @r"
    warning: nothing reads the input `depth`: the workflow reads branch, issue, repo.name
    warning: nothing reads the input `brnch`: did you mean `branch`?
    ");
    assert_snapshot!(warnings(&["run", "run.toml", "--quiet"]), @"");
    let findings = project.json(&["validate", "run.toml", "--json"]);
    let finding = &findings["files"][1]["findings"][0];
    assert_eq!(finding["rule"], "unread-input");
    assert_eq!(finding["message"], "nothing reads the input `depth`");
}

#[test]
fn validate_warns_of_inputs_of_its_command_line() {
    let child =
        "digraph { start -> a -> exit; a [script=\"echo {{ inputs.depth | default(1) }}\"] }";
    let parent = r#"digraph { start -> sub -> exit
        sub [shape=house, stack.child_workflow="child.fabro", on_failure=stop]
        start -> a -> exit; a [shape=tab, prompt="{{ inputs.n }}"] }"#;
    let project = Project::with(&[
        ("child.fabro", child),
        ("parent.fabro", parent),
        ("run.toml", "_version = 1\n[workflow]\ngraph = \"parent.fabro\"\n[run.inputs]\nnn = 1\n"),
        ("broken.fabro", "digraph {"),
    ]);
    let unread = |args: &[&str]| {
        let output = project.output(&[&["validate", "--json"], args].concat());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let files = report["files"].as_array().unwrap().iter();
        let findings = files.flat_map(|file| {
            let all = file["findings"].as_array().unwrap().iter();
            let unread = all.filter(|it| it["rule"] == "unread-input");
            unread.map(|it| format!("{} {} ({})", file["file"], it["message"], it["fix"]))
        });
        findings.collect::<Vec<_>>().join("\n").replace('"', "")
    };
    assert_snapshot!(unread(&["parent.fabro", "-I", "n=1", "-I", "nn=2", "-I", "depth=3"]), @"parent.fabro nothing reads the input `nn` (the workflow reads depth, n)");
    assert_snapshot!(unread(&["parent.fabro", "child.fabro", "-I", "dept=2"]), @"parent.fabro nothing reads the input `dept` (did you mean `depth`?)");
    // The run.toml names the input: one warning, at that place.
    assert_snapshot!(unread(&["run.toml", "-I", "nn=2"]), @"run.toml nothing reads the input `nn` (the workflow reads depth, n)");
    // An input may be for a workflow that cannot be read.
    assert_eq!(unread(&["child.fabro", "broken.fabro", "-I", "nn=2"]), "");
    assert_eq!(unread(&["child.fabro", "gone.fabro", "-I", "nn=2"]), "");
}

#[test]
fn models_that_nothing_knows_are_warned_of() {
    let source = "digraph flow { start -> a -> exit; a [prompt=x, model=\"gtp-5\"] }";
    let project = Project::with(&[("flow.fabro", source)]);
    let findings = project.json(&["validate", "flow.fabro", "--json"]);
    let finding = &findings["files"][0]["findings"][0];
    assert_eq!(finding["rule"], "unknown-model");
    assert_eq!(finding["fix"], "did you mean `gpt-5`?");
}

#[test]
fn servers_that_no_agent_may_use_are_named() {
    let settings = "_version = 1\n[run.agent.mcp.search]\ncommand = \"true\"\n";
    let first = |node: &str| {
        let source = format!("digraph {{ start -> work -> exit; work [{node}] }}");
        let files = [
            (".fabro/config.toml", settings),
            ("flow.fabro", &source),
            ("model.json", r#"{"*": [{"text": "done"}]}"#),
        ];
        let project = Project::with(&files);
        let output = project.output(&["run", "flow.fabro", "--model-script", "model.json"]);
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert_snapshot!(first("prompt=\"Do it\""), @"warning: no agent of the workflow may use the MCP server `search` (permissions=full allows it)");
    let is_named = |node| first(node).contains("search");
    assert!(!is_named("shape=tab, prompt=\"Do it\""), "it has no tools");
    assert!(!is_named("prompt=\"Do it\", permissions=full"));
}

/// A loop that asks a model and has no limit continues, and says so at the 10th, 20th, 40th … visit.
#[test]
fn loops_without_a_limit_are_said_while_they_run() {
    let flow = |limit: &str| {
        format!(
            "digraph l {{ graph [{limit}]; start -> ask; ask -> exit [condition=\"last_response contains DONE\"]; ask -> ask; ask [shape=tab, prompt=x] }}"
        )
    };
    let mut turns = vec!["{\"text\": \"no\"}"; 20];
    turns.push("{\"text\": \"DONE\"}");
    let script = format!("{{\"ask\": [{}]}}", turns.join(","));
    let project = Project::with(&[
        ("free.fabro", &flow("")),
        ("visits.fabro", &flow("max_node_visits=30")),
        ("meant.fabro", &flow("max_node_visits=0")),
        ("cost.fabro", &flow("max_cost=5")),
        ("m.json", &script),
    ]);
    let said = |file: &str| {
        let text = project.run(&["run", file, "--model-script", "m.json"]);
        assert!(text.contains("succeeded in"), "{text}");
        let lines = text.lines().filter(|line| line.contains("no limit"));
        lines.map(str::trim).collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(said("free.fabro"), @r"
    ! ask is entered 10 times now, and no limit is set: max_visits=N on the node, or max_cost=DOLLARS on the graph
    ! ask is entered 20 times now, and no limit is set: max_visits=N on the node, or max_cost=DOLLARS on the graph
    ");
    for file in ["visits.fabro", "meant.fabro", "cost.fabro"] {
        assert_eq!(said(file), "", "{file}");
    }
}
