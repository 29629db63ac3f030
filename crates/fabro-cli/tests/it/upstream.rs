//! Projects of upstream Fabro: what is understood, and what is named as lost.

use insta::assert_snapshot;

use crate::project::Project;

const PROJECT: &str = r#"_version = 1
[project]
name = "demo"
directory = "flows"
[run]
goal = "Ship {{ inputs.what }}"
[run.inputs]
what = "it"
[run.sandbox.env]
FROM = "{{ env.HOME }}"
[[run.prepare.steps]]
script = "echo prepared > prepared"
"#;
const LOST: &str = "[run.pull_request]\nenabled = true\n[[run.hooks]]\nevent = \"run_complete\"\nscript = \"./tell.sh\"\n";
const WORKFLOW: &str = "digraph W { start -> a -> exit [condition=\"outcome=success\"]; a [shape=parallelogram, script=\"echo {{ goal }} $FROM; cat prepared\"] }";

#[test]
fn a_project_file_sets_what_its_runs_start_with() {
    let project = Project::with(&[
        (".fabro/project.toml", PROJECT),
        ("flows/workflows/ship/workflow.toml", "_version = 1\n[run.inputs]\nwhat = \"that\"\n"),
        ("flows/workflows/ship/workflow.fabro", WORKFLOW),
    ]);
    assert_eq!(project.exit(&["run", "ship"]), 0);
    let context = project.json(&["context", "latest", "--json"]);
    let output = context["command.output"].as_str().unwrap();
    assert_eq!(output, format!("Ship that {}\nprepared", project.path().display()));
    assert_snapshot!(project.run(&["validate", "ship"]), @"");
    assert_snapshot!(project.run(&["doctor", "--from-upstream"]), @"");
}

#[test]
fn what_is_lost_is_named_by_run_validate_and_doctor() {
    let project = Project::with(&[
        (".fabro/project.toml", &format!("{PROJECT}{LOST}")),
        ("w.fabro", WORKFLOW),
    ]);
    assert_snapshot!(project.run(&["validate", "w.fabro"]), @"");
    let run = project.run(&["run", "w.fabro", "--quiet"]);
    assert_snapshot!(run.replace(&project.path().display().to_string(), "DIR"), @"");
    assert_snapshot!(project.run(&["doctor", "--from-upstream", "."]), @"");
    let output = project.output(&["doctor", "--from-upstream", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lost"], 2);
    assert_snapshot!(report["files"][0]["lost"][0], @"");
    assert_snapshot!(report["files"][0]["without_effect"][0], @"");
}

#[test]
fn nothing_runs_without_the_isolation_it_asks_for() {
    for provider in ["docker", "daytona"] {
        let sandbox = format!("[run.sandbox]\nprovider = \"{provider}\"\n");
        for (file, text) in [
            (".fabro/project.toml", format!("_version = 1\n{sandbox}")),
            ("fabro.toml", format!("version = 1\n{}", sandbox.replace("run.", ""))),
            ("run.toml", format!("_version = 1\nworkflow.graph = \"w.fabro\"\n{sandbox}")),
        ] {
            let touch = "digraph W { start -> a -> exit; a [shape=parallelogram, script=\"touch ran\"] }";
            let project = Project::with(&[(file, &text), ("w.fabro", touch)]);
            let wanted = if file == "run.toml" { file } else { "w.fabro" };
            assert_eq!(project.exit(&["run", wanted]), 2, "{file} {provider}");
            assert_eq!(project.exit(&["validate", wanted]), 2, "{file} {provider}");
            assert_eq!(project.exit(&["doctor", "--from-upstream"]), 1, "{file} {provider}");
            assert!(!project.path().join("ran").exists(), "{file} {provider}");
        }
    }
}

#[test]
fn a_directory_without_a_project_is_refused() {
    let project = Project::with(&[("notes.toml", "a = 1\n")]);
    assert_snapshot!(project.run(&["doctor", "--from-upstream"]), @"");
    assert_snapshot!(project.run(&["doctor", "--from-upstream", "notes.toml"]), @"");
}
