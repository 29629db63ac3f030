use std::collections::BTreeMap;
use std::time::Duration;

use fabro_config::{HttpMethod, HttpTool};
use fabro_fakes::{Response, Server};
use fabro_redact::Redactor;
use fabro_tools::web::{HttpToolCall, Limits};
use fabro_tools::{Call, Tool, ToolContext};
use fabro_types::Permissions;
use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{call, shown};

const PLANTED: &str = "planted-header-value";

fn settings(url: String, method: HttpMethod) -> HttpTool {
    HttpTool {
        name: "lookup".to_owned(),
        description: "Looks a word up".to_owned(),
        parameters: json!({"type": "object"}),
        url,
        method,
        headers: BTreeMap::from([
            ("Authorization".to_owned(), "Bearer $TOKEN".to_owned()),
            ("X-Odd".to_owned(), "$ODD".to_owned()),
            ("X-Team".to_owned(), "team-seven".to_owned()),
        ]),
        instructions: Some("Look words up first.".to_owned()),
        ..HttpTool::default()
    }
}

fn headers() -> BTreeMap<String, String> {
    BTreeMap::from([
        ("Authorization".to_owned(), format!("Bearer {PLANTED}")),
        ("X-Odd".to_owned(), "another-odd-value".to_owned()),
        ("X-Team".to_owned(), "team-seven".to_owned()),
    ])
}

fn tool(settings: HttpTool) -> HttpToolCall {
    HttpToolCall::new(settings, &headers(), Redactor::new([("K", "known-to-redactor")])).unwrap()
}

/// What a tool at this server shows, and what the server saw.
async fn asked(
    script: Vec<Response>,
    arguments: Value,
    change: impl FnOnce(&mut HttpTool),
) -> (String, Vec<String>) {
    let server = Server::start(script).await.unwrap();
    let port = server.address().port();
    let mut settings = settings(server.url() + "/t", HttpMethod::Post);
    change(&mut settings);
    let output = shown(&call(&tool(settings), arguments).await, port);
    let requests = server.requests().into_iter().map(|request| {
        let body = String::from_utf8(request.body.clone()).unwrap();
        format!("{} {} {body}", request.method, request.path)
    });
    (output, requests.collect())
}

fn ok() -> Vec<Response> {
    vec![Response::bytes(200, "application/json", r#"{"found": true}"#)]
}

#[tokio::test]
async fn arguments_are_the_body() {
    let (output, requests) = asked(ok(), json!({"word": "a b", "n": 1}), |_| {}).await;
    assert_eq!(output, r#"{"found": true}"#);
    assert_snapshot!(requests[0], @r#"POST /t {"word":"a b","n":1}"#);
    let methods =
        [(HttpMethod::Put, "PUT"), (HttpMethod::Patch, "PATCH"), (HttpMethod::Delete, "DELETE")];
    for (method, name) in methods {
        let (_, requests) = asked(ok(), json!({"a": null}), |it| it.method = method).await;
        assert_eq!(requests[0], format!("{name} /t {{\"a\":null}}"));
    }
}

#[tokio::test]
async fn arguments_of_a_get_are_its_query() {
    let arguments = json!({"word": "a b&c", "n": 1.5, "all": true, "none": null, "list": ["x", 2], "o": {"k": "v"}});
    let (_, requests) = asked(ok(), arguments, |it| {
        it.method = HttpMethod::Get;
        it.url += "?fixed=1";
    })
    .await;
    assert_snapshot!(requests[0], @"GET /t?fixed=1&word=a+b%26c&n=1.5&all=true&list=x&list=2&o=%7B%22k%22%3A%22v%22%7D");
    let (_, requests) = asked(ok(), json!({}), |it| it.method = HttpMethod::Get).await;
    assert_eq!(requests[0], "GET /t ");
}

#[tokio::test]
async fn the_workflow_is_told_only_where_the_settings_say_so() {
    let forged = json!({"a": 1, "__context": {"round": 99}});
    let (_, requests) = asked(ok(), forged.clone(), |_| {}).await;
    assert_eq!(requests[0], r#"POST /t {"a":1}"#);
    let (_, requests) = asked(ok(), forged.clone(), |it| it.context = true).await;
    assert_snapshot!(requests[0], @r#"POST /t {"a":1,"__context":{"workflow_summary":"the summary","recent_turns":["plan (llm): a & b"],"round":3}}"#);
    let (_, requests) = asked(ok(), forged, |it| {
        it.context = true;
        it.method = HttpMethod::Get;
    })
    .await;
    assert_snapshot!(requests[0], @"GET /t?a=1&__context=%7B%22workflow_summary%22%3A%22the+summary%22%2C%22recent_turns%22%3A%5B%22plan+%28llm%29%3A+a+%26+b%22%5D%2C%22round%22%3A3%7D");
}

#[tokio::test]
async fn a_query_has_the_newest_turns_that_fit() {
    let server = Server::start(ok()).await.unwrap();
    let settings = HttpTool { context: true, ..settings(server.url() + "/t", HttpMethod::Get) };
    let tool = tool(settings);
    let turn = |n: usize| format!("{n}{}", "x".repeat(3_000));
    let context = ToolContext {
        workflow_summary: "s".to_owned(),
        recent_turns: (0..12).map(turn).collect(),
        round: 12,
    };
    let cancel = CancellationToken::new();
    let arguments = serde_json::Map::new();
    let redactor = Redactor::default();
    let call_with = |arguments| Call {
        id: "1",
        arguments,
        context: &context,
        cancel: &cancel,
        redactor: &redactor,
    };
    assert!(!tool.call(call_with(&arguments)).await.is_error);
    let path = &server.requests()[0].path;
    assert!(path.len() < 8_100 && path.contains("11xxx") && path.contains("10xxx"));
    assert!(!path.contains("9xxx") && path.contains("round%22%3A12"));

    let arguments = json!({"a": "x".repeat(40_000)});
    let output = tool.call(call_with(arguments.as_object().unwrap())).await;
    assert_snapshot!(output.text.replace(&server.address().port().to_string(), "PORT"), @"the arguments make a URL of 40124 bytes, too long for a GET: shorten them");
}

#[tokio::test]
async fn headers_are_sent_and_never_shown() {
    let echo = format!("you sent {PLANTED} and another-odd-value, team-seven, known-to-redactor");
    let server = Server::start(vec![
        Response::bytes(200, "text/plain", echo.clone()),
        Response::bytes(401, "text/plain", echo.clone()),
        Response::bytes(401, &format!("application/{PLANTED}"), echo),
        Response::redirect(&format!("http://{PLANTED}.example/{PLANTED}")),
    ])
    .await
    .unwrap();
    let tool = tool(settings(server.url(), HttpMethod::Post));
    let mut all = String::new();
    for _ in 0..4 {
        all.extend([&shown(&call(&tool, json!({})).await, server.address().port()), "\n"]);
    }
    assert_eq!(server.requests()[0].header("authorization"), Some(&*format!("Bearer {PLANTED}")));
    assert_snapshot!(all, @r"
    you sent [redacted:Authorization] and [redacted:X-Odd], team-seven, [redacted:K]
    error: http://127.0.0.1:PORT answered 401 Unauthorized: check headers of the tool `lookup` in the settings

    you sent [redacted:Authorization] and [redacted:X-Odd], team-seven, [redacted:K]
    error: http://127.0.0.1:PORT answered 401 Unauthorized: check headers of the tool `lookup` in the settings

    the answer is application/[redacted:Authorization] (82 bytes), which is not text: only text, HTML, JSON and XML are read
    error: it redirects to http://[redacted:Authorization].example, another origin: name that one in the settings
    ");

    let broken = BTreeMap::from([("Authorization".to_owned(), format!("{PLANTED}\n"))]);
    let error =
        HttpToolCall::new(settings(server.url(), HttpMethod::Post), &broken, Redactor::default());
    assert_snapshot!(error.err().unwrap(), @"the header `Authorization` of the tool `lookup` cannot be sent: check its name and value");
}

#[tokio::test]
async fn a_secret_that_is_cut_through_is_not_shown() {
    let server =
        Server::start(vec![Response::bytes(200, "text/plain", format!("it is {PLANTED}"))])
            .await
            .unwrap();
    let limits = Limits { bytes: 20, ..Limits::default() };
    let tool = tool(settings(server.url(), HttpMethod::Post)).with_limits(limits);
    assert_snapshot!(call(&tool, json!({})).await.text, @r"
    it is 

    [the answer is too long: its end was not read]
    ");
}

#[tokio::test]
async fn answers_that_are_none() {
    let mut all = String::new();
    for response in [
        Response::bytes(500, "text/plain", "x".repeat(9_000)),
        Response::bytes(503, "", ""),
        Response::bytes(204, "", ""),
        Response::bytes(200, "image/png", "x"),
        Response::bytes(302, "text/plain", "nowhere"),
        Response::bytes(422, "text/plain", "no word"),
        Response::gone(),
    ] {
        let output = asked(vec![response], json!({}), |_| {}).await.0;
        all.extend([&output.replace(&"x".repeat(2_000), "x*2000"), "\n"]);
    }
    assert_snapshot!(all, @r"
    error: http://127.0.0.1:PORT answered 500 Internal Server Error: try again later

    x*2000
    error: http://127.0.0.1:PORT answered 503 Service Unavailable: try again later
    204 No Content, without content
    error: the answer is image/png (1 bytes), which is not text: only text, HTML, JSON and XML are read
    error: http://127.0.0.1:PORT answered 302 Found: check url and method of the tool `lookup` in the settings

    nowhere
    error: http://127.0.0.1:PORT answered 422 Unprocessable Entity: check the arguments

    no word
    error: the request failed: connection closed before message completed: check that http://127.0.0.1:PORT can be reached, and url of the tool `lookup` in the settings
    ");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_left() {
    assert_snapshot!(asked(vec![Response::silence()], json!({}), |_| {}).await.0, @"error: timeout: no complete response within 30s; try again later, or request less");
    let server = Server::start(vec![Response::silence()]).await.unwrap();
    let limits = Limits { time: Duration::from_secs(2), ..Limits::default() };
    let tool = tool(settings(server.url(), HttpMethod::Get)).with_limits(limits);
    assert_snapshot!(call(&tool, json!({})).await.text, @"timeout: no complete response within 2s; try again later, or request less");
    let context = ToolContext::default();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let call = Call {
        id: "1",
        arguments: &serde_json::Map::new(),
        context: &context,
        cancel: &cancel,
        redactor: &Redactor::default(),
    };
    assert_snapshot!(tool.call(call).await.text, @"the call was canceled");
}

#[tokio::test]
async fn redirects_stay_where_they_are() {
    let other = Server::start(ok()).await.unwrap();
    let (output, _) = asked(vec![Response::redirect(&other.url())], json!({}), |_| {}).await;
    assert_eq!(
        output.replace(&other.url(), "OTHER"),
        "error: it redirects to OTHER, another origin: name that one in the settings"
    );
    assert!(other.requests().is_empty());

    let (_, requests) =
        asked([vec![Response::redirect("/b").at("/t")], ok()].concat(), json!({"a": 1}), |_| {})
            .await;
    assert_eq!(requests, ["POST /t {\"a\":1}", "GET /b "]);
    let again = Response::bytes(307, "text/plain", "").header("location", "b?c").at("/t");
    let (output, requests) = asked([vec![again], ok()].concat(), json!({"a": 1}), |_| {}).await;
    assert_eq!(requests, ["POST /t {\"a\":1}", "POST /b?c {\"a\":1}"]);
    assert_eq!(output, r#"{"found": true}"#);
    let (output, requests) = asked(vec![Response::redirect("/t")], json!({}), |_| {}).await;
    assert_eq!((requests.len(), &*output), (6, "error: more than 5 redirects: this may be a loop"));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let mut all = String::new();
    for change in [
        |it: &mut HttpTool| it.url = "lookup".to_owned(),
        |it: &mut HttpTool| it.url = "ftp://h/".to_owned(),
        |it: &mut HttpTool| it.parameters = json!("@file.json"),
    ] {
        let mut settings = settings("http://h/".to_owned(), HttpMethod::Post);
        change(&mut settings);
        let error = HttpToolCall::new(settings, &headers(), Redactor::default()).err().unwrap();
        all.extend([&error.to_string(), "\n"]);
    }
    assert_snapshot!(all, @r"
    the tool `lookup` has no usable url: write a whole one, with http:// or https://
    the tool `lookup` has no usable url: write a whole one, with http:// or https://
    the parameters of the tool `lookup` are not a JSON Schema: make them an object
    ");
    let tool = tool(settings("http://h/".to_owned(), HttpMethod::Get));
    assert_eq!(tool.needs(), Permissions::Full);
    assert_eq!(tool.instructions(), Some("Look words up first."));
    assert_eq!((&*tool.spec().name, &*tool.spec().description), ("lookup", "Looks a word up"));
}
