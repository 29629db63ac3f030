//! What the stages of a run wrote: `fabro logs`, after the end and while the run is running.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use insta::assert_snapshot;

use crate::project::{Project, filters};

const NOISY: &str = r#"digraph noisy { start -> shout; shout -> say [condition="outcome=failed"]; shout -> exit
    shout [shape=parallelogram, retry_policy=linear, max_retries=1
        script="echo one; echo; printf 'two\\033[31m\\rthree'; echo wrong $FABRO_ATTEMPT >&2; exit 3"]
    say [shape=tab, prompt="Say it"]; say -> exit }"#;

const FAMILY: &str = r#"digraph family { start -> sub -> checks; checks [shape=component]
    sub [shape=house, stack.child_workflow="child.fabro"]
    checks -> lint -> join; checks -> unit -> join; join [shape=tripleoctagon]; join -> exit
    lint [shape=parallelogram, script="echo linted"]; unit [shape=parallelogram, script="echo tested"] }"#;

const CHILD: &str = r#"digraph child { start -> inner -> exit
    inner [shape=parallelogram, script="echo inside; echo aside >&2"] }"#;

fn noisy() -> Project {
    let project = Project::with(&[
        ("noisy.fabro", NOISY),
        (
            "noisy.toml",
            "_version = 1\n[workflow]\ngraph = \"noisy.fabro\"\n[run.model]\nscript = \"model.json\"\n",
        ),
        ("model.json", r#"{"say": [{"text": "Hello,\nworld!"}]}"#),
    ]);
    assert_eq!(project.exit(&["run", "noisy.toml"]), 0);
    project
}

#[test]
fn commands_and_models_are_shown_in_order() {
    let project = noisy();
    assert_snapshot!(project.run(&["logs", "latest"]), @r#"
    exit 0
    ── stdout
    ── shout@1
    one

    three
    stderr | wrong 1
    ! attempt 1 failed: exit code 3: wrong 1
    one

    three
    stderr | wrong 2
    ! failed: exit code 3: wrong 2

    ── say@1
    Hello,
    world!
    "#);
    assert_snapshot!(project.run(&["logs", "latest", "say"]), @r#"
    exit 0
    ── stdout
    ── say@1
    Hello,
    world!
    "#);
    assert_snapshot!(project.run(&["logs", "latest", "shout@1", "--tail", "3"]), @r#"
    exit 0
    ── stdout
    ── shout@1
    three
    stderr | wrong 2
    ! failed: exit code 3: wrong 2
    "#);
    assert_snapshot!(project.run(&["logs", "latest", "shout", "--tail", "2", "--json"]), @r#"
    exit 0
    ── stdout
    {"stage":"shout@1","stream":"stderr","line":2,"text":"wrong 2"}
    {"stage":"shout@1","stream":"note","line":2,"text":"failed: exit code 3: wrong 2"}
    "#);
    assert_snapshot!(project.run(&["logs", "latest", "-f", "--tail", "0"]), @"exit 0");
    assert_snapshot!(project.run(&["logs", "latest", "shuot"]), @r#"
    exit 2
    ── stderr
    error: the run has no stage `shuot`; it has entered start, shout, say, exit
    "#);
}

#[test]
fn without_the_files_of_a_run_the_store_has_its_last_attempts() {
    let project = noisy();
    std::fs::remove_dir_all(project.path().join(".fabro/state/runs")).unwrap();
    assert_snapshot!(project.run(&["logs"]), @r#"
    exit 0
    ── stdout
    ── shout@1
    ! attempt 1 failed: exit code 3: wrong 1
    one

    three
    stderr | wrong 2
    ! failed: exit code 3: wrong 2

    ── say@1
    Hello,
    world!
    "#);
}

#[test]
fn sub_workflows_and_branches_have_headers_of_their_own() {
    let project = Project::with(&[("family.fabro", FAMILY), ("child.fabro", CHILD)]);
    assert_eq!(project.exit(&["run", "family.fabro"]), 0);
    let text = project.run(&["logs", "latest"]);
    let mut blocks: Vec<&str> = text.split("\n\n").map(str::trim_end).collect();
    // The branches run at the same time.
    blocks[1..].sort_unstable();
    assert_snapshot!(blocks.join("\n\n"), @r#"
    exit 0
    ── stdout
    ── sub@1 › inner@1
    inside
    stderr | aside

    ── checks@1/lint/lint@1
    linted

    ── checks@1/unit/unit@1
    tested
    "#);
    let sub = project.run(&["logs", "latest", "sub"]);
    assert_eq!(project.run(&["logs", "latest", "inner"]), sub, "{sub}");
    assert_snapshot!(sub, @r#"
    exit 0
    ── stdout
    ── sub@1 › inner@1
    inside
    stderr | aside
    "#);
    assert_snapshot!(project.run(&["logs", "latest", "checks@1/unit/unit@1"]), @r#"
    exit 0
    ── stdout
    ── checks@1/unit/unit@1
    tested
    "#);
}

/// Started in the background, with its standard output to read.
fn start(project: &Project, args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = project.command(args).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// Reads until a line says this.
fn read_until(lines: &mut impl std::io::BufRead, wanted: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(&format!("{wanted}\n")) {
        assert!(lines.read_line(&mut text).unwrap() > 0, "{wanted} never came: {text}");
    }
    text
}

#[test]
fn a_run_is_followed_while_its_commands_run() {
    let _filters = filters().bind_to_scope();
    // A command waits for what the test does after it has read the output: a fifo blocks both sides.
    let slow = r#"digraph slow { start -> wait -> sub -> exit; sub [shape=house, stack.child_workflow="child.fabro"]
        wait [shape=parallelogram, script="echo begin; cat go; printf end"] }"#;
    let child = r#"digraph child { start -> inner -> exit
        inner [shape=parallelogram, script="echo inside; cat go"] }"#;
    let project = Project::with(&[("slow.fabro", slow), ("child.fabro", child)]);
    let fifo = std::process::Command::new("mkfifo").arg(project.path().join("go")).status();
    assert!(fifo.unwrap().success());
    let (mut run, mut events) = start(&project, &["run", "slow.fabro", "--json"]);
    let mut line = String::new();
    while !line.contains(r#""node_id":"wait""#) {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the stage never started");
    }
    let (mut logs, mut lines) = start(&project, &["logs", "latest", "-f"]);
    let (mut inner, mut inner_lines) = start(&project, &["logs", "latest", "inner", "-f"]);
    let mut wrong = project.command(&["logs", "latest", "nowhere", "-f"]);
    let wrong = wrong.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = read_until(&mut lines, "begin");
    project.write("go", b"first\n");
    text.push_str(&read_until(&mut lines, "inside"));
    project.write("go", b"second\n");
    text.push_str(&read_until(&mut lines, "second"));
    std::io::Read::read_to_string(&mut lines, &mut text).unwrap();
    assert_snapshot!(text, @r#"
    ── wait@1
    begin
    first
    end

    ── sub@1 › inner@1
    inside
    second
    "#);
    assert_snapshot!(std::io::read_to_string(&mut inner_lines).unwrap(), @r#"
    ── sub@1 › inner@1
    inside
    second
    "#);
    drop(events);
    let wrong = wrong.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(shown.contains("the run has no stage `nowhere`"), "{shown}");
    assert_eq!(wrong.status.code(), Some(2));
    for child in [&mut run, &mut logs, &mut inner] {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
