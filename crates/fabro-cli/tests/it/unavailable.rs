//! Set-ups in which nothing can be asked: the run pauses, and resumes once something can.

use std::fmt::Write as _;

use fabro_fakes::{Fault, Response, Server};

use super::project::Project;

/// What stands at the stage that cannot be asked, in each of four workflows.
const WORKFLOWS: [(&str, &str); 4] = [
    ("plain", "start -> a -> exit"),
    ("fail", "start -> a -> exit; a [on_unavailable=fail]"),
    (
        "handled",
        "start -> a; a -> exit; a -> b [condition=\"failure_class!=''\"]; b -> exit; b [shape=parallelogram, script=true]",
    ),
    (
        "target",
        "start -> b -> a; a -> exit [condition=\"outcome=success\"]; a [retry_target=b]; b [shape=parallelogram, script=true, max_visits=2]",
    ),
];

/// The exit codes of the four workflows with these settings.
fn exits(settings: &str, node: &str, script: Option<&str>) -> String {
    let mut line = String::new();
    for (name, body) in WORKFLOWS {
        let source = format!("digraph {{ start; exit; a [prompt=x{node}]; {body} }}");
        let project = Project::with(&[(".fabro/config.toml", settings), ("w.fabro", &source)]);
        let mut args = vec!["run", "w.fabro", "--quiet"];
        if let Some(script) = script {
            project.write("model.json", script.as_bytes());
            args.extend(["--model-script", "model.json"]);
        }
        let _ = write!(line, "{name} {} ", project.exit(&args));
    }
    line.trim_end().to_owned()
}

fn provider(url: &str) -> String {
    format!("_version = 1\n[providers.local]\nkind = 'openai-compatible'\nbase_url = '{url}'\n")
}

#[test]
fn every_set_up_pauses_fails_or_is_handled() {
    let unused = provider("http://127.0.0.1:1/v1");
    let mut lines = Vec::new();
    let mut check = |name: &str, settings: &str, node: &str, script: Option<&str>| {
        lines.push(format!("{name}: {}", exits(settings, node, script)));
    };
    for error in ["auth", "quota", "overloaded", "unreachable", "unknown_model"] {
        let script = format!(r#"{{"a": [{{"error": "{error}"}}]}}"#);
        check(error, "_version = 1\n", "", Some(&script));
    }
    check("no turns", "_version = 1\n", "", Some(r#"{"q": [{"text": "x"}]}"#));
    check("no such provider", &unused, ", provider=opnai", None);
    check("no such agent", &unused, ", backend=acp, acp.command=\"no-such-agent\"", None);
    check("agent exits", &unused, ", backend=acp, acp.command=\"false\"", None);
    let server = "_version = 1\n[run.agent.mcp.search]\ncommand = \"false\"\n";
    let tools = ", permissions=full, tools=\"mcp__search__find\"";
    check("no server of its tools", server, tools, Some(r#"{"a": [{"text": "x"}]}"#));
    let all = ", permissions=full";
    check("no server of other tools", server, all, Some(r#"{"a": [{"text": "x"}]}"#));
    check("agent says nothing", &unused, ", backend=acp, acp.command=\"true\"", None);
    insta::assert_snapshot!(lines.join("\n"), @r"
    auth: plain 3 fail 1 handled 0 target 1
    quota: plain 3 fail 1 handled 0 target 1
    overloaded: plain 3 fail 1 handled 0 target 1
    unreachable: plain 3 fail 1 handled 0 target 1
    unknown_model: plain 3 fail 1 handled 0 target 1
    no turns: plain 2 fail 1 handled 0 target 1
    no such provider: plain 2 fail 2 handled 2 target 2
    no such agent: plain 2 fail 1 handled 0 target 1
    agent exits: plain 3 fail 1 handled 0 target 1
    no server of its tools: plain 3 fail 1 handled 0 target 1
    no server of other tools: plain 0 fail 0 handled 0 target 0
    agent says nothing: plain 3 fail 1 handled 0 target 1
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_key_pauses_and_a_resume_asks_again() {
    let answers =
        vec![Response::text("planned"), Response::error(Fault::Auth), Response::text("done")];
    let server = Server::start(answers).await.unwrap();
    let settings = provider(&format!("{}/v1", server.url()));
    let source = "digraph { start -> a -> b -> exit; a [prompt=x]; b [prompt=y] }";
    let project = Project::with(&[(".fabro/config.toml", &settings), ("w.fabro", source)]);
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 3);
    let runs = project.json(&["ps", "--json"]);
    assert_eq!(runs[0]["status"], "paused");
    let last = project.run(&["events", "latest", "--json"]);
    assert!(last.contains(r#""reason":"unavailable""#), "{last}");
    assert_eq!(project.exit(&["resume", "latest", "--quiet"]), 0);
    assert_eq!(project.exit(&["replay", "latest"]), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_corrected_address_counts_when_it_is_asked_for() {
    // The one that the server lists.
    let source =
        "digraph { start; exit; a [prompt=x, shape=tab, model=default]; start -> a -> exit }";
    let project = Project::with(&[
        (".fabro/config.toml", &provider("http://127.0.0.1:1/v1")),
        ("w.fabro", source),
    ]);
    let paused = project.run(&["run", "w.fabro"]);
    assert!(paused.starts_with("exit 3"), "{paused}");
    assert!(paused.contains(" --refresh-providers\n"), "{paused}");
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    project.write(".fabro/config.toml", provider(&server.base_url()).as_bytes());
    assert_eq!(project.exit(&["resume", "latest", "--quiet"]), 3);
    assert_eq!(project.exit(&["resume", "latest", "--quiet", "--refresh-providers"]), 0);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_first_failure_is_named_everywhere() {
    // `y` fails first, and makes `x` fail, whose branch is the first one.
    let source = "digraph { start; exit; f [shape=component]; m [shape=tripleoctagon]
        x [shape=parallelogram, script=\"until test -e broken; do sleep 0.01; done; sleep 1; exit 1\"]
        y [shape=parallelogram, script=\"touch broken; exit 5\"]
        start -> f; f -> x -> m; f -> y -> m; m -> exit }";
    let project = Project::with(&[("w.fabro", source)]);
    let told = project.run(&["run", "w.fabro"]);
    assert!(told.starts_with("exit 1"), "{told}");
    let listed = told.split("handles 3 failures\n").nth(1).unwrap();
    assert!(listed.trim_start().starts_with("f@1/y/y@1: exit code 5"), "{told}");
    assert!(told.contains(" f@1/y/y@1\nRun it again: "), "{told}");
    let inspected = project.run(&["inspect", "latest"]);
    assert!(inspected.contains("see the failed stage with: fabro inspect"), "{inspected}");
    assert!(inspected.trim_end().ends_with(" f@1/y/y@1"), "{inspected}");
    assert!(project.run(&["ps"]).contains("f@1/y/y@1"));
}
