//! `fabro trace`: runs as OpenTelemetry traces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fabro_fakes::{Response, Server};
use insta::assert_snapshot;
use serde_json::Value;

use crate::project::Project;

const WORKFLOW: &str = r#"digraph W {
    start -> write -> fork
    write [prompt="Write it", permissions=full]
    fork [shape=component]; fork -> a; fork -> b; a -> join; b -> join
    a [shape=parallelogram, script="true"]
    b [shape=house, stack.child_workflow="child.fabro"]
    join [shape=tripleoctagon]; join -> bad
    bad [shape=parallelogram, script="echo broken >&2; exit 3"]
    bad -> exit [condition="outcome=fail"]; bad -> join
    exit [status=succeeded]
}"#;
const CHILD: &str =
    "digraph C { start -> x -> exit; x [shape=parallelogram, script=\"echo child\"] }";
const MODEL: &str = r#"{"write": [
    {"text": "looking", "tool_calls": [{"name": "shell", "arguments": {"command": "echo the-result"}}]},
    {"text": "the-answer", "usage": {"input_tokens": 10, "output_tokens": 3}}
]}"#;

fn project() -> Project {
    let project = Project::with(&[
        ("w.fabro", WORKFLOW),
        ("child.fabro", CHILD),
        ("model.json", MODEL),
        (".fabro/config.toml", "_version = 1\n"),
    ]);
    assert_eq!(project.exit(&["run", "w.fabro", "--model-script", "model.json"]), 0);
    project
}

fn spans(trace: &Value) -> Vec<Value> {
    trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn text<'s>(span: &'s Value, key: &str) -> &'s str {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|it| it["key"] == key);
    found.map_or("", |it| it["value"]["stringValue"].as_str().unwrap_or("?"))
}

/// The spans as a tree of names, with status and operation.
fn tree(spans: &[Value]) -> String {
    fn write(spans: &[Value], parent: Option<&Value>, depth: usize, out: &mut String) {
        for span in spans.iter().filter(|span| span.get("parentSpanId") == parent) {
            let status = span["status"]["code"].as_u64().unwrap();
            let name = span["name"].as_str().unwrap();
            let _ = writeln!(out, "{}{name} [{status}]", "  ".repeat(depth));
            write(spans, span.get("spanId"), depth + 1, out);
        }
    }
    let mut out = String::new();
    write(spans, None, 0, &mut out);
    out
}

#[test]
fn a_run_is_one_trace() {
    let project = project();
    let trace = project.json(&["trace", "latest"]);
    let spans = spans(&trace);
    assert_snapshot!(tree(&spans), @r"
    invoke_workflow W [1]
      stage start [1]
      invoke_agent write [1]
        chat scripted [1]
        execute_tool shell [1]
        chat scripted [1]
      stage fork [1]
        stage a [1]
        stage b [1]
          invoke_workflow C [1]
            stage start [1]
            stage x [1]
            stage exit [1]
      stage join [1]
      stage bad [2]
      stage exit [1]
    ");
    let ids: BTreeSet<_> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len());
    let traces: BTreeSet<_> = spans.iter().map(|span| span["traceId"].as_str().unwrap()).collect();
    assert!(traces.len() == 1 && traces.iter().all(|id| id.len() == 32));
    for span in &spans {
        let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
    }
    let bad = spans.iter().find(|span| span["name"] == "stage bad").unwrap();
    assert_eq!(text(bad, "error.type"), "deterministic");
    assert!(bad["status"]["message"].as_str().unwrap().contains("broken"));
    assert_eq!(project.json(&["trace"]), trace, "the same ids each time");
    let all = trace.to_string();
    assert!(
        !all.contains("the-answer") && !all.contains("the-result") && !all.contains("Write it")
    );
    let full = project.json(&["trace", "--content"]).to_string();
    assert!(
        full.contains("the-answer") && full.contains("the-result") && full.contains("Write it")
    );
    assert_eq!(project.exit(&["trace", "-o", "trace.json"]), 0);
    assert_eq!(serde_json::from_str::<Value>(&project.read("trace.json")).unwrap(), trace);
}

#[test]
fn a_trace_is_sent_to_a_collector() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answers = vec![
        Response::bytes(200, "application/json", "{}"),
        Response::bytes(
            200,
            "application/json",
            r#"{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too many"}}"#,
        ),
        Response::bytes(401, "text/plain", "no token"),
        Response::bytes(200, "application/json", "{}"),
    ];
    let server = runtime.block_on(Server::start(answers)).unwrap();
    let project = project();
    let missing = project.run(&["trace", "--send"]);
    assert!(missing.starts_with("exit 2\n") && missing.contains("--otlp"), "{missing}");
    let url = server.url();
    let sent = project.run(&["trace", "--send", "--otlp", &url]);
    assert!(sent.starts_with("exit 0\n") && sent.contains("spans of run"), "{sent}");
    let partial = project.run(&["trace", "--send", "--otlp", &url]);
    assert!(
        partial.starts_with("exit 1\n") && partial.contains("refused 2 spans: too many"),
        "{partial}"
    );
    let refused = project.run(&["trace", "--send", "--otlp", &url]);
    assert!(
        refused.starts_with("exit 1\n") && refused.contains("answered 401: no token"),
        "{refused}"
    );
    let wrong = project.run(&["trace", "--send", "--otlp", "collector"]);
    assert!(wrong.contains("is not the URL of a collector"), "{wrong}");

    // Each run sends its trace at its end.
    let config =
        format!("_version = 1\n[telemetry]\notlp = \"{url}\"\nheaders = {{ X-Team = \"t\" }}\n");
    project.write(".fabro/config.toml", config.as_bytes());
    server.take_requests();
    assert_eq!(project.exit(&["run", "child.fabro"]), 0);
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0].path.as_str(), requests[0].header("x-team")),
        ("/v1/traces", Some("t"))
    );
    assert_eq!(spans(&requests[0].json())[0]["name"], "invoke_workflow C");

    // A dry run reaches nothing.
    assert_eq!(project.exit(&["run", "child.fabro", "--dry-run"]), 0);
    assert_eq!(server.requests().len(), 1);

    // Without its collector a run ends as it would.
    drop(server);
    let silent = "_version = 1\n[telemetry]\notlp = \"http://127.0.0.1:9\"\n";
    project.write(".fabro/config.toml", silent.as_bytes());
    let alone = project.run(&["run", "child.fabro"]);
    assert!(alone.starts_with("exit 0\n") && alone.contains("the trace was not sent"), "{alone}");
}

#[test]
fn a_trace_of_a_running_or_rewound_run_is_whole() {
    let flow = "digraph { start -> a -> gate -> exit; a [shape=parallelogram, script=true]; gate [shape=hexagon] }";
    let project = Project::with(&[("w.fabro", flow)]);
    assert_eq!(project.exit(&["run", "w.fabro"]), 3);
    let names = || {
        let mut names = BTreeMap::new();
        for span in spans(&project.json(&["trace"])) {
            *names.entry(span["name"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
        names
    };
    assert_eq!(names().get("stage gate"), Some(&1));
    assert_eq!(project.exit(&["rewind", "latest", "start"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 3);
    assert_eq!(names().get("stage a"), Some(&1));
}
