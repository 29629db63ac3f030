//! Every event that `[[run.hooks]]` can name: when it fires, what its hook gets, what a hook that fails or never ends
//! changes, and which hooks can forbid something.

use std::fmt::Write as _;

use fabro_config::HookEvent;
use insta::assert_snapshot;
use serde_json::Value;

use crate::project::{Project, filters};

/// A run in which an event happens.
struct Case {
    workflow: &'static str,
    /// Arguments of the run.
    args: &'static [&'static str],
    exit: i32,
    /// A matcher that fits, for events with a node or a tool.
    matcher: Option<&'static str>,
}

const COMMAND: &str = "start -> a -> exit; a [shape=parallelogram, script=\"touch ran\"]";
const FAILS: &str =
    "graph [on_failure=stop]; start -> a -> exit; a [shape=parallelogram, script=\"exit 3\"]";
const CANCELED: &str = "start -> a -> exit; a [shape=parallelogram, script=\"$FABRO cancel $FABRO_RUN_ID; sleep 600\"]";
const RETRIED: &str = "start -> a -> exit
    a [shape=parallelogram, max_retries=1, script=\"test -e once || { touch once; exit 1; }\"]";
const FAN_OUT: &str = "start -> f; f [shape=component, label=\"Both\"]; f -> a -> j; f -> b -> j
    j [shape=tripleoctagon]; j -> exit
    a [shape=parallelogram, script=true]; b [shape=parallelogram, script=true]";
const GATE: &str =
    "start -> g; g [shape=hexagon, label=\"Ship it?\"]; g -> exit [label=\"[Y] Yes\"]";
const AGENT: &str = "start -> a -> exit; a [prompt=x, permissions=full]";
const MODEL: &str = r#"{"a": [{"tool_calls": [
    {"name": "shell", "arguments": {"command": "touch ran"}},
    {"name": "read_file", "arguments": {"file_path": "missing"}}]}, {"text": "Done."}]}"#;

/// A new event of the settings does not compile without its case.
fn case(event: HookEvent) -> Case {
    use HookEvent::{
        EdgeSelected, GateAnswered, GateAsked, ParallelComplete, ParallelStart, PostToolUse,
        PostToolUseFailure, PreToolUse, RunCanceled, RunComplete, RunFailed, RunPaused, RunStart,
        StageComplete, StageFailed, StageRetrying, StageStart,
    };
    let case = |workflow, args, exit, matcher| Case { workflow, args, exit, matcher };
    match event {
        RunStart | RunComplete => case(COMMAND, &[], 0, None),
        RunFailed => case(FAILS, &[], 1, None),
        RunCanceled => case(CANCELED, &[], 1, None),
        RunPaused => case(GATE, &[], 3, None),
        StageStart | StageComplete | EdgeSelected => case(COMMAND, &[], 0, Some("^a$")),
        StageFailed => case(FAILS, &[], 1, Some("^a$")),
        StageRetrying => case(RETRIED, &[], 0, Some("^a$")),
        ParallelStart | ParallelComplete => case(FAN_OUT, &[], 0, Some("^f$")),
        GateAsked | GateAnswered => case(GATE, &["--auto-approve"], 0, Some("^g$")),
        PreToolUse | PostToolUse => case(AGENT, &["--model-script", "model.json"], 0, Some("^sh")),
        PostToolUseFailure => case(AGENT, &["--model-script", "model.json"], 0, Some("^read_")),
    }
}

/// A project with hooks of the event, each of these lines.
fn project(event: HookEvent, hooks: &[String]) -> Project {
    let mut toml = "_version = 1\n[workflow]\ngraph = \"w.fabro\"\n".to_owned();
    for hook in hooks {
        let _ = writeln!(toml, "[[run.hooks]]\nevent = \"{}\"\n{hook}", event.as_str());
    }
    let workflow = format!("digraph w {{ {} }}", case(event).workflow);
    Project::with(&[("run.toml", &toml), ("w.fabro", &workflow), ("model.json", MODEL)])
}

/// The exit code of the run, and what it printed.
fn run(event: HookEvent, project: &Project) -> (i32, String) {
    let mut run = project.command(&["run", "run.toml", "--quiet"]);
    run.args(case(event).args).env("FABRO", env!("CARGO_BIN_EXE_fabro"));
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), text)
}

fn lines(project: &Project, file: &str) -> Vec<Value> {
    let text = project.read_or_default(file);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How often hooks got the event, and the first time in full but for the record, of which the name is shown.
fn shown(event: HookEvent, project: &Project) -> String {
    let got = lines(project, "got");
    let Some(Value::Object(mut first)) = got.first().cloned() else {
        return format!("{}: never\n", event.as_str());
    };
    assert_eq!(first.remove("event"), Some(event.as_str().into()));
    assert_eq!(first.remove("workflow_name"), Some("w".into()));
    assert_eq!(first.remove("cwd"), Some(project.path().to_str().unwrap().into()));
    let record = first.remove("record").unwrap();
    assert_eq!(first.remove("id").as_ref(), Some(&record["id"]));
    assert_eq!(first.remove("run_id").as_ref(), Some(&record["run_id"]));
    let mut own: Vec<String> = first.iter().map(|(key, value)| format!("{key}={value}")).collect();
    own.sort();
    let name = record["event"].as_str().unwrap();
    format!("{} ×{} {name} {}", event.as_str(), got.len(), own.join(" ")).trim_end().to_owned()
        + "\n"
}

#[test]
fn each_event_is_delivered_and_a_hook_that_fails_changes_nothing() {
    let mut all = String::new();
    for event in HookEvent::all() {
        let Case { exit, matcher, .. } = case(event);
        let matching = matcher.map(|it| format!("matcher = '{it}'\n")).unwrap_or_default();
        let hook = |name: &str, script: &str| {
            format!("name = '{name}'\nblocking = false\n{matching}script = '{script}'")
        };
        let mut hooks = vec![
            hook("broken", "cat >> broken; exit 4"),
            hook("endless", "sleep 600") + "\ntimeout = '20ms'",
            hook("no program", "exec /no/such/program"),
            hook("got", "cat >> got; echo $FABRO_EVENT $FABRO_NODE_ID $FABRO_TOOL_NAME >> env"),
        ];
        if matcher.is_some() {
            let other = "blocking = false\nmatcher = '^other$'\nscript = 'touch other'";
            hooks.push(other.to_owned());
        }
        let project = project(event, &hooks);
        let (code, text) = run(event, &project);
        assert_eq!(code, exit, "{}: {text}", event.as_str());
        all.push_str(&shown(event, &project));
        let env = project.read("env");
        assert!(env.starts_with(event.as_str()), "{env}");
        assert!(!project.path().join("other").exists(), "{}", event.as_str());
        assert_eq!(lines(&project, "broken").len(), lines(&project, "got").len());
        let id = lines(&project, "got")[0]["run_id"].as_str().unwrap().to_owned();
        let failures = project.read(&format!(".fabro/state/runs/{id}/hooks/failures.log"));
        for (hook, reason) in
            [("broken", "exit code 4"), ("endless", "0.02 s"), ("no program", "exit code 127")]
        {
            let failed = |line: &str| line.contains(&format!("`{hook}`")) && line.contains(reason);
            assert!(failures.lines().any(failed), "{}: {hook}: {failures}", event.as_str());
        }
        assert_eq!(project.exit(&["replay", "latest"]), 0, "{}", event.as_str());
    }
    filters().bind(|| {
        assert_snapshot!(all, @r#"
    run_start ×1 run.started
    run_complete ×1 run.completed status="succeeded"
    run_failed ×1 run.failed failure_reason="exit code 3"
    run_canceled ×1 run.canceled
    run_paused ×1 run.paused
    stage_start ×1 stage.started node_id="a" visit=1
    stage_complete ×1 stage.completed node_id="a" status="succeeded" visit=1
    stage_failed ×1 stage.failed failure_reason="exit code 3" node_id="a" status="failed" visit=1
    stage_retrying ×1 stage.retrying attempt=1 failure_reason="exit code 1" node_id="a" visit=1
    edge_selected ×2 edge.selected edge_from="start" edge_to="a" node_id="start" visit=1
    parallel_start ×1 parallel.started node_id="f" node_label="Both" visit=1
    parallel_complete ×1 parallel.completed node_id="f" node_label="Both" status="succeeded" visit=1
    gate_asked ×1 gate.asked node_id="g" node_label="Ship it?" question="Ship it?" visit=1
    gate_answered ×1 gate.answered node_id="g" node_label="Ship it?" visit=1
    pre_tool_use ×1 agent.tool.started node_id="a" tool_name="shell" visit=1
    post_tool_use ×1 agent.tool.completed node_id="a" tool_name="shell" visit=1
    post_tool_use_failure ×1 agent.tool.completed node_id="a" tool_name="read_file" visit=1
    "#);
    });
}

#[test]
fn events_before_something_happens_can_forbid_it_and_no_others() {
    let mut all = String::new();
    for event in HookEvent::all() {
        let Case { exit, matcher, .. } = case(event);
        let matching = matcher.map(|it| format!("matcher = '{it}'\n")).unwrap_or_default();
        let hook =
            |lines: &str| vec![format!("name = 'guard'\nblocking = true\n{matching}{lines}")];
        if event.is_after_call() {
            // It is waited for, and forbids nothing.
            let project = project(event, &hook("script = 'sleep 0.2; cat >> got; exit 2'"));
            let (code, text) = run(event, &project);
            assert_eq!(code, exit, "{text}");
            assert!(text.contains("its decision is ignored"), "{text}");
            let got = &lines(&project, "got")[0];
            let input = got["tool_input"].to_string();
            let _ = writeln!(all, "{} {} {input}", event.as_str(), got["tool_name"]);
            continue;
        }
        if !event.can_block() {
            let project = project(event, &hook("script = 'exit 2'"));
            let (code, text) = run(event, &project);
            assert_eq!(code, 2, "{}", event.as_str());
            assert!(text.contains("the hook `guard` of `run.hooks` cannot block"), "{text}");
            assert!(!project.path().join("ran").exists());
            continue;
        }
        let decide = |decision: &str| {
            let answer = format!(r#"{{"decision": "{decision}", "reason": "not today"}}"#);
            format!("script = '''echo '{answer}' '''")
        };
        let answers = [
            ("exit 2", "script = 'echo not today >&2; exit 2'".to_owned(), false),
            ("block", decide("block"), false),
            ("proceed", decide("proceed"), true),
            ("silent", "script = 'cat > asked'".to_owned(), true),
            ("broken", "script = 'exit 4'".to_owned(), true),
            ("broken, on_error", "script = 'exit 4'\non_error = 'block'".to_owned(), false),
            ("unknown decision", decide("perhaps"), true),
            ("endless", "script = 'sleep 600'\ntimeout = '20ms'".to_owned(), true),
            (
                "endless, on_error",
                "script = 'sleep 600'\ntimeout = '20ms'\non_error = 'block'".to_owned(),
                false,
            ),
        ];
        for (name, lines, proceeds) in &answers {
            let project = project(event, &hook(lines));
            let (code, text) = run(event, &project);
            let about = format!("{} {name}: {text}", event.as_str());
            assert_eq!(project.path().join("ran").exists(), *proceeds, "{about}");
            // A call that is refused is a result for the model.
            let is_call = event == HookEvent::PreToolUse;
            assert_eq!(code, if *proceeds || is_call { exit } else { 1 }, "{about}");
            let events = project.output(&["events", "latest", "--json"]).stdout;
            let events = String::from_utf8(events).unwrap();
            let gives_reason = events.contains("not today");
            assert_eq!(gives_reason, ["exit 2", "block"].contains(name), "{about}{events}");
            let asked = project.read_or_default("asked");
            if !asked.is_empty() {
                let asked: Value = serde_json::from_str(&asked).unwrap();
                assert_eq!(asked["event"], event.as_str());
                assert!(asked.get("record").is_none());
                let keys = asked.as_object().unwrap().keys().map(String::as_str);
                let _ = writeln!(all, "{}: {}", event.as_str(), keys.collect::<Vec<_>>().join(" "));
            }
        }
    }
    assert_snapshot!(all, @r#"
    run_start: event id run_id workflow_name cwd goal inputs
    stage_start: event id run_id workflow_name cwd node_id visit attempt handler_type
    pre_tool_use: event id run_id workflow_name cwd node_id visit attempt tool_name tool_call_id tool_input
    post_tool_use "shell" {"command":"touch ran"}
    post_tool_use_failure "read_file" {"file_path":"missing"}
    "#);
}
