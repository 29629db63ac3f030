//! Stores that earlier versions wrote (`fixtures/stores`, one directory a format) are listed,
//! inspected, replayed and resumed to the end.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::project::Project;

const MODEL: &str = r#"{"*": [{"text": "Done."}]}"#;

fn formats() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/stores");
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Does `check` in a project for this store of every format.
fn each_format(name: &str, check: impl Fn(&Project)) {
    for format in formats() {
        let project = Project::with(&[("model.json", MODEL)]);
        let archive = format.join(format!("{name}.tar.gz"));
        let state = project.path().join(".fabro/state");
        std::fs::create_dir_all(&state).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(archive).arg("-C").arg(&state).arg("--strip-components=1");
        assert!(tar.status().unwrap().success());
        check(&project);
    }
}

/// The statuses that `ps -a` lists, newest run first; every run is read by all reading commands.
#[track_caller]
fn statuses(project: &Project) -> String {
    let runs = project.json(&["ps", "-a", "--json"]);
    let mut statuses = Vec::new();
    for run in runs.as_array().unwrap() {
        let id = run["id"].as_str().unwrap();
        project.json(&["inspect", id, "--json"]);
        assert_replays(project, id);
        let events = project.output(&["events", id, "--json"]);
        assert!(events.status.success() && !events.stdout.is_empty());
        statuses.push(run["status"].as_str().unwrap().to_owned());
    }
    statuses.join(" ")
}

/// A run replays but for its prompts: later versions cut less out of preambles.
#[track_caller]
fn assert_replays(project: &Project, id: &str) {
    let output = project.output(&["replay", id, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["unanswered"], serde_json::json!([]), "{id}");
    for difference in report["differences"].as_array().unwrap() {
        assert_eq!(difference["aspect"], "prompt", "{difference}");
    }
}

/// The statuses before and after each run that can be resumed is resumed.
#[track_caller]
fn check(name: &str, before: &str, after: &str) {
    each_format(name, |project| {
        assert_eq!(statuses(project), before);
        for run in project.json(&["ps", "--json"]).as_array().unwrap() {
            if matches!(run["status"].as_str(), Some("interrupted" | "paused")) {
                let id = run["id"].as_str().unwrap();
                let resumed = project.run(&["resume", id, "--model-script", "model.json"]);
                assert!(resumed.starts_with("exit 0"), "{resumed}");
            }
        }
        assert_eq!(statuses(project), after);
    });
}

#[test]
fn a_finished_run_can_be_read() {
    check("finished", "succeeded", "succeeded");
    each_format("finished", |project| {
        let output = project.json(&["inspect", "latest", "large", "--json"])["response"].clone();
        assert_eq!(output.as_str().unwrap(), "x".repeat(70_000), "a blob that is a file");
    });
}

#[test]
fn a_run_that_waits_at_a_gate_is_answered_and_resumed() {
    each_format("paused", |project| {
        assert_eq!(statuses(project), "paused");
        assert_eq!(project.exit(&["answer", "--no-resume", "latest", "Y"]), 0);
        assert_eq!(project.exit(&["resume", "latest"]), 0);
        assert_eq!(statuses(project), "succeeded");
    });
}

#[test]
fn a_run_killed_in_a_conversation_is_resumed() {
    check("agent", "interrupted", "succeeded");
}

#[test]
fn a_run_killed_in_a_fan_out_is_resumed() {
    check("fan_out", "interrupted", "succeeded");
}

#[test]
fn a_run_killed_in_a_sub_workflow_is_resumed() {
    check("child", "interrupted interrupted", "succeeded succeeded");
}

#[test]
fn a_fork_and_a_rewound_run_are_resumed() {
    check("forked", "interrupted interrupted", "succeeded succeeded");
}
