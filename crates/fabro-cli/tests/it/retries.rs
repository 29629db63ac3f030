//! End-to-end tests of `fabro retry`, `max_time` and `concurrency`.

use std::process::Stdio;

use crate::project::Project;

/// Each element of the list writes a line, and fails as long as there is no file `ok`; the last stage counts the lines.
const LIST: &str = r#"digraph list {
    start -> make -> each -> work -> join -> count -> exit
    make [script="printf 'one\\ntwo\\nthree\\n'"]
    each [shape=component, for_each="command.output", on_failure=stop]
    work [shape=parallelogram, script="echo {{ context.item }} >> ran; test {{ context.item }} != two -o -e ok"]
    join [shape=tripleoctagon]
    count [shape=parallelogram, script="sort ran | tr '\\n' ' '"]
    make [shape=parallelogram] count [on_failure=stop]
}"#;

#[test]
fn only_failed_elements_run_again() {
    let project = Project::with(&[("list.fabro", LIST)]);
    assert_eq!(project.exit(&["run", "list.fabro", "--quiet"]), 1);
    let told = project.run(&["inspect", "latest"]);
    assert!(told.contains("failed"), "{told}");
    std::fs::write(project.path().join("ok"), "").unwrap();
    let told = project.run(&["retry", "latest"]);
    assert!(told.starts_with("exit 0"), "{told}");
    assert!(
        told.contains(
            "retrying, with the workflow and the settings of this run: each@1/work[1]/work@1\n"
        ),
        "{told}"
    );
    let context = project.json(&["context", "latest", "--json"]);
    let ran = std::fs::read_to_string(project.path().join("ran")).unwrap();
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["one", "three", "two", "two"]);
    assert_eq!(context["parallel.results"].as_array().unwrap().len(), 3);
    // Nothing is left to retry.
    assert_eq!(project.exit(&["retry", "latest"]), 2);
    assert_eq!(project.exit(&["verify"]), 0);
}

#[test]
fn a_retry_of_a_paused_run_says_that_it_only_continues_it() {
    let flow = r#"digraph {
        start -> f; f [shape=component]; f -> boom -> join; f -> ask -> join
        boom [shape=parallelogram, script="exit 3"]
        ask [shape=hexagon]; ask -> join [label="[Y] Yes"]; join [shape=tripleoctagon]; join -> exit
    }"#;
    let project = Project::with(&[("w.fabro", flow)]);
    assert_eq!(project.exit(&["run", "w.fabro", "-q"]), 3);
    let told = project.run(&["retry", "latest"]);
    assert!(told.starts_with("exit 3\n"), "{told}");
    let says = "has not ended, so it continues where it was and repeats no failure. Once it has ended: fabro retry 01";
    assert!(told.contains(says), "{told}");
}

#[test]
fn a_retry_goes_into_sub_workflows() {
    let child = r#"digraph { start -> a -> b -> exit; a [shape=parallelogram, script="echo a >> ran"]
        b [shape=parallelogram, script="echo b >> ran; test -e ok", on_failure=stop] }"#;
    let parent = r#"digraph { start -> sub -> last -> exit; sub [shape=house, stack.child_workflow="child.fabro", on_failure=stop]
        last [shape=parallelogram, script="echo last >> ran"] }"#;
    let project = Project::with(&[("parent.fabro", parent), ("child.fabro", child)]);
    assert_eq!(project.exit(&["run", "parent.fabro", "--quiet"]), 1);
    std::fs::write(project.path().join("ok"), "").unwrap();
    let told = project.run(&["retry", "latest"]);
    assert!(told.starts_with("exit 0"), "{told}");
    assert!(
        told.contains("retrying, with the workflow and the settings of this run: sub@1/b@1\n"),
        "{told}"
    );
    let ran = std::fs::read_to_string(project.path().join("ran")).unwrap();
    assert_eq!(ran, "a\nb\nb\nlast\n");
}

#[test]
fn max_time_fails_a_run_and_retry_continues_it() {
    let workflow = "digraph slow { start -> w -> exit; w [shape=insulator, duration=3s] }";
    let project = Project::with(&[
        ("slow.fabro", workflow),
        (".fabro/config.toml", "_version = 1\n[run]\nmax_time = \"1s\"\n"),
    ]);
    let told = project.run(&["run", "slow.fabro"]);
    assert!(told.starts_with("exit 1"), "{told}");
    assert!(told.contains("the run reached its max_time (1s)"), "{told}");
}

const LOCKED: &str = "_version = 1\n[run]\nconcurrency = { on_busy = \"ON_BUSY\" }\n";

const WAITS: &str = r#"digraph job { start -> w -> exit
    w [shape=parallelogram, script="touch started; while ! test -e go; do sleep 0.05; done"] }"#;

/// A run that is being driven, and the project.
fn busy(on_busy: &str) -> (Project, std::process::Child) {
    let settings = LOCKED.replace("ON_BUSY", on_busy);
    let project = Project::with(&[("job.fabro", WAITS), (".fabro/config.toml", &settings)]);
    let mut command = project.command(&["run", "job.fabro", "--quiet"]);
    let first = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !project.path().join("started").exists() {
        std::thread::yield_now();
    }
    (project, first)
}

#[test]
fn a_second_run_is_skipped() {
    let (project, mut first) = busy("skip");
    let told = project.run(&["run", "job.fabro"]);
    assert!(told.starts_with("exit 0"), "{told}");
    assert!(told.contains("with the key `job` is running"), "{told}");
    std::fs::write(project.path().join("go"), "").unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(project.exit(&["run", "job.fabro", "--quiet"]), 0);
    assert_eq!(project.json(&["ps", "--json"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_killed_run_leaves_no_lock() {
    let (project, mut first) = busy("skip");
    first.kill().unwrap();
    first.wait().unwrap();
    std::fs::write(project.path().join("go"), "").unwrap();
    let told = project.run(&["run", "job.fabro"]);
    assert!(!told.contains("with the key"), "{told}");
    assert_eq!(project.json(&["ps", "--json"])[0]["status"], "succeeded");
}

#[test]
fn a_second_run_waits() {
    let (project, mut first) = busy("queue");
    let mut command = project.command(&["run", "job.fabro"]);
    let second = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while project.json(&["ps", "--json"]).as_array().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    std::fs::write(project.path().join("go"), "").unwrap();
    assert!(first.wait().unwrap().success());
    let ended = second.wait_with_output().unwrap();
    assert!(ended.status.success());
    let runs = project.json(&["ps", "--json"]);
    assert!(runs.as_array().unwrap().iter().all(|run| run["status"] == "succeeded"), "{runs}");
}

#[test]
fn a_second_run_cancels_the_first() {
    let (project, mut first) = busy("cancel");
    let mut command = project.command(&["run", "job.fabro", "--quiet"]);
    let mut second = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(1));
    std::fs::write(project.path().join("go"), "").unwrap();
    assert!(second.wait().unwrap().success());
    let runs = project.json(&["ps", "--json"]);
    assert_eq!((&runs[0]["status"], &runs[1]["status"]), (&"succeeded".into(), &"canceled".into()));
}
