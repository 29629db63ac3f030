//! What is done to a run has the same result by the command line, the API, and tools over stdio and HTTP. The
//! pages send the requests of the API.

use rmcp::RoleClient;
use std::fmt::Write as _;

use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::project::Project;
use crate::serve_mcp::client as stdio_client;
use crate::serve_mcp_http::client as http_client;
use crate::served::Served;

const WORKFLOW: &str = "digraph W { start -> make
    make [shape=parallelogram, script=\"echo made\"]
    make -> ask; ask [shape=hexagon, label=\"Ship it?\"]
    ask -> write [label=\"[Y] Yes\"]; ask -> make [label=\"[N] No\"]
    write [prompt=\"Write\"]; write -> exit }";

const CONFIG: &str = "_version = 1\n[run.model]\nscript = \"../model.json\"\n";

const MODEL: &str = r#"{"write": [{"text": "written"}]}"#;

type Client = RunningService<RoleClient, ()>;

/// How an action is done.
enum Way {
    CommandLine,
    Api(Served),
    Mcp(Client),
    McpOverHttp(Client, #[expect(dead_code, reason = "serves until it is dropped")] Served),
}

const WAYS: [&str; 4] = ["command line", "API", "MCP", "MCP over HTTP"];

impl Way {
    fn of(name: &str, project: &Project, runtime: &Runtime) -> Self {
        match name {
            "API" => Self::Api(Served::start(project, &[])),
            "MCP" => Self::Mcp(runtime.block_on(stdio_client(project, &[]))),
            "MCP over HTTP" => {
                let server = Served::start(project, &[]);
                let client = runtime.block_on(http_client(&server, &server.tokens[0]));
                Self::McpOverHttp(client, server)
            }
            _ => Self::CommandLine,
        }
    }

    /// Does it; the id of the run that it is about, or `None` when it is refused.
    fn act(&self, project: &Project, runtime: &Runtime, step: &Step, run: &str) -> Option<String> {
        let Step { action, inputs } = step;
        let result = match self {
            Self::CommandLine => return by_command(project, action, inputs, run),
            Self::Api(server) => {
                let path = match *action {
                    "start" => "/runs".to_owned(),
                    other => format!("/runs/{run}/{other}"),
                };
                let response = server.send("POST", &path, &inputs.to_string());
                (response.status < 300).then(|| response.json())?
            }
            Self::Mcp(client) | Self::McpOverHttp(client, _) => {
                let mut arguments = inputs.as_object().unwrap().clone();
                if *action != "start" {
                    arguments.insert("run".to_owned(), run.into());
                }
                runtime.block_on(by_tool(client, action, arguments))?
            }
        };
        Some(result["id"].as_str().unwrap().to_owned())
    }
}

async fn by_tool(client: &Client, action: &str, arguments: Map<String, Value>) -> Option<Value> {
    let suffix = if action == "answer" { "gate" } else { "run" };
    let request =
        CallToolRequestParams::new(format!("{action}_{suffix}")).with_arguments(arguments);
    let result = client.call_tool(request).await.unwrap();
    let text = &result.content[0].as_text().unwrap().text;
    (result.is_error != Some(true)).then(|| serde_json::from_str(text).unwrap())
}

fn by_command(project: &Project, action: &str, inputs: &Value, run: &str) -> Option<String> {
    let text = |key: &str| inputs[key].as_str().unwrap_or_default();
    let sets: Vec<String> = inputs["set"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("--set={key}={value}"))
        .collect();
    let mut args: Vec<&str> = match action {
        "start" => vec!["run", text("workflow"), "--goal", text("goal"), "--detach"],
        "answer" => vec!["answer", "--no-resume", run, text("choice")],
        "steer" => vec!["steer", run, text("text")],
        "cancel" => vec!["cancel", run, "--reason", text("reason")],
        "resume" => vec!["resume", run, "--detach"],
        _ => vec![action, "--json", run, text("stage")],
    };
    args.extend(sets.iter().map(String::as_str));
    let output = project.output(&args);
    if !output.status.success() {
        return None;
    }
    let printed = String::from_utf8(output.stdout).unwrap();
    Some(match action {
        "start" => printed.trim().to_owned(),
        "fork" | "rewind" => {
            let value: Value = serde_json::from_str(&printed).unwrap();
            value["id"].as_str().unwrap().to_owned()
        }
        _ => run.to_owned(),
    })
}

/// Something done to a run.
struct Step {
    action: &'static str,
    inputs: Value,
}

fn step(action: &'static str, inputs: Value) -> Step {
    Step { action, inputs }
}

/// What is recorded of a run, without what differs from run to run.
fn recorded(project: &Project, run: &str) -> String {
    let output = project.output(&["events", run, "--json"]);
    let mut lines: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let node = event["node_id"].as_str().unwrap_or_default();
            let properties = &event["properties"];
            let mut shown =
                format!("{} {node} {}", event["event"].as_str().unwrap(), event["visit"]);
            for key in ["status", "reason", "selected", "text", "to", "set"] {
                if !properties[key].is_null() {
                    let _ = write!(shown, " {key}={}", properties[key]);
                }
            }
            shown
        })
        .collect();
    let mut context = project.json(&["context", run, "--json"]);
    context.as_object_mut().unwrap().retain(|key, _| !key.starts_with("internal."));
    lines.push(context.to_string());
    lines.push(project.json(&["inspect", run, "--json"])["status"].to_string());
    lines.join("\n")
}

/// Does the steps each way, waits after each, and compares what is recorded. Says which steps were refused.
#[track_caller]
fn check(steps: &[Step]) -> String {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut expected: Option<(String, String)> = None;
    for name in WAYS {
        let project = Project::with(&[
            (".fabro/workflows/w.fabro", WORKFLOW),
            (".fabro/config.toml", CONFIG),
            ("model.json", MODEL),
        ]);
        let way = Way::of(name, &project, &runtime);
        let mut run = String::new();
        let mut results = Vec::new();
        for step in steps {
            let before = if run.is_empty() { String::new() } else { recorded(&project, &run) };
            if let Some(id) = way.act(&project, &runtime, step, &run) {
                results.push(step.action.to_owned());
                run = id;
                // A run that nothing drives is as it was.
                project.exit(&["wait", &run]);
            } else {
                results.push(format!("{} refused", step.action));
                assert_eq!(recorded(&project, &run), before, "{name}: {}", step.action);
            }
        }
        let result = (results.join(", "), recorded(&project, &run));
        match &expected {
            Some(expected) => assert_eq!(&result, expected, "{name}"),
            None => expected = Some(result),
        }
    }
    expected.unwrap().0
}

fn start() -> Step {
    step("start", json!({"workflow": "w", "goal": "Ship"}))
}

#[test]
fn answers_and_messages_have_the_same_result_each_way() {
    let results = check(&[
        start(),
        step("answer", json!({"choice": "maybe", "resume": false})),
        step("steer", json!({"text": "be brief"})),
        step("answer", json!({"choice": "y", "resume": false})),
        step("answer", json!({"choice": "n", "resume": false})),
        step("resume", json!({})),
        step("resume", json!({})),
        step("cancel", json!({"reason": "late"})),
        step("steer", json!({"text": "late"})),
    ]);
    insta::assert_snapshot!(results, @"start, answer refused, steer, answer, answer refused, resume, resume refused, cancel refused, steer refused");
}

#[test]
fn going_back_has_the_same_result_each_way() {
    let results = check(&[
        start(),
        step("rewind", json!({"stage": "none"})),
        step("rewind", json!({"stage": "make", "set": {"mood": "bold", "count": 2}})),
        step("fork", json!({"stage": "make", "set": {"k": 1}})),
        step("resume", json!({})),
        step("cancel", json!({"reason": "enough"})),
        step("cancel", json!({"reason": "again"})),
        step("rewind", json!({"stage": "make"})),
        step("resume", json!({})),
        step("answer", json!({"choice": "Yes", "resume": false})),
        step("resume", json!({})),
    ]);
    insta::assert_snapshot!(results, @"start, rewind refused, rewind, fork, resume, cancel, cancel refused, rewind, resume, answer, resume");
}
