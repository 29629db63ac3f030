//! Set-ups that fail: none ends green, and each names its first cause and what to do, at the end of the
//! run, in `inspect` and in `ps`; killed in the middle and resumed too.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use fabro_fakes::{Fault, Request, Response, Server};

use super::project::Project;

/// The set-ups.
const SET_UPS: &str = include_str!("failing.md");

/// How a workflow must end.
struct SetUp<'t> {
    name: &'t str,
    body: String,
    exit: i32,
    /// A part of the message that names the cause.
    cause: &'t str,
    /// A part of what to do.
    fix: &'t str,
}

impl<'t> SetUp<'t> {
    fn read(section: &'t str) -> Self {
        let (name, rest) = section.split_once('\n').unwrap();
        let (body, rest) = rest.split_once("\nexit ").unwrap();
        let (exit, rest) = rest.split_once(": ").unwrap();
        let (cause, fix) = rest.split_once("\nfix: ").unwrap();
        let exit = exit.parse().unwrap();
        Self { name, body: format!("digraph {{ {body} }}"), exit, cause, fix: fix.trim_end() }
    }
}

/// Sub-workflows of the set-ups.
const FILES: [(&str, &str); 5] = [
    (
        "asks.fabro",
        "digraph { start -> a -> b -> exit; a [shape=tab, prompt=x, model=m]; b [shape=tab, prompt=x, model=m] }",
    ),
    (
        "child.fabro",
        r#"digraph { start -> first -> last -> exit; last [shape=parallelogram, script=true]
            first [shape=parallelogram, script="echo no child >&2; exit 5"] }"#,
    ),
    (
        "parent.fabro",
        r#"digraph { start -> below -> exit; below [shape=house, stack.child_workflow="child.fabro"] }"#,
    ),
    ("slow.fabro", "digraph { start -> w -> exit; w [shape=insulator, duration=9s] }"),
    (
        "unavailable.fabro",
        "digraph { start -> ask -> exit; ask [shape=tab, prompt=x, model=auth] }",
    ),
];

/// The server's response to a request for a model of this name.
const MODELS: [&str; 17] = [
    "auth",
    "forbidden",
    "not-found",
    "rate",
    "quota",
    "server",
    "gateway",
    "overloaded",
    "invalid",
    "filter",
    "overflow",
    "page",
    "cut",
    "empty",
    "points",
    "states",
    "calls",
];

fn response(request: &Request) -> Response {
    let fault = match request.json()["model"].as_str().unwrap_or_default() {
        "auth" => Fault::Auth,
        "forbidden" => Fault::Forbidden,
        "not-found" => Fault::NotFound,
        "rate" => Fault::RateLimit,
        "quota" => Fault::Quota,
        "server" => Fault::ServerError,
        "gateway" => Fault::BadGateway,
        "overloaded" => Fault::Overloaded,
        "invalid" => Fault::InvalidRequest,
        "filter" => Fault::ContentFilter,
        "overflow" => Fault::ContextOverflow,
        "page" => return Response::bytes(200, "text/html", "<html>Log in</html>"),
        "cut" => return Response::text("half an answer").stop("length"),
        "empty" => return Response::text(""),
        "points" => return Response::text(r#"{"points": 3}"#),
        "states" => {
            return Response::text(r#"{"outcome": "failed", "failure_reason": "two tests fail"}"#);
        }
        "calls" => return Response::calls([("list_dir", serde_json::json!({"path": "."}))]),
        _ => return Response::text("done").usage(10, 5, 0),
    };
    Response::error(fault).retry_after("0")
}

impl SetUp<'_> {
    fn project(&self, settings: &str) -> Project {
        let project = Project::with(&FILES);
        project.write(".fabro/config.toml", settings.as_bytes());
        project.write("w.fabro", self.body.as_bytes());
        project
    }

    /// What is wrong with how it ends; nothing when it ends as it must.
    fn complaints(&self, settings: &str) -> Vec<String> {
        let Self { name, exit, fix, .. } = self;
        let project = self.project(settings);
        let shown = project.run(&["run", "w.fabro"]);
        let mut wrong = self.complaints_of(&project, &shown);
        if !shown.contains(fix) {
            wrong.push(format!("{name}: no `{fix}` in the output:\n{shown}"));
        }
        if *exit != 2 {
            let count = project.output(&["events", "--json"]).stdout.as_slice().lines().count() / 2;
            wrong.extend(self.complaints_after_a_kill(settings, count));
        }
        wrong
    }

    /// The same when the driver is killed after so many events, and the run is resumed.
    fn complaints_after_a_kill(&self, settings: &str, events: usize) -> Vec<String> {
        let Self { name, fix, .. } = self;
        let project = self.project(settings);
        let mut driver = project.command(&["run", "w.fabro", "--json"]);
        let mut driver = driver.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        assert_eq!(lines.map(Result::unwrap).take(events).count(), events, "{name}");
        driver.kill().unwrap();
        driver.wait().unwrap();
        // It may have ended before the kill.
        let runs = project.json(&["ps", "--json"]);
        if !["interrupted", "paused"].contains(&runs[0]["status"].as_str().unwrap_or_default()) {
            return Vec::new();
        }
        let shown = project.run(&["resume", "latest"]);
        let mut wrong = self.complaints_of(&project, &shown);
        if !shown.contains(fix) {
            wrong.push(format!("{name}: no `{fix}` in the output:\n{shown}"));
        }
        wrong.iter().map(|it| format!("killed after {events} events: {it}")).collect()
    }

    /// What is wrong with the exit code, and with the places that name the cause.
    fn complaints_of(&self, project: &Project, shown: &str) -> Vec<String> {
        let Self { name, exit, cause, .. } = self;
        let mut wrong = Vec::new();
        let mut check = |place: &str, text: &str, part: &str| {
            if !text.contains(part) {
                wrong.push(format!("{name}: no `{part}` in {place}:\n{text}"));
            }
        };
        check("the output", shown, &format!("exit {exit}\n"));
        check("the end", end(shown), cause);
        if *exit != 2 {
            check("inspect", &project.run(&["inspect"]), cause);
            check("ps", &project.run(&["ps"]), cause);
        }
        wrong
    }
}

/// The output of a run without the lines of stages that have ended.
fn end(shown: &str) -> &str {
    let start = shown.find("\nstage ").or_else(|| shown.find("\npaused in"));
    &shown[start.unwrap_or_default()..]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_failing_set_up_ends_green() {
    let server = Server::answering(response).await.unwrap();
    let settings = format!(
        "_version = 1\n[run.agent.mcp.broken]\ncommand = 'false'\n[run.model]\nname = 'm'\nprovider = 'local'\n[providers.local]\nkind = 'openai-compatible'\nbase_url = '{}'\n",
        server.base_url()
    );
    // The server does not list these: without a description a run with them is refused before its first stage.
    let described = MODELS.map(|name| format!("[models.\"{name}\"]\nprovider = 'local'\n"));
    let settings = settings + &described.concat();
    let all: Vec<_> = SET_UPS.split("\n## ").skip(1).map(SetUp::read).collect();
    assert!(all.len() > 60, "{}", all.len());
    let next = Mutex::new(all.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(set_up) = { next.lock().unwrap().next() } {
                    let complaints = set_up.complaints(&settings);
                    wrong.lock().unwrap().extend(complaints);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

#[test]
fn a_key_with_a_line_break_names_its_variable() {
    let flow = "digraph { start -> a -> exit; a [prompt=x] }";
    let settings = "_version = 1\n[providers.house]\nkind = 'openai-compatible'\nbase_url = 'http://127.0.0.1:1'\napi_key_env = 'HOUSE_KEY'\n";
    let project = Project::with(&[("w.fabro", flow), (".fabro/config.toml", settings)]);
    let run = project.command(&["run", "w.fabro"]).env("HOUSE_KEY", "abc\ndef").output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8(run.stderr).unwrap(), @r"
    error: provider `house`: the key in the environment variable `HOUSE_KEY` has a line break or another character that no key has
      help: set the variable again, to the key alone
    ");
}

#[test]
fn a_gate_that_waits_in_several_branches_is_named_once() {
    let flow = r#"digraph { start -> list -> each -> ask -> join -> exit
        list [shape=parallelogram, script="seq 3", on_failure=stop]; each [shape=component, for_each="command.output"]
        ask [shape=hexagon, label="Go on?", question_type=confirmation]; join [shape=tripleoctagon] }"#;
    let project = Project::with(&[("w.fabro", flow)]);
    assert_eq!(project.exit(&["run", "w.fabro"]), 3);
    let shown = project.run(&["ps"]);
    assert!(shown.contains("waiting for an answer to ask in 3 branches\n"), "{shown}");
}

/// A stage that fails, in workflows that handle it in different ways; killed and resumed too.
#[test]
fn handled_failures_end_as_they_must_also_after_a_kill() {
    let cases = [
        ("plain", "a -> exit", "", 1),
        ("continue", "a -> exit", ", on_failure=continue", 0),
        ("stop", "a -> exit", ", on_failure=stop", 1),
        ("partial", "a -> exit", ", allow_partial=true", 0),
        ("status", "a -> exit", ", auto_status=true", 0),
        (
            "edge",
            "a -> b [condition=\"outcome=fail\"]; b -> exit; b [shape=parallelogram, script=true]",
            "",
            0,
        ),
        ("edge of success", "a -> exit [condition=\"outcome=success\"]", "", 1),
        ("graph", "a -> exit; graph [on_failure=continue]", "", 0),
        ("graph stop", "a -> exit; graph [on_failure=stop]", "", 1),
        (
            "conditional",
            "a -> d; d [shape=diamond]; d -> b [condition=\"outcome=fail\"]; b -> exit; b [shape=parallelogram, script=true]",
            "",
            0,
        ),
        ("to the exit", "a -> exit [condition=\"outcome=fail\"]", "", 1),
        (
            "a wait to the exit",
            "a -> w [condition=\"outcome=fail\"]; w -> exit; w [shape=insulator, duration=10ms]",
            "",
            1,
        ),
        ("succeed", "a -> exit", ", on_failure=succeed", 0),
        ("exit", "a -> exit", ", on_failure=exit", 1),
        (
            "an exit of its own",
            "a -> fine [condition=\"outcome=fail\"]; fine [shape=Msquare, status=succeeded]",
            "",
            0,
        ),
    ];
    std::thread::scope(|scope| {
        for (name, edges, attributes, exit) in cases {
            scope.spawn(move || check_handled(name, edges, attributes, exit));
        }
    });
}

#[track_caller]
fn check_handled(name: &str, edges: &str, attributes: &str, exit: i32) {
    let source = format!(
        "digraph {{ start -> a; {edges}
        a [shape=parallelogram{attributes}, script=\"touch began; until test -e go; do sleep 0.01; done; exit 5\"] }}"
    );
    let project = Project::with(&[("w.fabro", &source)]);
    let mut killed = project.command(&["run", "w.fabro", "--quiet"]).spawn().unwrap();
    while !project.path().join("began").exists() {
        assert!(killed.try_wait().unwrap().is_none(), "{name}: it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    project.write("go", b"");
    let resumed = project.run(&["resume", "latest"]);
    assert!(resumed.starts_with(&format!("exit {exit}\n")), "{name}: {resumed}");
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), exit, "{name}, without a kill");
    let causes = project.run(&["ps"]).matches("exit code 5").count();
    assert_eq!(causes, if exit == 0 { 0 } else { 2 }, "{name}");
}

/// A person who ships in spite of a failed check is named at the end of the run; one who has it fixed is not.
#[test]
fn overridden_checks_are_named() {
    let flow = |edge: &str| {
        format!(
            r#"digraph {{ start -> verify; {edge}; ask -> ship [label="[S] Ship anyway"]; ask -> fix [label="[F] Fix"]; fix -> verify
            ship -> exit; ship [shape=parallelogram, script=true]; fix [shape=parallelogram, script="touch fixed"]
            verify [shape=parallelogram, script="test -e fixed"]; ask [shape=hexagon, label="Go on?"] }}"#
        )
    };
    let plain = flow("verify -> ask");
    let handled = flow(r#"verify -> ask [condition="outcome=failed"]; verify -> ship"#);
    for (source, answers, exit, overridden) in [
        (&plain, r#"{"ask": ["S"]}"#, 1, true),
        (&handled, r#"{"ask": ["S"]}"#, 0, true),
        (&handled, r#"{"ask": ["F"]}"#, 0, false),
        (&plain, r#"{"ask": ["F", "S"]}"#, 0, false),
    ] {
        let project = Project::with(&[("w.fabro", source), ("answers.json", answers)]);
        let shown = project.run(&["run", "w.fabro", "--answers", "answers.json"]);
        assert!(shown.starts_with(&format!("exit {exit}\n")), "{answers}: {shown}");
        assert_eq!(shown.contains("\noverridden: verify, by "), overridden, "{answers}: {shown}");
        let page = project.output(&["report", "latest", "-o", "-"]).stdout;
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page.contains("Overridden checks</h2>"), overridden, "{answers}: {page}");
        let inspected = project.json(&["inspect", "--json"]);
        let events = project.output(&["events", "--json"]).stdout;
        let last = String::from_utf8(events).unwrap().lines().last().unwrap().to_owned();
        let end: serde_json::Value = serde_json::from_str(&last).unwrap();
        for list in [&inspected["overridden"], &end["properties"]["overridden"]] {
            assert_eq!(list[0]["node"] == "verify", overridden, "{answers}: {list}");
            if overridden {
                assert_eq!(list[0]["gate"], "ask");
                assert_eq!(list[0]["choice"], "[S] Ship anyway");
            }
        }
    }
    let project = Project::with(&[("w.fabro", &handled)]);
    let shown = project.run(&["run", "w.fabro", "--auto-approve"]);
    assert!(!shown.contains("overridden"), "{shown}");
}

/// The nearest `on_failure` counts: the node's, the graph's, that of a run.toml, the project's.
#[test]
fn settings_say_what_follows_a_failure() {
    let check = |project: &str, run: &str, graph: &str, expect: &str| {
        let flow = format!(
            "digraph {{ {graph} start -> a -> b -> exit; a [shape=parallelogram, script=\"exit 5\"]; b [shape=parallelogram, script=true] }}"
        );
        let settings = format!("_version = 1\n[run]\n{project}\n");
        let run = format!("_version = 1\n[workflow]\ngraph = 'w.fabro'\n[run]\n{run}\n");
        let files = [("w.fabro", &*flow), ("run.toml", &*run), (".fabro/config.toml", &*settings)];
        let project = Project::with(&files);
        project.exit(&["run", "run.toml", "--quiet"]);
        let status = project.json(&["ps", "--json"])[0]["status"].clone();
        assert_eq!(status, expect, "{settings} {run} {graph}");
    };
    check("", "", "", "partially_succeeded");
    check("on_failure = 'stop'", "", "", "failed");
    check("on_failure = 'stop'", "on_failure = 'continue'", "", "succeeded");
    check(
        "on_failure = 'stop'",
        "on_failure = 'continue'",
        "graph [on_failure=route]",
        "partially_succeeded",
    );
    check("on_failure = 'succeed'", "", "", "succeeded");
    check("on_failure = 'exit'", "", "node [on_failure=succeed]", "succeeded");
}

/// The timeout of the project holds for commands without their own, also those of sub-workflows.
#[test]
fn settings_limit_how_long_commands_take() {
    let check = |settings: &str, node: &str, expect: &str| {
        let command = format!("a [script=\"sleep 0.4\", {node}]");
        let child = format!("digraph {{ start -> a -> exit; {command} }}");
        let parent = "digraph { start -> m -> exit; m [shape=house, stack.child_workflow=\"c.fabro\", on_failure=stop] }";
        let settings = format!("_version = 1\n[run]\non_failure = 'stop'\n{settings}\n");
        let files = [("c.fabro", &*child), ("p.fabro", parent), (".fabro/config.toml", &*settings)];
        for file in ["c.fabro", "p.fabro"] {
            let project = Project::with(&files);
            project.exit(&["run", file, "--quiet"]);
            let runs = project.json(&["ps", "--json"]);
            assert_eq!(runs[0]["status"], expect, "{settings} {node} {file}");
        }
    };
    check("", "", "succeeded");
    check("command_timeout = '100ms'", "", "failed");
    check("command_timeout = '100ms'", "timeout=1m", "succeeded");
    check("command_timeout = '100ms'", "timeout=0", "succeeded");
    check("command_timeout = '1m'", "timeout=100ms", "failed");
}

/// A limit of the project holds for a workflow without its own, and for its sub-workflows.
#[test]
fn settings_limit_what_a_run_spends() {
    let model =
        r#"{"*": [{"text": "ok", "usage": {"input_tokens": 1000000, "output_tokens": 0}}]}"#;
    let check = |limit: &str, graph: &str, exit: i32| {
        let flow = format!(
            "digraph {{ {graph} start -> a -> b -> exit; a [shape=tab, prompt=x, model=m]; b [shape=tab, prompt=x, model=m] }}"
        );
        let settings = format!(
            "_version = 1\n{limit}\n[models.m]\ncontext_window = 8192\ninput_cost = 1.0\noutput_cost = 1.0\n"
        );
        let files = [("w.fabro", &*flow), ("m.json", model), (".fabro/config.toml", &*settings)];
        let shown = Project::with(&files).run(&["run", "w.fabro", "--model-script", "m.json"]);
        assert!(shown.starts_with(&format!("exit {exit}\n")), "{limit} {graph}: {shown}");
    };
    check("", "", 0);
    check("[run]\nmax_cost = 0.5", "", 3);
    check("[run]\nmax_cost = 0.5", "graph [max_cost=9]", 0);
    check("[run]\nmax_cost = 'a lot'", "", 2);
}
