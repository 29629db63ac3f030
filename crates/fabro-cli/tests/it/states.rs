//! What lists and reports say of runs that failed, wait, were copied, or are still driven; and waiting
//! for them.

use std::process::Stdio;

use insta::assert_snapshot;

use crate::project::{Project, filters};

const NOISY: &str = r#"digraph noisy { start -> shout; shout -> exit [condition="outcome=success"]
    shout [shape=parallelogram, retry_policy=linear, max_retries=1
        script="for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5; do echo $i.$j; done; done; echo wrong >&2; exit 3"] }"#;

const GATE: &str = r#"digraph gate { start -> ship; ship [shape=hexagon, label="Ship it?"]
    ship -> exit [label="[Y] Yes"]; ship -> start2 [label="[N] No"]; start2 [shape=parallelogram, script=true]; start2 -> exit }"#;

#[test]
fn a_failed_command_is_shown_with_its_output_as_text() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[("noisy.fabro", NOISY)]);
    assert_eq!(project.exit(&["run", "noisy.fabro"]), 1);
    let text = project.run(&["inspect", "latest", "shout"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_snapshot!(lines[..12].join("\n"), @r"
    exit 0
    ── stdout
    shout@1 failed in [T]
    exit code 3: wrong
    started   [UTC]
    attempts  2
              1: exit code 3: wrong; the next one after [T]

    ── stdout
    … 10 lines before these: DIR/.fabro/state/runs/[ID]/stages/002-shout@1/stdout.log
    3.1
    3.2
    ");
    assert_snapshot!(lines[lines.len() - 9..].join("\n"), @r"
    10.3
    10.4
    10.5

    ── stderr
    wrong

    ── outcome
    command.exit_code = 3
    ");
    let stage = project.json(&["inspect", "latest", "shout", "--json"]);
    assert_eq!(stage["stderr"], "wrong");
    assert!(stage["response"].as_str().unwrap().starts_with("1.1\n1.2\n"));
    assert_eq!(stage["earlier_attempts"].as_array().unwrap().len(), 1);
    assert_snapshot!(project.run(&["inspect", "latest"]), @r"
    exit 0
    ── stdout
    run       [ID]
    workflow  noisy
    status    failed
    failure   exit code 3: wrong
    started   [UTC]
    took [T]
    seed      7074759549300688

    stage    status time  next
    start@1  succeeded [T]  shout
    shout@1  failed [T]
        attempt 2: exit code 3: wrong

    see the failed stage with: fabro inspect [ID] shout@1
    ");
    assert_snapshot!(project.run(&["ps"]), @r"
    exit 0
    ── stdout
    run                         workflow  status age took  goal
    [ID]  noisy     failed [T] [T]
      exit code 3: wrong
    ");
    assert_eq!(project.json(&["ps", "--json"])[0]["failure"]["class"], "deterministic");
}

#[test]
fn lists_mark_dry_runs_pauses_and_copies() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[("gate.fabro", GATE)]);
    assert_eq!(project.exit(&["run", "gate.fabro", "--dry-run"]), 0);
    assert_eq!(project.exit(&["run", "gate.fabro"]), 3);
    assert_eq!(project.exit(&["fork", "latest", "start"]), 0);
    assert_snapshot!(project.run(&["ps"]), @r"
    exit 0
    ── stdout
    run                         workflow  status age took  goal
    [ID]  gate      forked [T] [T]
      from [ID] after start@1, not resumed yet
    [ID]  gate      paused [T] [T]
      waiting for an answer to ship
    [ID]  gate      succeeded (dry) [T] [T]
    ");
    let rows = project.json(&["ps", "--json"]);
    assert_eq!(rows[0]["status"], "interrupted");
    assert_snapshot!(rows[1]["pause"], @r#"{"reason":"human","message":"waiting for an answer to ship"}"#);
    assert_eq!((rows[1].get("dry_run"), &rows[2]["dry_run"]), (None, &true.into()));
    assert_snapshot!(project.run(&["inspect", "latest"]), @r"
    exit 0
    ── stdout
    run       [ID]
    workflow  gate
    status    forked, not resumed yet
    forked    from [ID] after start@1
    started   [UTC]
    took [T]
    seed      8831585239528343

    stage    status time  next
    start@1  succeeded [T]

    continue with: fabro resume [ID]
    ");
    let dry = rows[2]["id"].as_str().unwrap();
    assert!(project.run(&["inspect", dry]).contains("succeeded (dry run: nothing was executed)"));
}

#[test]
fn waiting_has_the_exit_code_of_the_run() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[
        ("ok.fabro", "digraph { start -> exit }"),
        ("gate.fabro", GATE),
        (
            "bad.fabro",
            r#"digraph { start -> a; a [shape=parallelogram, script="exit 7"]; a -> exit [condition="outcome=success"] }"#,
        ),
    ]);
    let run = |file: &str| {
        project.exit(&["run", file, "-q"]);
        project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned()
    };
    let ok = run("ok.fabro");
    assert_snapshot!(project.run(&["wait", "latest"]), @r"
    exit 0
    ── stdout
    [ID] succeeded
    ");
    let bad = run("bad.fabro");
    assert_snapshot!(project.run(&["wait", &bad]), @r"
    exit 1
    ── stdout
    [ID] failed
    ── stderr
    exit code 7
    ");
    let gate = run("gate.fabro");
    assert_snapshot!(project.run(&["wait", &gate]), @r"
    exit 3
    ── stdout
    [ID] paused
    ── stderr
    waiting for an answer to ship; see it with: fabro inspect [ID]
    ");
    assert_eq!(project.exit(&["fork", "latest", "start"]), 0);
    assert_snapshot!(project.run(&["wait", "latest"]), @r"
    exit 130
    ── stdout
    [ID] interrupted
    ── stderr
    no process is driving the run; continue with: fabro resume [ID]
    ");
    let check = |args: &[&str], exit| assert_eq!(project.exit(&[&["wait"], args].concat()), exit);
    check(&[&ok, &ok], 0);
    check(&[&ok, &gate], 3);
    check(&[&ok, &gate, &bad], 1);
    check(&[&ok, &gate, &bad, "latest"], 130);
    check(&["--any", &ok, &gate, &bad], 0);
    check(&["--any", &bad, &ok], 1);
    check(&["zzz"], 2);
    check(&[], 2);
    check(&["latest", "--timeout", "soon"], 2);
    assert_snapshot!(project.run(&["wait", "--json", &ok, &bad]), @r#"
    exit 1
    ── stdout
    {"id":"[ID]","status":"succeeded"}
    {"id":"[ID]","status":"failed"}
    "#);
}

#[test]
fn a_run_of_another_process_is_waited_for() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[(
        "slow.fabro",
        r#"digraph { start -> a -> exit; a [shape=parallelogram, script="until [ -e go ]; do sleep 0.05; done"] }"#,
    )]);
    let output = project.output(&["run", "slow.fabro", "--detach"]);
    let id = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert_snapshot!(project.run(&["wait", &id, "--timeout", "0s"]), @r"
    exit 124
    ── stderr
    error: the timeout has passed; still running: run [ID]
      help: wait again with `fabro wait [ID]`
    ");
    let waiting = project.command(&["wait", &id]).stdout(Stdio::piped()).spawn().unwrap();
    project.write("go", b"");
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(0));
    assert_eq!(String::from_utf8(waited.stdout).unwrap(), format!("{id} succeeded\n"));
}

#[test]
fn words_for_other_commands_are_explained() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    let first = |args: &[&str]| project.run(args).lines().take(4).collect::<Vec<_>>().join("\n");
    assert_snapshot!(first(&["stop", "latest"]), @r"
    exit 2
    ── stderr
    error: there is no command `stop`
      help: `fabro cancel latest` ends a run for good; Ctrl-C in its terminal only interrupts it
    ");
    assert_snapshot!(first(&["flow.fabro"]), @r"
    exit 2
    ── stderr
    error: there is no command `flow.fabro`
      help: run the workflow with `fabro run flow.fabro`
    ");
    assert_snapshot!(first(&["hello", "--dry-run"]), @r"
    exit 2
    ── stderr
    error: there is no command `hello`
      help: run the workflow with `fabro run hello --dry-run`
    ");
    assert_eq!(project.run(&["ls"]).lines().count(), project.run(&["ps"]).lines().count());
    assert_eq!(project.run(&["show", "latest"]), project.run(&["inspect", "latest"]));
    assert_eq!(project.exit(&["check", "."]), 0);
    let flow = Project::with(&[("flow.fabro", "digraph { start -> exit }")]);
    assert_snapshot!(first(&["run"]), @r"
    exit 2
    ── stderr
    error: no workflow is named
      help: the workflows here are hello: run one with `fabro run hello`, or name a file
    ");
    assert_snapshot!(flow.run(&["run"]), @r"
    exit 2
    ── stderr
    error: no workflow is named
      help: name a file, or make a first workflow with `fabro init`
    ");
}

#[test]
fn the_latest_run_is_meant_where_none_is_named() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    assert_eq!(project.run(&["status"]), project.run(&["inspect", "latest"]));
    assert_eq!(project.run(&["events"]), project.run(&["events", "latest"]));
    assert_eq!(project.run(&["context"]), project.run(&["context", "latest"]));
    assert_snapshot!(project.run(&["inspect", "check@1"]), @r"
    exit 2
    ── stderr
    error: there is no run `check@1`; `fabro ps` lists them
      help: `check@1` is a stage of the latest run: write `latest check@1`
    ");
    assert_eq!(project.exit(&["run", "hello", "-q"]), 0);
    assert_snapshot!(project.run(&["inspect", "0"]), @r"
    exit 2
    ── stderr
    error: `0` is the beginning of 2 runs:
      [ID]  hello  succeeded  [TS]
      [ID]  hello  succeeded  [TS]
      help: write more of the id; `latest` is the run created last
    ");
}

#[test]
fn a_dry_run_walks_past_structured_outputs() {
    let flow = r#"digraph {
        start -> audit -> route -> exit
        audit [shape=tab, prompt="Audit.", output_schema="{\"type\": \"object\", \"required\": [\"score\"], \"properties\": {\"score\": {\"type\": \"integer\"}}}"]
        route [shape=tab, prompt="Route.", output_schema="routing"]
    }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    let ran = project.run(&["run", "flow.fabro", "--dry-run", "-q"]);
    assert!(ran.starts_with("exit 0"), "{ran}");
    let replayed = project.run(&["replay", "latest"]);
    assert!(replayed.starts_with("exit 0"), "{replayed}");
}
