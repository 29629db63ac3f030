//! `fabro mcp serve`, used by the client of `rmcp`.

use std::process::Stdio;

use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::project::Project;

const GATE: &str = "digraph { start -> make; make [shape=parallelogram, script=\"echo made\"]
    make -> ask; ask [shape=hexagon, label=\"Ship it?\"]; ask -> exit [label=\"[Y] Yes\"] }";

type Client = RunningService<RoleClient, ()>;

async fn call(client: &Client, name: &'static str, arguments: Value) -> Result<Value, String> {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let request = CallToolRequestParams::new(name).with_arguments(arguments);
    let result = client.call_tool(request).await.map_err(|error| error.to_string())?;
    let text = &result.content[0].as_text().unwrap().text;
    if result.is_error == Some(true) {
        return Err(text.clone());
    }
    Ok(serde_json::from_str(text).unwrap())
}

pub(crate) async fn client(project: &Project, args: &[&str]) -> Client {
    let mut command = project.command(&["mcp", "serve"]);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Command::from(command).kill_on_drop(true).spawn().unwrap();
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    // Ends when its stdin is closed.
    tokio::spawn(async move { child.wait().await });
    ().serve(streams).await.unwrap()
}

#[test]
fn a_client_starts_answers_and_finishes_a_run() {
    let project = Project::with(&[(".fabro/workflows/gate.fabro", GATE)]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(&project, &[]).await;
        assert_eq!(call(&client, "list_workflows", json!({})).await, Ok(json!(["gate"])));
        let start = json!({"workflow": "gate", "goal": "Ship"});
        let started = call(&client, "start_run", start).await.unwrap();
        let run = started["id"].as_str().unwrap();
        assert_eq!(project.exit(&["wait", run]), 3);
        let report = call(&client, "inspect_run", json!({"run": run})).await;
        assert_eq!(report, Ok(project.json(&["inspect", run, "--json"])));
        let gates = call(&client, "list_gates", json!({})).await.unwrap();
        assert_eq!(gates["gates"][0]["name"], "ask@1");
        let values =
            call(&client, "get_workflow_context", json!({"keys": ["command.output"]})).await;
        assert_eq!(values, Ok(json!({"command.output": "made"})));
        let wrong = call(&client, "answer_gate", json!({"choice": "n"})).await.unwrap_err();
        assert!(wrong.starts_with("choice_invalid: "), "{wrong}");
        let answered =
            call(&client, "answer_gate", json!({"run": run, "choice": "y", "resume": false})).await;
        assert_eq!(answered.unwrap()["answered"], "ask@1");
        let again = call(&client, "answer_gate", json!({"run": run, "choice": "y"})).await;
        assert!(again.unwrap_err().starts_with("gate_answered: "));
        call(&client, "resume_run", json!({"run": run})).await.unwrap();
        assert_eq!(project.exit(&["wait", run]), 0);
        let why = project.json(&["explain", run, "ask", "--json"]);
        assert_eq!(why["answer"]["source"], "mcp");
        client.cancel().await.unwrap();
    });
}

#[test]
fn a_reader_has_no_tool_that_changes() {
    let project = Project::with(&[(".fabro/workflows/gate.fabro", GATE)]);
    assert_eq!(project.exit(&["run", "gate"]), 3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(&project, &["--role", "read"]).await;
        let tools = client.list_all_tools().await.unwrap();
        assert!(tools.iter().all(|tool| {
            tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true))
        }));
        let refused = call(&client, "cancel_run", json!({"run": "latest"})).await.unwrap_err();
        assert!(refused.contains("there is no tool"), "{refused}");
    });
    assert_eq!(project.json(&["inspect", "latest", "--json"])["status"], "paused");
}
