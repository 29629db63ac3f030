//! Against real servers: a program, and an HTTP server.

mod eras;
mod http;
mod login;
mod stdio;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fabro_config::{McpServer, McpTransport};
use fabro_tools::mcp::Servers;
use fabro_tools::{Call, Output, Tool, ToolContext};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// The example `fake_server`, which `cargo test` builds beside this test.
fn fake_server() -> String {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let path: PathBuf = target.join("examples/fake_server");
    assert!(path.is_file(), "build it: cargo build -p fabro-tools --all-features --examples");
    path.into_os_string().into_string().unwrap()
}

fn stdio(mode: &str) -> McpServer {
    let args = vec![mode.to_owned()];
    let env = [("OWN".to_owned(), "set".to_owned())].into();
    let transport = McpTransport::Command { command: fake_server(), args, env };
    McpServer { transport, ..McpServer::default() }
}

async fn connect(server: McpServer) -> Servers {
    let env = [("GIVEN", "1"), ("PATH", "/usr/bin:/bin")];
    let env = env.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let servers =
        Servers::connect([("fake".to_owned(), server)].into(), Path::new("/"), &env, None).await;
    assert!(servers.failed().len() + usize::from(!servers.tools().is_empty()) == 1);
    servers
}

fn tool(servers: &Servers, name: &str) -> Arc<dyn Tool> {
    let name = format!("mcp__fake__{name}");
    servers.tools().into_iter().find(|tool| tool.spec().name == name).unwrap()
}

async fn call(tool: &Arc<dyn Tool>, arguments: Value) -> Output {
    call_until(tool, arguments, &CancellationToken::new()).await
}

async fn call_until(tool: &Arc<dyn Tool>, arguments: Value, cancel: &CancellationToken) -> Output {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let context = ToolContext {
        workflow_summary: "so far".into(),
        recent_turns: vec!["hello".into()],
        round: 3,
    };
    // More than any of these tests takes; what hangs shall not hang the tests.
    let redactor = fabro_redact::Redactor::default();
    let called = tool.call(Call {
        id: "1",
        arguments: &arguments,
        context: &context,
        cancel,
        redactor: &redactor,
    });
    tokio::time::timeout(Duration::from_mins(1), called).await.unwrap()
}

fn shown(output: &Output) -> String {
    if output.is_error { format!("error: {}", output.text) } else { output.text.clone() }
}
