//! The tools of `fabro serve` over HTTP: the client of `rmcp`, and what is refused.

use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Value, json};

use crate::project::Project;
use crate::served::{Response, Served};

const GATE: &str = "digraph { start -> make; make [shape=parallelogram, script=\"echo made\"]
    make -> ask; ask [shape=hexagon, label=\"Ship it?\"]; ask -> exit [label=\"[Y] Yes\"] }";

const ROLES: [&str; 4] = ["--role", "read", "--role", "admin"];

fn project() -> Project {
    Project::with(&[(".fabro/workflows/gate.fabro", GATE)])
}

pub(crate) async fn client(server: &Served, token: &str) -> RunningService<RoleClient, ()> {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
    ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap()
}

async fn call(
    client: &RunningService<RoleClient, ()>,
    name: &'static str,
    arguments: Value,
) -> Result<Value, String> {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let request = CallToolRequestParams::new(name).with_arguments(arguments);
    let result = client.call_tool(request).await.map_err(|error| error.to_string())?;
    let text = &result.content[0].as_text().unwrap().text;
    if result.is_error == Some(true) {
        return Err(text.clone());
    }
    Ok(serde_json::from_str(text).unwrap())
}

#[test]
fn a_client_has_the_tools_of_its_token() {
    let project = project();
    let server = Served::start(&project, &ROLES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let admin = client(&server, &server.tokens[1]).await;
        let started = call(&admin, "start_run", json!({"workflow": "gate"})).await.unwrap();
        let run = started["id"].as_str().unwrap();
        assert_eq!(project.exit(&["wait", run]), 3);
        let report = call(&admin, "inspect_run", json!({"run": run})).await;
        assert_eq!(report, Ok(project.json(&["inspect", run, "--json"])));
        let wrong = call(&admin, "answer_gate", json!({"choice": "n"})).await.unwrap_err();
        assert!(wrong.starts_with("choice_invalid: "), "{wrong}");
        let reader = client(&server, &server.tokens[0]).await;
        let tools = reader.list_all_tools().await.unwrap();
        assert!(tools.iter().all(|tool| {
            tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true))
        }));
        let refused = call(&reader, "cancel_run", json!({})).await.unwrap_err();
        assert!(refused.contains("there is no tool"), "{refused}");
    });
}

/// Sends a message with these headers, as the protocol of 2025-11-25 has it.
fn post(server: &Served, headers: &[&str], message: &str) -> Response {
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let token = format!("Authorization: Bearer {}", server.tokens[0]);
    let named = |name: &str| headers.iter().any(|header| header.starts_with(name));
    let mut all = vec!["Accept: application/json, text/event-stream"];
    let usual = [
        ("Host", &*host),
        ("Authorization", &*token),
        ("Content-Type", "Content-Type: application/json"),
    ];
    all.extend(usual.iter().filter(|(name, _)| !named(name)).map(|(_, header)| *header));
    all.extend(headers.iter().filter(|header| !header.ends_with(": -")));
    server.raw("POST /mcp HTTP/1.1", &all, message)
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

#[test]
fn requests_without_a_token_or_from_other_sites_are_refused() {
    let project = project();
    let server = Served::start(&project, &[]);
    let refused = |headers: &[&str]| post(&server, headers, LIST).problem();
    assert_eq!(post(&server, &[], LIST).status, 200);
    assert_eq!(refused(&["Authorization: -"]), "401 token_invalid");
    assert_eq!(refused(&["Authorization: Bearer x"]), "401 token_invalid");
    let challenge = post(&server, &["Authorization: -"], LIST);
    assert_eq!(challenge.header("www-authenticate"), "Bearer");
    let cookie = format!("Cookie: fabro-{}={}", server.port, server.tokens[0]);
    assert_eq!(refused(&["Authorization: -", &cookie]), "401 token_invalid");
    assert_eq!(refused(&["Host: evil.example"]), "421 host_not_allowed");
    assert_eq!(refused(&["Origin: http://evil.example"]), "403 cross_site");
    assert_eq!(refused(&["Sec-Fetch-Site: cross-site"]), "403 cross_site");
    assert_eq!(refused(&["Content-Type: text/plain"]), "415 media_type");
    let host = format!("Host: 127.0.0.1:{}", server.port);
    for method in ["GET", "DELETE"] {
        let response = server.raw(&format!("{method} /mcp HTTP/1.1"), &[&host], "");
        assert_eq!(response.problem(), "405 method_not_allowed");
        assert_eq!(response.header("allow"), "POST");
    }
}

#[test]
fn messages_follow_the_version_that_they_name() {
    let project = project();
    let server = Served::start(&project, &[]);
    let check = |headers: &[&str], message: &Value| {
        let response = post(&server, headers, &message.to_string());
        let error = if response.body.is_empty() {
            Value::Null
        } else {
            response.json()["error"]["code"].clone()
        };
        (response.status, error)
    };
    let request = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let initialized = post(&server, &[], &request("initialize", hello).to_string()).json();
    assert_eq!(initialized["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(initialized["result"]["serverInfo"]["name"], "fabro");
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(check(&[], &note), (202, Value::Null));
    let old = ["MCP-Protocol-Version: 2025-06-18"];
    assert_eq!(check(&old, &request("ping", json!({}))), (200, Value::Null));
    assert_eq!(check(&old, &request("resources/none", json!({}))), (200, json!(-32601)));
    assert_eq!(
        check(&["MCP-Protocol-Version: 1999-01-01"], &request("ping", json!({}))),
        (400, json!(-32022))
    );
    assert_eq!(check(&[], &json!([1])), (400, json!(-32600)));
    let broken = post(&server, &[], "{");
    assert_eq!((broken.status, &broken.json()["error"]["code"]), (400, &json!(-32700)));

    // Without a handshake, from the version of 2026-07-28 on.
    let meta = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }});
    let version = "MCP-Protocol-Version: 2026-07-28";
    let found = post(
        &server,
        &[version, "Mcp-Method: server/discover"],
        &request("server/discover", meta.clone()).to_string(),
    );
    assert_eq!(found.status, 200, "{}", String::from_utf8_lossy(&found.body));
    assert!(
        found.json()["result"]["supportedVersions"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28"))
    );
    let mut params = meta.clone();
    params["name"] = json!("list_runs");
    params["arguments"] = json!({});
    let call = request("tools/call", params);
    let headers = [version, "Mcp-Method: tools/call", "Mcp-Name: list_runs"];
    assert_eq!(check(&headers, &call), (200, Value::Null));
    assert_eq!(
        check(&[version, "Mcp-Method: tools/list", headers[2]], &call),
        (400, json!(-32020))
    );
    assert_eq!(check(&[version, headers[1], "Mcp-Name: inspect_run"], &call), (400, json!(-32020)));
    assert_eq!(
        check(&["MCP-Protocol-Version: 2025-11-25", headers[1], headers[2]], &call),
        (400, json!(-32020))
    );
    let unknown = request("resources/none", meta);
    assert_eq!(check(&[version, "Mcp-Method: resources/none"], &unknown), (404, json!(-32601)));
}
