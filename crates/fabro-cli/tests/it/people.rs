//! What people do to runs: answer, cancel, fork, rewind, remove.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use fabro_store::{Inbox as _, Message, Runs as _, SqliteStore};
use insta::assert_snapshot;

use crate::project::{Project, filters, wait};

pub(crate) const GATE: &str = r#"digraph gate {
    start -> prepare -> review
    prepare [shape=parallelogram, script="echo ready"]
    review [shape=hexagon, label="Ship it?"]
    review -> ship [label="[Y] Yes"]
    review -> exit [label="[N] No"]
    ship [shape=parallelogram, script="echo shipped"]
    ship -> exit
}
"#;

/// A project whose run waits for an answer.
fn waiting() -> Project {
    let project = Project::with(&[("gate.fabro", GATE)]);
    assert_eq!(project.exit(&["run", "gate.fabro"]), 3);
    project
}

fn status(project: &Project) -> String {
    project.json(&["ps", "--json"])[0]["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_gate_is_answered_later() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[("gate.fabro", GATE)]);
    assert_snapshot!(project.run(&["run", "gate.fabro"]), @r"
    exit 3
    ── stderr
    run [ID] · fabro logs [ID] -f
    ✓ prepare [T]  → review
    ? review asks: Ship it? [Y] Yes [N] No

    stage    visits  status time  tokens
    prepare       1  succeeded [T]
    paused in [T], 1 stage
    ? review@1 asks: Ship it?
        │ prepare@1:
        │ ready
        [Y] Yes  → ship
        [N] No  → exit
    run [ID] is paused at review@1. Continue with: fabro answer [ID] CHOICE
    ");
    assert_eq!(status(&project), "paused");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "maybe"]), @r#"
    exit 2
    ── stderr
    error: "maybe" is not an answer: choose [Y] Yes or [N] No
      help: answer with one of these
    "#);
    assert_snapshot!(project.run(&["answer", "--no-resume", "y"]), @r"
    exit 2
    ── stderr
    error: there is no run `y`; `fabro ps` lists them
      help: name the run before the choice: `fabro answer latest y`
    ");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "other", "y"]), @r"
    exit 2
    ── stderr
    error: no gate `other` waits for an answer
      help: waiting gates (quote a text of several words):
      review@1  Ship it?
    ");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "review", "y"]), @r"
    exit 0
    ── stdout
    answered review: [Y] Yes
    continue with: fabro resume [ID]
    ");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "n"]), @r"
    exit 2
    ── stderr
    error: gate `review` (visit 1) has been answered already
      help: the run takes that answer when it continues; `fabro inspect` shows it
    ");
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "y"]), @r"
    exit 2
    ── stderr
    error: gate review@1 was already answered: [Y] Yes, by [USER] (cli)
      help: an answer counts once; `fabro rewind` takes the run back before it
    ");
    let report = project.json(&["inspect", "latest", "--json"]);
    let nodes: Vec<_> = report["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["node"].as_str().unwrap())
        .collect();
    assert_eq!(nodes, ["start", "prepare", "review", "ship", "exit"]);
}

#[test]
fn an_open_question_is_shown_with_its_run_and_its_stage() {
    let _filters = filters().bind_to_scope();
    let project = waiting();
    assert_snapshot!(project.run(&["inspect", "latest", "review"]), @r"
    exit 0
    ── stdout
    review@1 has not ended: paused, [T] so far
    started   [UTC]
    ? review@1 asks: Ship it?
        │ prepare@1:
        │ ready
        [Y] Yes  → ship
        [N] No  → exit
    ");
    let report = project.json(&["inspect", "latest", "--json"]);
    assert_eq!(report["gates"][0]["question"], "Ship it?");
    assert_snapshot!(project.run(&["inspect", "latest"]), @r"
    exit 0
    ── stdout
    run       [ID]
    workflow  gate
    status    paused
    paused    waiting for an answer to review
    started   [UTC]
    took [T]
    seed      2876347797349758

    stage      status time  next
    start@1    succeeded [T]  prepare
    prepare@1  succeeded [T]  review
    review@1   paused [T]

    ? review@1 asks: Ship it?
        │ prepare@1:
        │ ready
        [Y] Yes  → ship
        [N] No  → exit
    answer with: fabro answer [ID] CHOICE
    ");
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "n"]), 0);
    assert_eq!(project.exit(&["resume", "latest", "-q"]), 0);
    assert!(project.json(&["inspect", "latest", "--json"]).get("gates").is_none());
}

#[test]
fn a_quiet_resume_says_nothing() {
    let project = waiting();
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "y"]), 0);
    assert_snapshot!(project.run(&["resume", "latest", "--quiet"]), @"exit 0");
    assert_eq!(project.exit(&["resume", "latest", "--quiet", "--json"]), 2);
}

#[test]
fn a_run_in_the_background_is_at_work_when_the_command_returns() {
    let project = waiting();
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "y"]), 0);
    assert_eq!(project.exit(&["resume", "latest", "--detach"]), 0);
    let events = project.run(&["events", "-f", "latest"]);
    assert!(events.contains("run resumed"), "{events}");
    assert!(events.trim_end().ends_with("run succeeded"), "{events}");

    assert_eq!(project.exit(&["run", "gate.fabro", "--detach"]), 0);
    assert!(project.run(&["events", "latest"]).contains("run started"));
}

#[test]
fn a_driver_in_the_background_that_cannot_begin_says_why() {
    let project = waiting();
    project.write("model.json", b"{");
    assert_snapshot!(project.run(&["resume", "latest", "--detach", "--model-script", "model.json"]), @r"
    exit 2
    ── stderr
    error: the model script model.json is not valid: line 1, column 1: EOF while parsing an object
      help: fix the file
    ");
}

#[test]
fn a_cancellation_that_came_too_late_is_not_for_what_a_run_goes_on_with() {
    let project = Project::with(&[(
        "two.fabro",
        "digraph { start -> a -> b -> exit; a [shape=parallelogram, script=true]; b [shape=parallelogram, script=true] }",
    )]);
    assert_eq!(project.exit(&["run", "two.fabro"]), 0);
    let store = SqliteStore::open(&project.path().join(".fabro/state")).unwrap();
    let run = wait(store.find("latest")).unwrap();
    wait(store.post(run, &Message::Cancel { reason: "too late".into() })).unwrap();
    drop(store);
    assert_eq!(project.exit(&["rewind", "latest", "a"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_eq!(status(&project), "succeeded");
}

#[test]
fn agents_are_told_something() {
    let _filters = filters().bind_to_scope();
    let source = "digraph { start -> review -> implement -> exit; review [shape=hexagon]
        review -> exit [label=\"No\"]; implement [prompt=\"Do it\"] }";
    let script = r#"{"*": [{"text": "Done"}]}"#;
    let project = Project::with(&[("agent.fabro", source), ("m.json", script)]);
    assert_eq!(project.exit(&["run", "agent.fabro", "--model-script", "m.json"]), 3);
    assert_snapshot!(project.run(&["steer", "latest", "Be brief"]), @r"
    exit 0
    ── stdout
    no such agent is running; the message is queued for the next one
    continue with: fabro resume [ID]
    ");
    assert_eq!(project.exit(&["steer", "latest", "Be brief", "--node", "implement"]), 0);
    assert_snapshot!(project.run(&["steer", "latest", "x", "--node", "review"]), @r"
    exit 2
    ── stderr
    error: the run has no agent `review`
      help: it has implement
    ");
    assert_snapshot!(project.run(&["steer", "latest", "  "]), @r#"
    exit 2
    ── stderr
    error: the message is empty
      help: write RUN "TEXT"
    "#);
    assert_eq!(project.exit(&["cancel", "latest"]), 0);
    assert_snapshot!(project.run(&["steer", "latest", "Be brief"]), @r"
    exit 2
    ── stderr
    error: run [ID] has ended: canceled
      help: run again what failed with `fabro retry [ID]`, go back with `fabro rewind [ID] NODE@VISIT`, or copy it with `fabro fork [ID] NODE@VISIT`
    ");
    let gate = waiting();
    assert_snapshot!(gate.run(&["steer", "latest", "Be brief"]), @r"
    exit 2
    ── stderr
    error: the run has no agents
      help: only agent stages take messages
    ");
}

#[test]
fn a_run_that_waits_is_canceled() {
    let _filters = filters().bind_to_scope();
    let project = waiting();
    assert_snapshot!(project.run(&["cancel", "latest", "--reason", "not today"]), @r"
    exit 0
    ── stdout
    run [ID] canceled
    ");
    assert_eq!(status(&project), "canceled");
    assert_snapshot!(project.run(&["cancel", "latest"]), @r"
    exit 2
    ── stderr
    error: run [ID] has ended: canceled
      help: run again what failed with `fabro retry [ID]`, go back with `fabro rewind [ID] NODE@VISIT`, or copy it with `fabro fork [ID] NODE@VISIT`
    ");
    assert_eq!(project.exit(&["resume", "latest"]), 2);
}

#[test]
fn a_run_at_work_is_ended_by_its_driver() {
    let _filters = filters().bind_to_scope();
    let source =
        "digraph { start -> hang -> exit; hang [shape=parallelogram, script=\"exec cat pipe\"] }";
    let project = Project::with(&[("hang.fabro", source)]);
    let pipe = project.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = project.command(&["run", "hang.fabro", "--json"]);
    let mut run = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"node_id\":\"hang\"")));
    assert_eq!(status(&project), "running");
    let refused = project.run(&["rm", "latest"]).replace(&run.id().to_string(), "PID");
    assert_snapshot!(refused, @r"
    exit 2
    ── stderr
    error: run [ID] is being driven by process PID; wait for it, or end it with `fabro cancel [ID]`
    ");
    assert_eq!(project.exit(&["rewind", "latest"]), 2);
    let mut command = project.command(&["events", "latest", "-f"]);
    let mut follow = command.stdout(Stdio::piped()).spawn().unwrap();
    assert_snapshot!(project.run(&["cancel", "latest"]), @r"
    exit 0
    ── stdout
    run [ID] is being canceled by its driver
    ");
    assert!(lines.last().unwrap().unwrap().contains("run.canceled"));
    assert_eq!(run.wait().unwrap().code(), Some(1));
    let followed = BufReader::new(follow.stdout.take().unwrap()).lines().last().unwrap().unwrap();
    assert!(followed.ends_with("run canceled: canceled by the user"), "{followed}");
    assert_eq!(follow.wait().unwrap().code(), Some(0));
}

#[test]
fn sub_workflows_end_with_their_run() {
    let child =
        "digraph { start -> hang -> exit; hang [shape=parallelogram, script=\"exec cat pipe\"] }";
    let source =
        "digraph { start -> sub -> exit; sub [shape=house, stack.child_workflow=\"child.fabro\"] }";
    let project = Project::with(&[("child.fabro", child), ("parent.fabro", source)]);
    assert!(Command::new("mkfifo").arg(project.path().join("pipe")).status().unwrap().success());
    let mut run = project.command(&["run", "parent.fabro"]).stderr(Stdio::null()).spawn().unwrap();
    // Once the pipe has a reader, the script of the child is running.
    let pipe = std::fs::OpenOptions::new().write(true).open(project.path().join("pipe")).unwrap();
    assert_eq!(project.exit(&["cancel", "latest"]), 0);
    assert_eq!(run.wait().unwrap().code(), Some(1));
    drop(pipe);
    let runs = project.json(&["ps", "-a", "--json"]);
    let statuses: Vec<_> = runs.as_array().unwrap().iter().map(|run| &run["status"]).collect();
    assert_eq!(statuses, ["canceled", "canceled"]);
}

#[test]
fn a_sub_workflow_at_work_is_ended_by_its_parents_driver() {
    let _filters = filters().bind_to_scope();
    let child =
        "digraph { start -> hang -> exit; hang [shape=parallelogram, script=\"exec cat pipe\"] }";
    let source =
        "digraph { start -> sub -> exit; sub [shape=house, stack.child_workflow=\"child.fabro\"] }";
    let project = Project::with(&[("child.fabro", child), ("parent.fabro", source)]);
    assert!(Command::new("mkfifo").arg(project.path().join("pipe")).status().unwrap().success());
    let mut run = project.command(&["run", "parent.fabro"]).stderr(Stdio::null()).spawn().unwrap();
    let pipe = std::fs::OpenOptions::new().write(true).open(project.path().join("pipe")).unwrap();
    let runs = project.json(&["ps", "-a", "--json"]);
    let child = runs[0]["id"].as_str().unwrap();
    assert_snapshot!(project.run(&["rewind", child]), @r"
    exit 2
    ── stderr
    error: run [ID] is a sub-workflow of run [ID]
      help: name the run it belongs to: [ID]
    ");
    assert_eq!(project.exit(&["rm", child]), 2);
    assert_eq!(project.exit(&["fork", child]), 2);
    assert_snapshot!(project.run(&["cancel", child]), @r"
    exit 0
    ── stdout
    run [ID] is being canceled by its driver
    ");
    // The canceled child is a failure of its stage that nothing handles.
    assert_eq!(run.wait().unwrap().code(), Some(1));
    drop(pipe);
    let stages = project.json(&["inspect", "latest", "--json"]);
    assert_eq!(stages["stages"][1]["status"], "failed");
    assert_eq!(project.json(&["ps", "-a", "--json"])[0]["status"], "canceled");
}

#[test]
fn a_gate_that_is_not_needed_any_more_is_not_asked_for() {
    let source = r#"digraph {
        start -> fork; fork [shape=component, join_policy=first_success]
        fork -> sub; fork -> quick; sub -> review; quick -> review
        sub [shape=house, stack.child_workflow="gate.fabro"]
        quick [shape=insulator, duration=50ms]
        review [shape=hexagon]; review -> exit [label="[Y] Yes"]
    }"#;
    let project = Project::with(&[("gate.fabro", GATE), ("parent.fabro", source)]);
    assert_eq!(project.exit(&["run", "parent.fabro"]), 3);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "y"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
}

#[test]
fn cancel_ends_the_scripts_of_a_driver_that_died() {
    let source =
        "digraph { start -> hang -> exit; hang [shape=parallelogram, script=\"exec cat pipe\"] }";
    let project = Project::with(&[("hang.fabro", source)]);
    let path = project.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut run = project.command(&["run", "hang.fabro"]).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(project.exit(&["cancel", "latest"]), 0);
    let broken = std::io::Write::write(&mut pipe, b"x").unwrap_err();
    assert_eq!(broken.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_copy_goes_its_own_way() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    let set = ["--set", "tries=3", "--set", "note=plain text", "--set", "version=1.10"];
    let forked = project.json(&[&["fork", "latest", "write@1", "--json"][..], &set[..]].concat());
    let id = forked["id"].as_str().unwrap();
    assert_eq!(forked["stage"], "write@1");
    let context = project.json(&["context", id, "--json"]);
    assert_eq!(
        (&context["tries"], &context["note"], &context["version"]),
        (&3.into(), &"plain text".into(), &"1.10".into())
    );
    assert_eq!(project.json(&["ps", "--json"]).as_array().unwrap().len(), 2);
    assert_eq!(project.exit(&["resume", id]), 0);
    assert_snapshot!(project.run(&["fork", "latest", "nowhere"]), @r"
    exit 2
    ── stderr
    error: run [ID] has no end of a stage `nowhere` to continue from
      help: list its stages with `fabro inspect [ID]`; nothing follows an exit
    ");
    assert_snapshot!(project.run(&["fork", id, "write"]), @r"
    exit 0
    ── stdout
    forked [ID] after write@2
    continue with: fabro resume [ID]
    ");
}

#[test]
fn a_stage_that_several_branches_made_is_named_with_its_branch() {
    let _filters = filters().bind_to_scope();
    let source = r#"digraph {
        start -> fork; fork [shape=component, max_parallel=1]
        a [shape=parallelogram, script="true"]; b [shape=parallelogram, script="true"]
        c [shape=parallelogram, script="true"]; d [shape=parallelogram, script="true"]
        fork -> a -> c; fork -> b -> c; fork -> d; c -> join; d -> join; join -> exit
        join [shape=tripleoctagon]
    }"#;
    let project = Project::with(&[("wide.fabro", source)]);
    assert_eq!(project.exit(&["run", "wide.fabro"]), 0);
    assert_snapshot!(project.run(&["fork", "latest", "c@1"]), @r"
    exit 2
    ── stderr
    error: `c@1` means 2 stages: name one of fork@1/a/c@1, fork@1/b/c@1
    ");
    assert_eq!(
        project.run(&["rewind", "latest", "c@1"]),
        project.run(&["inspect", "latest", "c@1"])
    );
    assert_eq!(project.exit(&["inspect", "latest", "fork@1/a/c@1"]), 0);
    assert_eq!(project.exit(&["fork", "latest", "fork@1/a/c@1"]), 0);
    let copy = project.json(&["inspect", "latest", "--json"]);
    let last = copy["stages"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["node"], &last["branch"]), (&"c".into(), &"fork@1/a".into()));
}

#[test]
fn answers_that_were_given_before_are_not_taken_for_new_ones() {
    let _filters = filters().bind_to_scope();
    let source = r#"digraph { start -> a; a [shape=hexagon]; b [shape=hexagon]
        a -> a [label="[N] No"]; a -> b [label="[Y] Yes"]; b -> exit [label="[Y] Yes"] }"#;
    let project = Project::with(&[
        ("two.fabro", source),
        ("first.json", r#"{"a": ["N"]}"#),
        ("rest.json", r#"{"a": ["Y"]}"#),
        ("all.json", r#"{"a": ["N", "Y"]}"#),
    ]);
    assert_eq!(project.exit(&["run", "two.fabro", "--answers", "first.json"]), 3);
    let shown = |args: &[&str]| {
        let said = project.run(args);
        said.lines().filter(|line| line.contains("warning")).collect::<String>()
    };
    assert_eq!(shown(&["resume", "latest"]), "");
    assert_eq!(shown(&["resume", "latest", "--answers", "first.json"]), "");
    assert_snapshot!(shown(&["resume", "latest", "--answers", "rest.json"]), @"warning: `a`: 1 answer was already given, but the file has 1: list all answers from the start of the run");
    assert_eq!(shown(&["resume", "latest", "--answers", "all.json"]), "");
}

#[test]
fn a_large_value_is_set_as_a_blob() {
    let project = Project::hello();
    let large = "x".repeat(110_000);
    let set = format!("large={large}");
    let forked = project.json(&["fork", "latest", "write@1", "--set", &set, "--json"]);
    let id = forked["id"].as_str().unwrap();
    assert_eq!(project.exit(&["rewind", "--set", &set, id]), 0);
    let events = project.run(&["events", id, "--json"]);
    assert_eq!(events.matches("checkpoint.forked").count(), 2);
    assert!(!events.contains(&large));
    let context = project.json(&["context", id, "--json"]);
    assert!(context["large"].as_str().unwrap().starts_with("blob://sha256/"));
    let context = project.json(&["context", id, "--json", "--resolve"]);
    assert_eq!(context["large"], *large);
}

#[test]
fn a_run_is_taken_back() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    assert_snapshot!(project.run(&["rewind", "latest", "write@1", "--set", "note=again"]), @r"
    exit 0
    ── stdout
    rewound [ID] after write@1
    continue with: fabro resume [ID]
    ");
    assert_eq!(status(&project), "interrupted");
    // The table counts no visit that was undone.
    assert_snapshot!(project.run(&["resume", "latest"]), @r"
    exit 0
    ── stderr
    run [ID] · fabro logs [ID] -f
    models: scripted (model.json)
    · run resumed
    ✗ check          Is it short enough? [T]  exit code 1: Good morning to every single one of you, wherever in the wide world you are.  → write (outcome=failed)
    ✓ write@2        Write the greeting [T]  → check
    ✓ check@2        Is it short enough? [T]  → exit (outcome=succeeded)

    stage  visits  status time  tokens
    write       2  succeeded [T]
    check       2  succeeded [T]
    succeeded in [T], 4 stages

    response of write@2:
      Hello, world!
    ");
    assert_eq!(project.json(&["context", "latest", "--json"])["note"], "again");
    assert_snapshot!(project.run(&["rewind", "latest", "=", "--set", "x"]), @r"
    exit 2
    ── stderr
    error: invalid value 'x' for '--set <KEY=VALUE>': write KEY=VALUE

    For more information, try '--help'.
    ");
}

#[test]
fn runs_are_removed() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    assert_snapshot!(project.run(&["rm", "latest", "zzzz"]), @r"
    exit 2
    ── stderr
    error: there is no run `zzzz`; `fabro ps` lists them
    ");
    assert_snapshot!(project.run(&["rm", "latest"]), @r"
    exit 0
    ── stdout
    removed [ID]
    ");
    assert_snapshot!(project.run(&["rm", "latest"]), @r"
    exit 2
    ── stderr
    error: there are no runs yet; start one with `fabro run`
    ");
    let runs = project.path().join(".fabro/state/runs");
    assert!(runs.read_dir().unwrap().flatten().all(|entry| !entry.path().is_dir()));
}

#[test]
fn wrong_arguments_say_what_is_right() {
    let project = Project::new();
    assert_snapshot!(project.run(&["run", "x", "-I", "novalue"]), @r"
    exit 2
    ── stderr
    error: invalid value 'novalue' for '--input <KEY=VALUE>': write KEY=VALUE

    For more information, try '--help'.
    ");
    assert_snapshot!(project.run(&["run", "x", "--max-cost", "-1"]), @r"
    exit 2
    ── stderr
    error: invalid value '-1' for '--max-cost <USD>': write an amount in US dollars above 0, such as 2.50

    For more information, try '--help'.
    ");
    assert_snapshot!(project.run(&["run", "nothing.fabro"]), @r"
    exit 2
    ── stderr
    error: there is no file DIR/nothing.fabro
      help: check the name, or make a first workflow with `fabro init`
    ");
}
