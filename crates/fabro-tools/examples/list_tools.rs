//! Lists the tools of a server and calls the first one.
//!
//! `cargo run -p fabro-tools --features mcp --example list_tools [COMMAND [ARGUMENT …]]`; without a command it talks
//! to a server that is a few lines of shell.

use std::collections::BTreeMap;

use fabro_config::{McpServer, McpTransport};
use fabro_redact::Redactor;
use fabro_tools::mcp::Servers;
use fabro_tools::{Call, ToolContext};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
while read -r line; do
    id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
        *'"initialize"'*) answer "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"clock","version":"1"}}';;
        *'"tools/list"'*) answer "$id" '{"tools":[{"name":"year","description":"Tells the year","inputSchema":{"type":"object"}}]}';;
        *'"tools/call"'*) answer "$id" '{"content":[{"type":"text","text":"'"$(date +%Y)"'"}]}';;
    esac
done"#;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it got")]
async fn main() {
    let mut words = std::env::args().skip(1);
    let (command, args) = match words.next() {
        Some(command) => (command, words.collect()),
        None => ("sh".to_owned(), vec!["-c".to_owned(), SERVER.to_owned()]),
    };
    let path = ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default());
    let transport = McpTransport::Command { command, args, env: BTreeMap::new() };
    let server = McpServer { transport, ..McpServer::default() };
    let servers = BTreeMap::from([("example".to_owned(), server)]);
    let servers = Servers::connect(servers, std::path::Path::new("."), &[path], None).await;
    for error in servers.failed() {
        println!("{error}");
    }
    let tools = servers.tools();
    for tool in &tools {
        println!("{}: {}", tool.spec().name, tool.spec().description);
    }
    if let Some(tool) = tools.first() {
        let arguments = Map::new();
        let context = ToolContext::default();
        let cancel = CancellationToken::new();
        let redactor = Redactor::default();
        let call = Call {
            id: "1",
            arguments: &arguments,
            context: &context,
            cancel: &cancel,
            redactor: &redactor,
        };
        println!("{:?}", tool.call(call).await);
    }
    servers.close().await;
}
