//! What the servers send, seen from a bare socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod strict;

use std::time::Duration;

use fabro_fakes::{Block, Ending, Fault, Response, Server};
use insta::assert_snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The bytes that come back for a POST of this body; what came until the connection broke.
async fn post(server: &Server, path: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nX-Test: a\r\nanthropic-version: 2023-06-01\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// The payload of the events, without heads and chunk sizes.
fn data(answer: &str) -> String {
    let lines = answer.lines().filter(|line| line.starts_with("data: "));
    lines.map(|line| &line[6..]).collect::<Vec<_>>().join("\n")
}

async fn streamed(response: Response, path: &str) -> String {
    let server = Server::start(vec![response]).await.unwrap();
    post(&server, path, r#"{"stream": true}"#).await
}

const OPENAI: &str = "/v1/chat/completions";
const ANTHROPIC: &str = "/v1/messages";

fn turn() -> Response {
    Response::turn(vec![
        Block::Thinking { text: "Hm".to_owned(), signature: Some("sealed".to_owned()) },
        Block::Redacted { data: "xxx".to_owned() },
        Block::Text { text: vec!["Hel".to_owned(), "lo".to_owned()] },
        Block::Call {
            id: "c1".to_owned(),
            name: "ls".to_owned(),
            arguments: r#"{"a":"ä"}"#.to_owned(),
        },
    ])
    .usage(100, 7, 60)
}

#[tokio::test]
async fn a_turn_of_chat_completions() {
    assert_snapshot!(data(&streamed(turn(), OPENAI).await), @r#"
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"reasoning_content":"Hm"},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"ls","arguments":""}}]},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"ä\"}"}}]},"finish_reason":null}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}
    {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":60}}}
    [DONE]
    "#);
    assert_snapshot!(post(&Server::start(vec![turn()]).await.unwrap(), OPENAI, "{}").await, @r#"
    HTTP/1.1 200 Scripted
    content-length: 421
    connection: close
    content-type: application/json

    {"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"scripted-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello","reasoning_content":"Hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"a\":\"ä\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":60}}}
    "#);
}

#[tokio::test]
async fn a_turn_of_the_messages_api() {
    assert_snapshot!(data(&streamed(turn(), ANTHROPIC).await), @r#"
    {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"scripted-1","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":40,"cache_read_input_tokens":60,"cache_creation_input_tokens":0,"output_tokens":1}}}
    {"type":"ping"}
    {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
    {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
    {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sealed"}}
    {"type":"content_block_stop","index":0}
    {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xxx"}}
    {"type":"content_block_stop","index":1}
    {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}
    {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Hel"}}
    {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"lo"}}
    {"type":"content_block_stop","index":2}
    {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"c1","name":"ls","input":{}}}
    {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\":\"ä\"}"}}
    {"type":"content_block_stop","index":3}
    {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":7}}
    {"type":"message_stop"}
    "#);
    assert_snapshot!(post(&Server::start(vec![turn()]).await.unwrap(), ANTHROPIC, "{}").await, @r#"
    HTTP/1.1 200 Scripted
    content-length: 427
    connection: close
    content-type: application/json

    {"id":"msg_1","type":"message","role":"assistant","model":"scripted-1","content":[{"type":"thinking","thinking":"Hm","signature":"sealed"},{"type":"redacted_thinking","data":"xxx"},{"type":"text","text":"Hello"},{"type":"tool_use","id":"c1","name":"ls","input":{"a":"ä"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":40,"cache_read_input_tokens":60,"cache_creation_input_tokens":0,"output_tokens":7}}
    "#);
}

#[tokio::test]
async fn streams_end_as_they_are_told() {
    let mut lines = Vec::new();
    for ending in [
        Ending::Whole,
        Ending::Early,
        Ending::Reset,
        Ending::BadJson,
        Ending::Error(Fault::Overloaded),
    ] {
        for path in [OPENAI, ANTHROPIC] {
            let answer = streamed(Response::text("x").ending(ending), path).await;
            let last = data(&answer).lines().last().unwrap().to_owned();
            let whole = if answer.ends_with("\r\n0\r\n\r\n") { "whole" } else { "broken" };
            lines.push(format!("{ending:?}: {whole}, {last}"));
        }
    }
    assert_snapshot!(lines.join("\n"), @r#"
    Whole: whole, [DONE]
    Whole: whole, {"type":"message_stop"}
    Early: whole, {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}
    Early: whole, {"type":"content_block_stop","index":0}
    Reset: broken, {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted-1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}
    Reset: broken, {"type":"content_block_stop","index":0}
    BadJson: whole, [DONE]
    BadJson: whole, {"type":"message_stop"}
    Error(Overloaded): whole, [DONE]
    Error(Overloaded): whole, {"type":"message_stop"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn silence_is_silent_and_a_stream_can_hang() {
    for response in [Response::silence(), Response::text("x").ending(Ending::Hang)] {
        let server = Server::start(vec![response]).await.unwrap();
        let answer = post(&server, OPENAI, r#"{"stream": true}"#);
        assert!(tokio::time::timeout(Duration::from_hours(1), answer).await.is_err());
    }
    let server = Server::start(vec![Response::gone()]).await.unwrap();
    assert_eq!(post(&server, OPENAI, "{}").await, "");
}

#[tokio::test]
async fn errors_speak_as_their_provider() {
    let faults = [
        Fault::RateLimit,
        Fault::Overloaded,
        Fault::ServerError,
        Fault::Auth,
        Fault::Forbidden,
        Fault::Quota,
        Fault::ContextOverflow,
        Fault::LlamaContextOverflow,
        Fault::ContentFilter,
        Fault::InvalidRequest,
        Fault::NotFound,
        Fault::BadGateway,
    ];
    let mut lines = Vec::new();
    for fault in faults {
        for path in [OPENAI, ANTHROPIC] {
            let answer = streamed(Response::error(fault), path).await;
            let status = answer.split(' ').nth(1).unwrap();
            lines.push(format!("{status} {}", answer.lines().last().unwrap()));
        }
    }
    assert_snapshot!(lines.join("\n"), @r#"
    429 {"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}
    429 {"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit"}}
    503 {"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error","param":null,"code":null}}
    529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}
    500 {"error":{"message":"The server had an error while processing your request","type":"server_error","param":null,"code":null}}
    500 {"type":"error","error":{"type":"api_error","message":"Internal server error"}}
    401 {"error":{"message":"Incorrect API key provided: sk-12345678***wxyz","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}
    403 {"error":{"message":"Country, region, or territory not supported","type":"invalid_request_error","param":null,"code":"unsupported_country_region_territory"}}
    403 {"type":"error","error":{"type":"permission_error","message":"Your API key may not use this resource"}}
    429 {"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}
    402 {"type":"error","error":{"type":"billing_error","message":"Your credit balance is too low"}}
    400 {"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}
    400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 215000 tokens > 200000 maximum"}}
    400 {"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}
    400 {"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}
    400 {"error":{"message":"The response was filtered due to the prompt triggering the content policy","type":"invalid_request_error","param":null,"code":"content_filter"}}
    400 {"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}
    400 {"error":{"message":"Invalid value: 'x'","type":"invalid_request_error","param":null,"code":"invalid_value"}}
    400 {"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Field required"}}
    404 {"error":{"message":"The model does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    404 {"type":"error","error":{"type":"not_found_error","message":"model: no-such-model"}}
    502 <html><body><h1>502 Bad Gateway</h1></body></html>
    502 <html><body><h1>502 Bad Gateway</h1></body></html>
    "#);
}

#[tokio::test]
async fn paths_have_orders_of_their_own() {
    let page = |text: &str| Response::bytes(200, "text/html", text);
    let script = vec![page("a1").at("/a"), Response::redirect("/b").at("/a"), page("other")];
    let server = Server::start(script).await.unwrap();
    let mut answers = Vec::new();
    for path in ["/a?q=1", "/x", "/a", "/a", "/y"] {
        let answer = post(&server, path, "{}").await;
        answers.push(answer.replace("\r\n", "|"));
    }
    assert_snapshot!(answers.join("\n"), @r"
    HTTP/1.1 200 Scripted|content-length: 2|connection: close|content-type: text/html||a1
    HTTP/1.1 200 Scripted|content-length: 5|connection: close|content-type: text/html||other
    HTTP/1.1 302 Scripted|content-length: 0|connection: close|content-type: text/plain|location: /b||
    HTTP/1.1 302 Scripted|content-length: 0|connection: close|content-type: text/plain|location: /b||
    HTTP/1.1 200 Scripted|content-length: 5|connection: close|content-type: text/html||other
    ");
    assert_eq!(server.requests().len(), 5);
    assert_eq!(server.requests()[0].header("x-test"), Some("a"));
    assert_eq!(server.take_requests().len(), 5);
    assert_eq!(server.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn bytes_drip() {
    let millisecond = Duration::from_millis(1);
    let started = tokio::time::Instant::now();
    let answer =
        streamed(Response::bytes(200, "text/plain", "slowly").byte_delay(millisecond), "/").await;
    assert!(answer.ends_with("slowly"));
    assert!(started.elapsed() >= 6 * millisecond);
    let answer = streamed(Response::text("x").byte_delay(Duration::from_micros(1)), OPENAI).await;
    assert!(answer.contains("\r\n1\r\nd\r\n1\r\na\r\n"), "{answer}");
}

#[tokio::test]
async fn an_incomplete_request_is_not_recorded() {
    let server = Server::start(vec![Response::text("x")]).await.unwrap();
    for part in [
        "POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{\"a\"",
        "POST / HTTP/1.1\r\ncontent-le",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ] {
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(part.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        assert_eq!((answer.len(), server.requests()), (0, vec![]), "{part}");
    }
}

#[tokio::test]
async fn bytes_of_a_script_are_sent_as_they_stand() {
    let response = Response::bytes(404, "text/plain", "gone").at("/p").header("x", "y");
    let server = Server::start(vec![response]).await.unwrap();
    assert_snapshot!(post(&server, "/p", "{}").await.replace('\r', ""), @r"
    HTTP/1.1 404 Scripted
    content-length: 4
    connection: close
    content-type: text/plain
    x: y

    gone
    ");
}

#[tokio::test]
async fn an_answer_can_follow_from_its_request() {
    let server = Server::answering(|request| {
        let messages = request.json()["messages"].as_array().map_or(0, Vec::len);
        Response::text(format!("{messages} messages"))
    });
    let server = server.await.unwrap();
    for (body, text) in [(r#"{"messages": [1, 2]}"#, "2 messages"), ("{}", "0 messages")] {
        let answer = post(&server, OPENAI, body).await;
        assert!(answer.contains(text), "{answer}");
    }
    assert_eq!(server.requests().len(), 2);
}
