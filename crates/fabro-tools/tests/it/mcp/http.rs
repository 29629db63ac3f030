use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabro_config::{McpServer, McpTransport};
use fabro_tools::mcp::Servers;
use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{call, call_until, shown, tool};

pub(super) type Heard = Arc<Mutex<Vec<String>>>;

/// What a server answers: the whole response to the head, the method and the body of a request.
pub(super) type Respond = fn(&str, &str, &Value) -> String;

async fn serve(sse: bool) -> (String, Heard) {
    let json: Respond = |head, method, request| respond(head, method, request, false);
    let stream: Respond = |head, method, request| respond(head, method, request, true);
    serve_by(if sse { stream } else { json }).await
}

/// Answers each request on a connection of its own, until the runtime ends.
pub(super) async fn serve_by(respond: Respond) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?key=s3cret", listener.local_addr().unwrap());
    let heard = Heard::default();
    let log = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&log), respond));
        }
    });
    (url, heard)
}

/// The head and the body of a request.
pub(super) async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    let mut length = 0;
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
        let header = head[before..].to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

async fn answer(stream: TcpStream, log: Heard, respond: Respond) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (head, body) = read_request(&mut stream).await?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    let token = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization"));
    log.lock().unwrap().push(format!("{method} {}", token.unwrap_or_default()));
    if request["params"]["arguments"]["floods"] == true {
        let stream = stream.into_inner().into_std().unwrap();
        std::thread::spawn(move || flood(stream));
        return None;
    }
    if request["params"]["name"] == "hang" {
        std::future::pending::<()>().await;
    }
    let response = respond(&head, &method, &request);
    stream.write_all(response.as_bytes()).await.ok()
}

/// An answer that begins with the size of a chunk, which does not end.
fn flood(mut stream: std::net::TcpStream) {
    use std::io::Write as _;
    stream.set_nonblocking(false).unwrap();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let zeros = vec![b'0'; 65_536];
    let mut open = stream.write_all(head.as_bytes()).is_ok();
    while open {
        open = stream.write_all(&zeros).is_ok();
    }
}

fn respond(head: &str, method: &str, request: &Value, sse: bool) -> String {
    let status = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    if !head.starts_with("POST") {
        return status(if head.starts_with("GET") { "405 No Stream" } else { "204 Gone" });
    }
    let result = match method {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "web", "version": "1"},
        }),
        "tools/list" => json!({"tools": [
            {"name": "echo", "inputSchema": {"type": "object"}},
            {"name": "break", "inputSchema": {"type": "object"}},
            {"name": "hang", "inputSchema": {"type": "object"}},
        ]}),
        "ping" => json!({}),
        "tools/call" if request["params"]["name"] == "break" => return status("500 Broken"),
        "tools/call" if request["params"]["arguments"]["text"] == "accept" => {
            return status("202 Accepted");
        }
        "tools/call" => json!({"content": [
            {"type": "text", "text": request["params"]["arguments"]["text"]},
        ]}),
        _ => return status("202 Accepted"),
    };
    let is_other = request["params"]["arguments"]["text"] == "other";
    let id = if is_other { json!(4_000) } else { request["id"].clone() };
    let message = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let (kind, body) = if sse {
        ("text/event-stream", format!("event: message\ndata: {message}\n\n"))
    } else {
        ("application/json", message)
    };
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nmcp-session-id: s1\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

pub(super) async fn connect(url: &str, headers: &[(&str, &str)]) -> Servers {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let transport = McpTransport::Http { url: url.to_owned(), headers };
    connect_server(McpServer { transport, ..McpServer::default() }).await
}

async fn connect_server(server: McpServer) -> Servers {
    Servers::connect([("fake".to_owned(), server)].into(), Path::new("/"), &[], None).await
}

async fn failure(url: &str, headers: &[(&str, &str)]) -> String {
    connect(url, headers).await.failed().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn answers_come_as_json_or_as_a_stream() {
    for sse in [false, true] {
        let (url, heard) = serve(sse).await;
        let servers = connect(&url, &[("Authorization", "Bearer abc")]).await;
        assert_eq!(servers.tools().len(), 3, "{:?}", servers.failed());
        let said = call(&tool(&servers, "echo"), json!({"text": "hi"})).await;
        assert_eq!(shown(&said), "hi");
        servers.close().await;
        let heard = heard.lock().unwrap().clone();
        assert!(heard.iter().all(|line| line.ends_with("Bearer abc")), "{heard:?}");
        // It does not know the newer protocol.
        assert!(heard[0].starts_with("server/discover"));
        assert!(heard.iter().any(|line| line.starts_with("initialize")));
    }
}

#[tokio::test]
async fn a_request_without_its_answer_is_an_error_at_once() {
    let (url, _) = serve(false).await;
    let servers = connect(&url, &[]).await;
    let echo = tool(&servers, "echo");
    let said = |text: &'static str| call(&echo, json!({"text": text}));
    assert_snapshot!(shown(&said("accept").await), @"error: MCP server `fake`: unexpected server response: it took the request without an answer, which the protocol has for notifications only; the call may have taken effect");
    assert_snapshot!(shown(&said("other").await), @"error: MCP server `fake`: unexpected server response: its answer has the id of another request; the call may have taken effect");
    // The connection is still there.
    assert_eq!(shown(&said("hi").await), "hi");
    servers.close().await;
}

#[tokio::test]
async fn a_request_that_fails_does_not_end_the_connection() {
    let (url, _) = serve(false).await;
    let servers = connect(&url, &[]).await;
    let broken = call(&tool(&servers, "break"), json!({})).await;
    assert_snapshot!(shown(&broken), @"error: MCP server `fake`: HTTP 500");
    let said = call(&tool(&servers, "echo"), json!({"text": "on"})).await;
    assert_eq!(shown(&said), "on");
    servers.close().await;
}

#[tokio::test]
async fn a_request_that_hangs_does_not_stop_the_next_one() {
    let (url, _) = serve(false).await;
    let transport = McpTransport::Http { url, headers: [].into() };
    let tool_timeout = Some(Duration::from_millis(200));
    let servers =
        connect_server(McpServer { transport, tool_timeout, ..McpServer::default() }).await;
    let hung = call(&tool(&servers, "hang"), json!({})).await;
    assert_snapshot!(shown(&hung), @"error: MCP server `fake`: no result within 0.2 s; the call may still take effect");
    let said = call(&tool(&servers, "echo"), json!({"text": "on"})).await;
    assert_eq!(shown(&said), "on");
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_sends_without_end_does_not_delay_the_timeout_of_a_call() {
    let (url, _) = serve(false).await;
    let transport = McpTransport::Http { url, headers: [].into() };
    let tool_timeout = Some(Duration::from_millis(500));
    let servers =
        connect_server(McpServer { transport, tool_timeout, ..McpServer::default() }).await;
    let started = std::time::Instant::now();
    let flooded = call(&tool(&servers, "hang"), json!({"floods": true})).await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert!(shown(&flooded).contains("no result within 0.5 s"), "{}", shown(&flooded));
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_says_why() {
    assert_snapshot!(failure("ftp://example.org/", &[]).await, @"MCP server `fake`: its URL is not valid: give one that begins with http:// or https://");
    assert_snapshot!(failure("http://", &[]).await, @"MCP server `fake`: its URL is not valid: give one that begins with http:// or https://");
    let refused = failure("http://127.0.0.1:1/?key=s3cret", &[]).await;
    assert!(refused.starts_with("MCP server `fake`: error sending request for url (its URL): "));
    assert!(refused.contains("onnection refused"), "{refused}");
    assert_snapshot!(failure("http://127.0.0.1:1/", &[("a b", "c")]).await, @"MCP server `fake`: its header `a b` cannot be sent: check its name and value");
    assert_snapshot!(failure("http://127.0.0.1:1/", &[("Accept", "c")]).await, @"MCP server `fake`: its header `Accept` cannot be sent: check its name and value");
}

#[tokio::test]
async fn a_log_in_that_is_needed_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let refusal =
                "HTTP/1.1 401 No\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(refusal.as_bytes()).await;
        }
    });
    assert_snapshot!(failure(&url, &[]).await, @"MCP server `fake`: it asks for a login: run `fabro mcp login fake`, or set its Authorization header");
}

/// A server whose calls of tools break off: after the first event of a stream (`stream`), or in the middle of an
/// answer; it is gone then.
async fn serve_once(stream: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut socket = BufReader::new(socket);
            let Some((head, body)) = read_request(&mut socket).await else { continue };
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let method = request["method"].as_str().unwrap_or_default();
            if method == "tools/call" {
                let begun = if stream {
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nid: 1\ndata:\n\n"
                } else {
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
                };
                socket.write_all(begun.as_bytes()).await.unwrap();
                socket.flush().await.unwrap();
                return;
            }
            let answer = respond(&head, method, &request, false);
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn a_server_that_ends_in_a_call_is_noticed_before_the_timeout() {
    for stream in [true, false] {
        let url = serve_once(stream).await;
        let servers = connect(&url, &[]).await;
        let began = std::time::Instant::now();
        let broken = shown(&call(&tool(&servers, "echo"), json!({})).await);
        let expect = "error: the call was interrupted, and may have taken effect or not: MCP server `fake`: ";
        assert!(broken.starts_with(expect), "{broken}");
        // The timeout of a call is two minutes.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_login_that_is_lost_in_a_call_is_said() {
    let refusals: [(Respond, &str); 4] = [
        (
            |head, method, request| {
                refusing(head, method, request, "401 No\r\nwww-authenticate: Bearer")
            },
            "error: MCP server `fake`: it asks for a login: run `fabro mcp login fake`, or set its Authorization header",
        ),
        (
            |head, method, request| {
                let scope = "403 No\r\nwww-authenticate: Bearer error=\"insufficient_scope\", scope=\"files:write\"";
                refusing(head, method, request, scope)
            },
            "error: MCP server `fake`: the login lacks the scope `files:write`: run `fabro mcp login --scope files:write fake`",
        ),
        (
            |head, method, request| {
                let scope = "403 No\r\nwww-authenticate: Bearer error=\"insufficient_scope\", scope=\"read write\"";
                refusing(head, method, request, scope)
            },
            "error: MCP server `fake`: the login lacks the scope `read write`: run `fabro mcp login --scope read --scope write fake`",
        ),
        (
            |head, method, request| {
                let scope = "403 No\r\nwww-authenticate: Bearer error=\"insufficient_scope\", scope=\"a;reboot --timeout\"";
                refusing(head, method, request, scope)
            },
            "error: MCP server `fake`: the login lacks the scope `a;reboot --timeout`: run `fabro mcp login --scope SCOPE --scope SCOPE fake`",
        ),
    ];
    for (respond, expect) in refusals {
        let (url, _) = serve_by(respond).await;
        let servers = connect(&url, &[]).await;
        assert_eq!(shown(&call(&tool(&servers, "echo"), json!({})).await), expect);
        servers.close().await;
    }
}

fn refusing(head: &str, method: &str, request: &Value, status: &str) -> String {
    if method == "tools/call" {
        return format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    respond(head, method, request, false)
}

/// A driver that is canceled ends after its calls have ended.
#[tokio::test]
async fn a_canceled_call_has_told_the_server_when_it_ends() {
    let (url, heard) = serve(false).await;
    let servers = connect(&url, &[]).await;
    let cancel = CancellationToken::new();
    let hang = tool(&servers, "hang");
    let canceled = async {
        while !heard.lock().unwrap().iter().any(|line| line.starts_with("tools/call")) {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (output, ()) = tokio::join!(call_until(&hang, json!({}), &cancel), canceled);
    assert_eq!(shown(&output), "error: the call was canceled");
    let last = heard.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last.trim(), "notifications/cancelled");
    servers.close().await;
}
