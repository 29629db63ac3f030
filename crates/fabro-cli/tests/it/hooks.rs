//! `[[run.hooks]]`: what commands and servers receive, and what they forbid.

use fabro_fakes::{Response, Server};
use insta::assert_snapshot;
use serde_json::Value;

use crate::project::{Project, filters};

const RUN: &str = "_version = 1\n[workflow]\ngraph = \"w.fabro\"\n";

/// A project with this workflow and these lines in its run.toml.
fn project(workflow: &str, lines: &str) -> Project {
    let toml = format!("{RUN}{lines}\n");
    Project::with(&[("run.toml", &toml), ("w.fabro", &format!("digraph w {{ {workflow} }}"))])
}

/// What a hook wrote with `cat >> FILE`.
fn told(project: &Project, file: &str) -> Vec<Value> {
    let text = project.read_or_default(file);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(project: &Project) -> Vec<Value> {
    let output = project.output(&["events", "latest", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn warnings(project: &Project) -> Vec<String> {
    let events = events(project);
    let warnings = events.iter().filter(|event| event["event"] == "agent.warning");
    warnings.map(|event| event["properties"]["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn hooks_are_told_in_order_and_change_nothing() {
    let project = project(
        "start -> a -> gate -> exit; a [shape=parallelogram, script=\"exit 3\", on_failure=continue]
         gate [shape=hexagon, label=\"Ship it?\"]; gate -> exit [label=\"[Y] Yes\"]",
        r#"
        [[run.hooks]]
        event = "run_start"
        blocking = false
        script = "echo $FABRO_EVENT $FABRO_WORKFLOW >> all"
        [[run.hooks]]
        event = "stage_start"
        blocking = false
        script = "echo $FABRO_NODE_ID >> started"
        [[run.hooks]]
        event = "stage_failed"
        script = "cat >> failed"
        [[run.hooks]]
        event = "gate_asked"
        script = "cat >> asked"
        [[run.hooks]]
        event = "gate_answered"
        script = "cat >> answered"
        [[run.hooks]]
        event = "edge_selected"
        matcher = "^a$"
        script = "cat >> edges"
        [[run.hooks]]
        name = "broken"
        event = "run_complete"
        script = "echo no such room >&2; exit 4"
        [[run.hooks]]
        event = "run_complete"
        script = "cat >> complete"
        "#,
    );
    filters().bind(|| {
        assert_snapshot!(project.run(&["run", "run.toml", "--auto-approve", "--quiet"]), @"exit 0");
    });
    assert_eq!(project.read("all"), "run_start w\n");
    assert_eq!(project.read("started"), "start\na\ngate\nexit\n");
    let failed = &told(&project, "failed")[0];
    assert_eq!(failed["failure_reason"], "exit code 3");
    assert_eq!(failed["record"]["event"], "stage.failed");
    assert_eq!(failed["id"], failed["record"]["id"]);
    assert_eq!(failed["cwd"], project.path().to_str().unwrap());
    assert_eq!(told(&project, "asked")[0]["question"], "Ship it?");
    assert_eq!(told(&project, "answered").len(), 1);
    let edges: Vec<_> =
        told(&project, "edges").iter().map(|edge| edge["edge_to"].clone()).collect();
    assert_eq!(edges, ["a", "gate"]);
    let complete = &told(&project, "complete")[0];
    assert_eq!(complete["status"], "succeeded");
    let id = complete["run_id"].as_str().unwrap();
    let kept = project.read(&format!(".fabro/state/runs/{id}/hooks/failures.log"));
    assert!(kept.ends_with("Z the hook `broken` failed: exit code 4: no such room\n"), "{kept}");
    assert_snapshot!(project.run(&["replay", "latest"]), @r"
    exit 0
    ── stdout
    ✓ the same: 14 events
    ");
    assert_eq!(told(&project, "complete").len(), 1);
}

const AGENT: &str = "start -> a -> exit; a [prompt=x, permissions=full]";
const CALLS: &str = r#"{"a": [{"tool_calls": [
    {"name": "shell", "arguments": {"command": "echo hi > made"}},
    {"name": "write_file", "arguments": {"file_path": "kept", "content": "x"}}]}, {"text": "Done."}]}"#;

#[test]
fn a_call_of_a_tool_is_refused_with_the_reason() {
    let project = project(
        AGENT,
        r#"
        [run.model]
        script = "model.json"
        [[run.hooks]]
        name = "guard"
        event = "pre_tool_use"
        matcher = "^shell$"
        script = "cat >> asked; echo 'no shell on Fridays' >&2; exit 2"
        [[run.hooks]]
        event = "pre_tool_use"
        matcher = "write"
        script = "cat > /dev/null; exit 1"
        [[run.hooks]]
        event = "post_tool_use"
        script = "echo ok $FABRO_TOOL_NAME >> used"
        [[run.hooks]]
        event = "post_tool_use_failure"
        script = "echo bad $FABRO_TOOL_NAME >> used2"
        "#,
    );
    project.write("model.json", CALLS.as_bytes());
    assert_eq!(project.exit(&["run", "run.toml"]), 0);
    assert!(!project.path().join("made").exists());
    assert_eq!(project.read("kept"), "x");
    let results: Vec<_> = events(&project)
        .iter()
        .filter(|event| event["event"] == "agent.tool.completed")
        .map(|event| event["properties"]["output"].clone())
        .collect();
    assert_eq!(results[0], "the hook `guard` forbids this call: no shell on Fridays");
    let asked = &told(&project, "asked")[0];
    assert_eq!(asked["tool_input"]["command"], "echo hi > made");
    assert_eq!((&asked["node_id"], &asked["tool_name"]), (&"a".into(), &"shell".into()));
    assert_eq!(warnings(&project), ["a hook of `pre_tool_use` failed: exit code 1"]);
    assert_eq!(project.read("used"), "ok write_file\n");
    assert_eq!(project.read("used2"), "bad shell\n");
    assert!(project.run(&["replay", "latest"]).contains("✓ the same"));
    assert_eq!(told(&project, "asked").len(), 1);
}

#[test]
fn a_stage_that_is_forbidden_fails() {
    let project = project(
        "start -> a -> sub -> exit; a [shape=parallelogram, script=true]
         sub [shape=house, stack.child_workflow=\"child.fabro\", manager.poll_interval=1s]",
        r#"
        [[run.hooks]]
        name = "freeze"
        event = "stage_start"
        matcher = "^b$"
        script = '''echo '{"decision": "block", "reason": "frozen"}' '''
        [[run.hooks]]
        event = "stage_start"
        script = "cat >> asked"
        [[run.hooks]]
        name = "slow"
        event = "stage_start"
        matcher = "^a$"
        timeout = "200ms"
        command = ["sleep", "600"]
        "#,
    );
    let child = "digraph c { start -> b -> exit; b [shape=parallelogram, script=\"touch made\"] }";
    project.write("child.fabro", child.as_bytes());
    let run = project.run(&["run", "run.toml"]);
    assert!(run.starts_with("exit 1\n"), "{run}");
    assert!(run.contains("the hook `freeze` forbids the stage: frozen"), "{run}");
    assert!(!project.path().join("made").exists());
    let asked: Vec<_> = told(&project, "asked").iter().map(|it| it["node_id"].clone()).collect();
    assert_eq!(asked, ["a", "sub"]);
    assert_eq!(
        warnings(&project),
        ["the hook `slow` failed: it took longer than 0.2 s, its `timeout`"]
    );
    assert!(project.run(&["replay", "latest"]).contains("✓ the same"));
}

/// Hooks are asked once a visit, so a further attempt would run what was forbidden.
#[test]
fn a_stage_that_is_forbidden_has_no_further_attempt() {
    let project = project(
        "start -> fan -> {a; b} -> join -> exit; fan [shape=component, max_retries=1]; join [shape=tripleoctagon]
         a [shape=parallelogram, script=\"touch made\", max_retries=2, retry_policy=linear]
         b [shape=parallelogram, script=\"exit 1\"]",
        r#"
        [[run.hooks]]
        event = "stage_start"
        matcher = "^a$"
        script = "cat >> asked; exit 2"
        "#,
    );
    assert_eq!(project.exit(&["run", "run.toml"]), 1);
    assert!(!project.path().join("made").exists());
    // Once for each attempt of the fan-out.
    assert_eq!(told(&project, "asked").len(), 2);
}

#[test]
fn a_forbidden_agent_is_replayed_too() {
    let hook = "[run.model]\nscript = \"model.json\"\n[[run.hooks]]\nevent = \"stage_start\"\nscript = \"exit 2\"";
    let project = project(AGENT, hook);
    project.write("model.json", CALLS.as_bytes());
    assert_eq!(project.exit(&["run", "run.toml"]), 1);
    let replay = project.run(&["replay", "latest"]);
    assert!(replay.contains("✓ the same"), "{replay}");
}

#[test]
fn a_run_that_is_forbidden_fails_before_its_first_stage() {
    let project = project(
        "start -> a -> exit; a [shape=parallelogram, script=\"touch made\"]",
        r#"
        [[run.prepare.steps]]
        script = "touch prepared"
        [[run.hooks]]
        name = "hours"
        event = "run_start"
        script = "cat >> asked; echo at night only; exit 2"
        "#,
    );
    filters().bind(|| {
        assert_snapshot!(project.run(&["run", "run.toml"]), @r#"
        exit 1
        ── stderr
        w.fabro:1:22: warning[unhandled-failure]: when `a` fails, the run continues and ends partially_succeeded (add an edge for it: a -> … [condition="outcome=failed"]; or on_failure="stop" or "continue" for the node or the graph)
        run [ID] · fabro logs [ID] -f
        failed in [T], 0 stages
        run [ID] failed: the hook `hours` forbids the run: at night only
        See why: fabro inspect [ID]
        "#);
    });
    assert!(!project.path().join("made").exists() && !project.path().join("prepared").exists());
    assert!(project.run(&["replay", "latest"]).contains("✓ the same"));
}

#[test]
fn a_dry_run_runs_no_hook() {
    let hook = "[[run.hooks]]\nevent = \"run_start\"\nscript = \"touch made; exit 2\"";
    let project = project("start -> a -> exit; a [shape=parallelogram, script=true]", hook);
    let run = project.run(&["run", "run.toml", "--dry-run", "--quiet"]);
    assert_snapshot!(run, @r"
    exit 0
    ── stderr
    warning: this is a dry run: its hooks are not run
    ");
    assert!(!project.path().join("made").exists());
}

#[test]
fn validate_finds_what_run_refuses() {
    let check = |lines: &str| {
        let workflow = "start -> a -> exit; a [shape=parallelogram, script=true]";
        let project = project(workflow, lines);
        let checked = project.run(&["validate", "run.toml"]);
        let run = project.run(&["run", "run.toml"]);
        assert!(checked.starts_with("exit 2\n") && run.starts_with("exit 2\n"), "{checked}{run}");
        let message = checked.lines().find_map(|line| line.strip_prefix("error[setting-value]: "));
        assert!(run.contains(message.unwrap()), "{checked}{run}");
        run
    };
    assert_snapshot!(check("[[run.hooks]]\nevent = \"edge_selected\"\nscript = \"true\"\nblocking = true"), @r"
    exit 2
    ── stderr
    error: DIR/run.toml:7:12: the hook of `run.hooks` cannot block: `edge_selected` is sent when it has happened already (remove `blocking`, or use `stage_start` with the next node)
    ");
    assert_snapshot!(check("[[run.hooks]]\nevent = \"on_gate\"\nscript = \"true\""), @r"
    exit 2
    ── stderr
    error: DIR/run.toml:5:9: `run.hooks.event` is `on_gate` (use `run_start`, `run_complete`, `run_failed`, `run_canceled`, `run_paused`, `stage_start`, `stage_complete`, `stage_failed`, `stage_retrying`, `edge_selected`, `parallel_start`, `parallel_complete`, `gate_asked`, `gate_answered`, `pre_tool_use`, `post_tool_use` or `post_tool_use_failure`)
    ");
    assert_snapshot!(check("[[run.hooks]]\nevent = \"gate_asked\"\nurl = \"http://chat.example/x\""), @r"
    exit 2
    ── stderr
    error: DIR/run.toml:6:7: the hook of `run.hooks` would send events unencrypted to another machine (use `https://`; `http://` is for this machine only)
    ");
}

#[test]
fn a_program_whose_calls_nobody_sees_is_refused() {
    let hook = "[[run.hooks]]\nname = \"guard\"\nevent = \"pre_tool_use\"\nscript = \"exit 2\"";
    let project = project("start -> a -> exit; a [prompt=x, backend=cli]", hook);
    project.write("bin/claude", b"#!/bin/sh\n");
    let run = project.run(&["run", "run.toml"]);
    assert!(run.contains("error[unguarded]: `a`: another program calls the tools of this agent, and the hook `guard` cannot check that"), "{run}");
}

#[test]
fn a_killed_run_tells_again_what_it_had_not_told() {
    let project = project(
        "start -> a -> b -> exit; a [shape=parallelogram, script=true]; b [shape=parallelogram, script=\"sleep 600\"]",
        r#"
        [[run.hooks]]
        event = "stage_complete"
        matcher = "^[ab]$"
        script = "cat >> told; test -e once || { touch once; kill -9 $PPID; sleep 600; }"
        "#,
    );
    let status = project.output(&["run", "run.toml"]).status;
    assert_eq!(status.code(), None);
    assert_eq!(told(&project, "told").len(), 1);
    let id = told(&project, "told")[0]["id"].clone();
    let mut resume = project.command(&["resume", "latest"]);
    let mut child = resume.spawn().unwrap();
    while told(&project, "told").len() < 2 {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    assert_eq!(told(&project, "told")[1]["id"], id);
    assert_eq!(project.exit(&["cancel", "latest"]), 0);
    child.wait().unwrap();
    assert_eq!(told(&project, "told").len(), 2);
}

#[test]
fn a_server_is_told_of_a_gate_and_secrets_are_redacted() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let answer = Response::bytes(200, "application/json", "{}");
    let server = runtime.block_on(Server::start(vec![answer])).unwrap();
    let hook = format!(
        "[run.sandbox.env]\nAPP_TOKEN = \"$CHAT_TOKEN\"\n[[run.hooks]]\nevent = \"gate_asked\"\nurl = \"{}/hook\"\nheaders = {{ Authorization = \"Bearer $CHAT_TOKEN\" }}",
        server.url()
    );
    let workflow = "start -> a -> gate; gate -> exit [label=\"[Y] Yes\"]
        a [shape=parallelogram, script=\"echo {\\\"context_updates\\\": {}}\"]
        gate [shape=hexagon, label=\"Ship it?\"]";
    let project = project(workflow, &hook);
    let missing = project.run(&["run", "run.toml"]);
    assert!(missing.contains("CHAT_TOKEN"), "{missing}");
    let mut run = project.command(&["run", "run.toml"]);
    assert_eq!(run.env("CHAT_TOKEN", "a-long-secret").output().unwrap().status.code(), Some(3));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("authorization"), Some("Bearer a-long-secret"));
    assert_eq!(requests[0].json()["question"], "Ship it?");
}

#[test]
fn hooks_of_the_project_and_of_the_user_are_run_too() {
    let hook = |file: &str| {
        format!("[[run.hooks]]\nevent = \"run_complete\"\nscript = \"echo {file} >> all\"\n")
    };
    let project = project("start -> a -> exit; a [shape=parallelogram, script=true]", &hook("run"));
    let version = "_version = 1\n";
    project.write(".fabro/config.toml", format!("{version}{}", hook("project")).as_bytes());
    project.write(".config/fabro/config.toml", format!("{version}{}", hook("user")).as_bytes());
    assert_eq!(project.exit(&["run", "run.toml"]), 0);
    let all = project.read("all");
    let mut names: Vec<_> = all.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["project", "run", "user"]);
}
