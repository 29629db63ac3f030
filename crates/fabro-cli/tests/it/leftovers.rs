//! What an agent leaves running has ended before the next stage starts.
#![cfg(target_os = "linux")]

use serde_json::json;

use crate::project::Project;

/// Ignores SIGTERM in a session of its own, and has started when the command returns.
const LEAVE: &str = "setsid -f bash -c 'trap \"\" TERM; echo $$ > new; mv new pid; while :; do sleep 0.1; done' > /dev/null 2>&1; until test -s pid; do sleep 0.01; done";

fn project(attributes: &str, command: &str) -> Project {
    let flow = format!(
        "digraph Leave {{ graph [on_failure=continue]; start -> work -> look -> exit
        work [prompt=\"Work.\", permissions=full{attributes}]
        look [shape=parallelogram, script=\"kill -0 $(cat pid) && echo alive || echo ended\"] }}"
    );
    let script = json!({"work": [
        {"text": "", "tool_calls": [{"name": "shell", "arguments": {"command": command}}]},
        {"text": "done"},
    ]});
    Project::with(&[("w.fabro", &flow), ("m.json", &script.to_string())])
}

#[track_caller]
fn check(project: &Project) {
    let output = project.output(&["run", "w.fabro", "--model-script", "m.json"]);
    let logs = project.output(&["logs", "latest", "look"]).stdout;
    let logs = String::from_utf8_lossy(&logs).into_owned();
    assert!(logs.contains("ended") && !logs.contains("alive"), "{logs}{output:?}");
}

#[test]
fn it_ends_with_its_stage() {
    check(&project("", LEAVE));
}

#[test]
fn it_ends_when_its_stage_is_out_of_time() {
    check(&project(", timeout=3s, max_retries=0", &format!("{LEAVE}; sleep 600")));
}
