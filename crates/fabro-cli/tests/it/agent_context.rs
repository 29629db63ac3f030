//! `get_workflow_context` for agents that are other programs: each starts the server that it is given, and calls the tool.

use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;

use crate::project::Project;

/// Starts a server as its client, and prints what the tool says.
const CALL: &str = r#"
def call(command, args, **arguments):
    import json, subprocess
    server = subprocess.Popen([command, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def send(**message):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        server.stdin.flush()
    def ask(id, method, **params):
        send(id=id, method=method, params=params)
        return json.loads(server.stdout.readline())["result"]
    ask(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"})
    send(method="notifications/initialized")
    names = [tool["name"] for tool in ask(2, "tools/list")["tools"]]
    result = ask(3, "tools/call", name="get_workflow_context", arguments=arguments)
    server.stdin.close()
    server.wait()
    told = json.loads(result["content"][0]["text"])
    return f'{names} {told["recent_turns"][0][:22]} {told["round"]} {told["context"].get("mood")}'
"#;

const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from call import call
args = sys.argv[1:]
sys.stdin.read()
said = "no server"
if "--mcp-config" in args:
    [(name, server)] = json.loads(args[args.index("--mcp-config") + 1])["mcpServers"].items()
    allowed = f"mcp__{name}__get_workflow_context" in args[args.index("--allowedTools") + 1:]
    said = f'{allowed} {call(server["command"], server["args"])}'
print(json.dumps({"type": "result", "subtype": "success", "result": said, "session_id": "s"}))
"#;

const CODEX: &str = r#"#!/usr/bin/env python3
import json, os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from call import call
sys.stdin.read()
values = dict(arg.split("=", 1) for arg in sys.argv[1:] if arg.startswith("mcp_servers.fabro."))
command, args = (json.loads(values["mcp_servers.fabro." + key]) for key in ("command", "args"))
item = {"type": "agent_message", "text": call(command, args, keys=["mood"])}
for event in [{"type": "thread.started", "thread_id": "t"}, {"type": "item.completed", "item": item}, {"type": "turn.completed"}]:
    print(json.dumps(event))
"#;

const ACP: &str = r#"#!/usr/bin/env python3
import json, os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from call import call
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
servers = []
for line in sys.stdin:
    message = json.loads(line)
    method, params, id = message.get("method"), message.get("params", {}), message.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        servers = params["mcpServers"]
        send(id=id, result={"sessionId": "s"})
    elif method == "session/prompt":
        said = call(servers[0]["command"], servers[0]["args"]) if servers else "no server"
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": said}}
        send(method="session/update", params={"sessionId": "s", "update": update})
        send(id=id, result={"stopReason": "end_turn"})
"#;

const MODEL: &str =
    r#"{"plan": [{"text": "Two steps. {\"context_updates\": {\"mood\": \"bold\"}}"}]}"#;

fn project(node: &str) -> Project {
    let source = format!(
        "digraph {{ start -> plan -> work -> exit; plan [shape=tab, prompt=Plan]
        work [prompt=Work, {node}] }}"
    );
    let project = Project::with(&[
        ("w.fabro", &source),
        ("model.json", MODEL),
        ("bin/call.py", CALL),
        ("bin/claude", CLAUDE),
        ("bin/codex", CODEX),
        ("bin/acp-agent", ACP),
    ]);
    for name in ["claude", "codex", "acp-agent"] {
        let file = project.path().join("bin").join(name);
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    project
}

/// What the agent of a node with these attributes says.
fn answer(node: &str) -> String {
    let project = project(node);
    let path = std::env::var("PATH").unwrap();
    let mut command = project.command(&["run", "w.fabro", "--model-script", "model.json"]);
    command.env("PATH", format!("{}:{path}", project.path().join("bin").display()));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let stage = project.json(&["inspect", "latest", "work", "--json"]);
    stage["response"].as_str().unwrap().trim().to_owned()
}

#[test]
fn external_agents_read_the_context_of_their_workflow() {
    let check = |node: &str| answer(node);
    assert_snapshot!(check("backend=cli, provider=anthropic"), @"True ['get_workflow_context'] plan (llm): Two steps. 1 bold");
    assert_snapshot!(check("backend=cli, provider=anthropic, permissions=full"), @"True ['get_workflow_context'] plan (llm): Two steps. 1 bold");
    assert_snapshot!(check("backend=cli, provider=openai"), @"['get_workflow_context'] plan (llm): Two steps. 1 bold");
    assert_snapshot!(check("backend=acp, acp.command=\"acp-agent\""), @"['get_workflow_context'] plan (llm): Two steps. 1 bold");
    assert_snapshot!(check("backend=cli, provider=anthropic, context_tool=off"), @"no server");
    assert_snapshot!(check("backend=acp, acp.command=\"acp-agent\", context_tool=off"), @"no server");
}
