//! What a run.toml names: `validate` finds what `run` would refuse, and where.

use insta::assert_snapshot;

use crate::project::Project;

const COMMAND: &str = "digraph w { start -> a -> exit; a [shape=parallelogram, script=true] }";

/// A run.toml with these lines, beside a workflow and two files.
fn project(lines: &str) -> Project {
    let toml = format!("_version = 1\n[workflow]\ngraph = \"w.fabro\"\n{lines}\n");
    Project::with(&[
        ("conf/run.toml", &toml),
        ("conf/w.fabro", COMMAND),
        ("conf/bad.json", "{\"a\": 3}"),
        ("conf/goal.md", "Fix it,\nas {{ inputs.who }} says\n"),
    ])
}

/// What both say about it: the findings, and the ends of `validate` and of `run`.
#[track_caller]
fn shown(lines: &str) -> String {
    let project = project(lines);
    let checked = project.run(&["validate", "conf/run.toml"]);
    let run = project.run(&["run", "conf/run.toml"]);
    let findings = |text: &str| {
        let from = text.find("error[").unwrap_or_else(|| panic!("{text}"));
        let to = text.rfind("\n\n").unwrap();
        text[from..to].to_owned()
    };
    assert_eq!(findings(&checked), findings(&run));
    assert!(checked.starts_with("exit 2\n") && run.starts_with("exit 2\n"), "{checked}{run}");
    assert!(!project.path().join(".fabro").exists(), "a run was created");
    findings(&checked)
}

#[test]
fn a_goal_is_looked_at() {
    assert_snapshot!(shown("[run]\ngoal = \"@no.md\""), @r#"
    error[setting-value]: `run.goal` names the file `no.md`: no such file
     --> conf/run.toml:5:8
      |
    5 | goal = "@no.md"
      |        ^^^^^^^^
      |
      = help: create the file, correct the path, which is relative to this file, or write @@ for text that begins with @
    "#);
    assert_snapshot!(shown("[run]\ngoal = \"@goal.md\""), @r#"
    error[setting-value]: goal.md, line 2: the input `who` is not given
     --> conf/run.toml:5:8
      |
    5 | goal = "@goal.md"
      |        ^^^^^^^^^^
      |
      = help: set `who` under [run.inputs], or as an input of the run
    "#);
    assert_snapshot!(shown("[run]\ngoal = \"Fix {{ inputs.q }}\""), @r#"
    error[setting-value]: the input `q` is not given
     --> conf/run.toml:5:16
      |
    5 | goal = "Fix {{ inputs.q }}"
      |                ^^^^^^^^
      |
      = help: set `q` under [run.inputs], or as an input of the run
    "#);
    assert_snapshot!(shown("[run]\ngoal = \"Fix {{ inputs.q\""), @r#"
    error[setting-value]: `{{` is not closed
     --> conf/run.toml:5:13
      |
    5 | goal = "Fix {{ inputs.q"
      |             ^^
      |
      = help: add `}}`
    "#);
    assert_snapshot!(shown("[run]\ngoal = \"Print {{ goal }} here\""), @r#"
    error[setting-value]: a goal cannot read `goal`, which is itself
     --> conf/run.toml:5:18
      |
    5 | goal = "Print {{ goal }} here"
      |                  ^^^^
      |
      = help: write the text, or read an input: {{ inputs.NAME }}
    "#);
}

#[test]
fn a_model_script_is_looked_at() {
    assert_snapshot!(shown("[run.model]\nscript = \"no.json\""), @r#"
    error[setting-value]: `run.model.script` names the file `no.json`: no such file
     --> conf/run.toml:5:10
      |
    5 | script = "no.json"
      |          ^^^^^^^^^
      |
      = help: create the file, or correct the path, which is relative to this file
    "#);
    assert_snapshot!(shown("[run.model]\nscript = \"bad.json\""), @r#"
    error[setting-value]: `run.model.script` names `bad.json`, which is not a model script: line 1, column 7: invalid type: integer `3`, expected a list of turns, as [{"text": "…"}]
     --> conf/run.toml:5:10
      |
    5 | script = "bad.json"
      |          ^^^^^^^^^^
      |
      = help: fix that file
    "#);
}

#[test]
fn findings_are_data_too() {
    let project = project("[run]\ngoal = \"Fix {{ inputs.q }}\"");
    let output = project.output(&["validate", "--json", "conf/run.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = &report["files"][1];
    assert_eq!((&findings["file"], &findings["valid"]), (&"conf/run.toml".into(), &false.into()));
    assert_snapshot!(findings["findings"][0], @r#"{"rule":"setting-value","severity":"error","message":"the input `q` is not given","line":5,"column":16,"end_line":5,"end_column":24,"fix":"set `q` under [run.inputs], or as an input of the run"}"#);
}

#[test]
fn what_the_command_line_gives_is_not_asked_of_the_file() {
    let project = project("[run]\ngoal = \"Fix {{ inputs.q }}\"");
    assert_eq!(project.exit(&["run", "conf/run.toml", "-I", "q=1"]), 0);
    assert_eq!(project.exit(&["run", "conf/run.toml", "--goal", "Another"]), 0);
}

#[test]
fn a_goal_of_the_command_line_is_told_what_is_wrong_with_it() {
    let project = Project::with(&[("w.fabro", COMMAND)]);
    let run = |goal: &str| project.run(&["run", "w.fabro", "--goal", goal]);
    assert_snapshot!(run("Fix {{ inputs.q }}"), @r"
    exit 2
    ── stderr
    error: the goal cannot be rendered: the input `q` is not given
      help: set `q` under [run.inputs], or as an input of the run
    ");
    assert_snapshot!(run("Fix {{ inputs.q"), @r"
    exit 2
    ── stderr
    error: the goal cannot be rendered: `{{` is not closed
      help: add `}}`
    ");
    assert_snapshot!(run("Print {{ goal }}"), @r"
    exit 2
    ── stderr
    error: the goal cannot be rendered: a goal cannot read `goal`, which is itself
      help: write the text, or read an input: {{ inputs.NAME }}
    ");
    assert_eq!(project.exit(&["run", "w.fabro", "--goal", "Print $goal here"]), 0);
    let report = project.json(&["inspect", "latest", "--json"]);
    assert_eq!(report["goal"], "Print $goal here");
}
