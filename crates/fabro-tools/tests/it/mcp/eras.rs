//! The protocol of 2026-07-28, that of 2025-11-25, and servers whose tools are partly broken.

use std::sync::atomic::{AtomicU32, Ordering};

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::http::{connect, serve_by};
use super::{call, shown, stdio, tool};

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn result(request: &Value, result: &Value) -> String {
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    response("200 OK", "", &body.to_string())
}

fn error(status: &str, request: &Value, code: i32) -> String {
    let error = json!({"code": code, "message": "refused"});
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
    response(status, "", &body.to_string())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A server of 2026-07-28, which keeps no sessions and wants all of it in each request.
fn modern(head: &str, method: &str, request: &Value) -> String {
    let meta = &request["params"]["_meta"];
    let version = &meta["io.modelcontextprotocol/protocolVersion"];
    let name = request["params"]["name"].as_str();
    if !head.starts_with("POST") {
        return response("405 No", "", "");
    }
    if *version != "2026-07-28" || header(head, "mcp-protocol-version") != version.as_str() {
        return error("400 Bad Request", request, -32022);
    }
    if !meta["io.modelcontextprotocol/clientCapabilities"].is_object() {
        return error("400 Bad Request", request, -32021);
    }
    if header(head, "mcp-method") != Some(method) || header(head, "mcp-name") != name {
        return error("400 Bad Request", request, -32020);
    }
    match method {
        // As little as there may be.
        "server/discover" => {
            let description = json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "new", "version": "1"},
                "instructions": "Be gentle.",
            });
            result(request, &description)
        }
        "tools/list" => result(request, &json!({"resultType": "complete", "tools": tools()})),
        "tools/call" => result(request, &called(request)),
        _ => error("404 Not Found", request, -32601),
    }
}

/// Some of which are broken.
fn tools() -> Value {
    json!([
        {"name": "echo", "inputSchema": {"type": "object"}},
        {"name": "no schema"},
        {"name": "null", "inputSchema": null, "annotations": {"readOnlyHint": "perhaps"}},
        {"name": "text", "inputSchema": "text"},
        {"name": "typo", "inputSchema": {"type": "object", "properties": {"a": {"type": "strnig"}}}},
        {"name": "refers", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://example.org/"}}}},
        {"name": "structured", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["n"]}},
        {"inputSchema": {"type": "object"}},
    ])
}

fn called(request: &Value) -> Value {
    let text = |text: &str| json!({"type": "text", "text": text});
    let arguments = &request["params"]["arguments"];
    match request["params"]["name"].as_str() {
        Some("structured") if arguments["right"] == true => json!({
            "resultType": "complete", "content": [], "structuredContent": {"n": 1},
        }),
        Some("structured") => json!({
            "resultType": "complete", "content": [text("one")], "structuredContent": {"m": 1},
        }),
        Some("null") => json!({
            "resultType": "complete", "content": [text("one"), {"type": "hologram"}], "isError": true,
        }),
        Some("no schema") => {
            json!({"resultType": "input_required", "inputRequests": {}, "requestState": "x"})
        }
        _ => {
            json!({"resultType": "complete", "content": [text(arguments["text"].as_str().unwrap_or_default())]})
        }
    }
}

#[tokio::test]
async fn the_protocol_without_sessions_is_spoken_first() {
    let (url, heard) = serve_by(modern).await;
    let servers = connect(&url, &[]).await;
    assert_eq!(servers.failed().len(), 0, "{:?}", servers.failed());
    let names: Vec<_> = servers.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_snapshot!(names.join(" "), @"mcp__fake__echo mcp__fake__no_schema mcp__fake__null mcp__fake__structured");
    assert_snapshot!(servers.warnings().join("\n"), @r"
    MCP server `fake`: its tool `text` is left out: its inputSchema is not an object
    MCP server `fake`: its tool `typo` is left out: its inputSchema is not valid: /properties/a/type: value is not valid under any of the schemas listed in the 'anyOf' keyword
    MCP server `fake`: its tool `refers` is left out: its inputSchema refers to another document, https://example.org/
    MCP server `fake`: its tool `` is left out: it has no name
    ");
    assert_eq!(
        servers.tools()[0].instructions(),
        Some("About all tools of the MCP server `fake`:\n\nBe gentle.")
    );
    let mut said = Vec::new();
    for (name, arguments) in [
        ("echo", json!({"text": "hi"})),
        ("null", json!({})),
        ("structured", json!({"right": true})),
        ("structured", json!({})),
        ("no_schema", json!({})),
    ] {
        said.push(format!("{name}: {}", shown(&call(&tool(&servers, name), arguments).await)));
    }
    assert_snapshot!(said.join("\n"), @r#"
    echo: hi
    null: error: one
    [content of a kind that is not known here]
    structured: {"n":1}
    structured: one
    [the structured result is not as its schema says: "n" is a required property]
    no_schema: error: MCP server `fake`: the tool asks for input, which is not available here
    "#);
    servers.close().await;
    let heard = heard.lock().unwrap().clone();
    assert!(heard.iter().all(|line| !line.starts_with("initialize")), "{heard:?}");
}

static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// A server of 2025-11-25 that loses its session at the first call of a tool.
fn forgetful(head: &str, method: &str, request: &Value) -> String {
    let current = SESSIONS.load(Ordering::Relaxed);
    match (header(head, "mcp-session-id"), method) {
        _ if !head.starts_with("POST") => response("405 No", "", ""),
        (None, "initialize") => {
            assert_eq!(request["params"]["protocolVersion"], "2025-11-25");
            let session = SESSIONS.fetch_add(1, Ordering::Relaxed) + 1;
            let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }});
            let headers = format!("mcp-session-id: s{session}\r\n");
            response("200 OK", &headers, &body.to_string())
        }
        (None, _) => response("400 Bad Request", "", "a session is needed"),
        (Some(_), "tools/call") if current == 1 => response("404 Not Found", "", ""),
        (Some(id), _) if id != format!("s{current}") => response("404 Not Found", "", ""),
        (Some(_), "tools/list") => result(request, &json!({"tools": tools()})),
        (Some(_), "tools/call") => result(request, &called(request)),
        _ => response("202 Accepted", "", ""),
    }
}

#[tokio::test]
async fn an_older_server_is_initialized_again_when_it_lost_its_session() {
    let (url, heard) = serve_by(forgetful).await;
    let servers = connect(&url, &[]).await;
    assert_eq!(servers.failed().len(), 0, "{:?}", servers.failed());
    let said = call(&tool(&servers, "echo"), json!({"text": "hi"})).await;
    assert_eq!(shown(&said), "hi");
    servers.close().await;
    let heard = heard.lock().unwrap().clone();
    // The GET for the server's messages has no method, and comes at any time.
    let requests: Vec<_> =
        heard.iter().map(|line| line.trim()).filter(|it| !it.is_empty()).collect();
    assert_snapshot!(requests.join(" "), @"server/discover initialize notifications/initialized tools/list tools/call initialize notifications/initialized tools/call");
}

#[tokio::test]
async fn a_program_that_knows_only_the_older_protocol_is_started_again() {
    // It ends at any request before `initialize`.
    let servers = super::connect(stdio("strict")).await;
    assert_eq!(shown(&call(&tool(&servers, "echo"), json!({"text": "hi"})).await), "hi null");
    servers.close().await;
}

#[tokio::test]
async fn a_canceled_call_is_canceled_on_the_server() {
    let mut server = stdio("");
    server.tool_timeout = Some(std::time::Duration::from_millis(50));
    let servers = super::connect(server).await;
    call(&tool(&servers, "dawdle"), json!({})).await;
    let canceled = call(&tool(&servers, "canceled"), json!({})).await;
    assert_snapshot!(shown(&canceled), @"1");
    servers.close().await;
}

#[tokio::test]
async fn a_call_that_reports_progress_gets_more_time() {
    let mut server = stdio("");
    server.tool_timeout = Some(std::time::Duration::from_millis(400));
    let servers = super::connect(server).await;
    let said = call(&tool(&servers, "steady"), json!({})).await;
    assert_snapshot!(shown(&said), @"done");
    servers.close().await;
}
