use std::time::Duration;

use fabro_fakes::{Ending, Fault, Response, Server};
use fabro_llm::{
    Catalog, ErrorKind, Model, Part, Provider, ProviderKind, Providers, Reply, StopReason, complete,
};
use futures_util::StreamExt;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{BOTH, asked, client, provider, request};

#[tokio::test]
async fn a_turn_that_is_not_whole_is_an_error() {
    let endings = [
        Ending::Early,
        Ending::Reset,
        Ending::BadJson,
        Ending::Error(Fault::Overloaded),
        Ending::Error(Fault::RateLimit),
        Ending::Error(Fault::ContextOverflow),
    ];
    let mut lines = Vec::new();
    for ending in endings {
        for kind in BOTH {
            let response = Response::text("half").ending(ending).usage(100, 5, 0);
            let error = asked(kind, response).await.unwrap_err();
            let input = error.usage.input_tokens;
            lines.push(format!("{ending:?}: {:?} {input}: {error}", error.kind));
        }
    }
    assert_snapshot!(lines.join("\n"), @r"
    Early: BrokenStream 100: the model's answer stopped before its end: try again (test: it ended before it was complete)
    Early: BrokenStream 0: the model's answer stopped before its end: try again (test: it ended before it was complete)
    Reset: BrokenStream 100: the model's answer stopped before its end: try again (test: unexpected EOF during chunk size line)
    Reset: BrokenStream 0: the model's answer stopped before its end: try again (test: unexpected EOF during chunk size line)
    BadJson: BrokenStream 100: the model's answer stopped before its end: try again (test: an event is not valid JSON: EOF while parsing an object at line 1 column 21)
    BadJson: BrokenStream 0: the model's answer stopped before its end: try again (test: an event is not valid JSON: EOF while parsing an object at line 1 column 21)
    Error(Overloaded): Overloaded 100: the model's server is overloaded or has failed: try again later (test: overloaded_error: Overloaded)
    Error(Overloaded): Overloaded 0: the model's server is overloaded or has failed: try again later (test: server_error: The engine is currently overloaded, please try again later)
    Error(RateLimit): RateLimit 100: the model's rate limit is reached: try again later (test: rate_limit_error: This request would exceed your organization's rate limit)
    Error(RateLimit): RateLimit 0: the model's rate limit is reached: try again later (test: rate_limit_exceeded: Rate limit reached for requests)
    Error(ContextOverflow): ContextOverflow 100: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: invalid_request_error: prompt is too long: 215000 tokens > 200000 maximum)
    Error(ContextOverflow): ContextOverflow 0: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: context_length_exceeded: This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.)
    ");
}

#[tokio::test]
async fn half_a_turn_is_seen_and_then_the_error() {
    for kind in BOTH {
        let response = Response::pieces(["a", "b"]).ending(Ending::BadJson);
        let server = Server::start(vec![response]).await.unwrap();
        let mut parts: Vec<_> = client(kind, &server).stream(request("Hi")).collect().await;
        parts.retain(|part| !matches!(part, Ok(Part::Usage(_))));
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert_eq!(parts[0], Ok(Part::Text("a".to_owned())));
        assert_eq!(parts[2].as_ref().unwrap_err().kind, ErrorKind::BrokenStream);
    }
}

#[tokio::test]
async fn bytes_may_drip() {
    for kind in BOTH {
        let drip = Response::pieces(["Grüße ", "👋"]).byte_delay(Duration::from_micros(1));
        assert_eq!(asked(kind, drip).await.unwrap().text(), "Grüße 👋");
    }
}

#[tokio::test]
async fn a_connection_that_ends_at_once_may_be_tried_again() {
    for kind in BOTH {
        let error = asked(kind, Response::gone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    }
}

#[tokio::test]
async fn no_stream_at_all_is_no_answer() {
    for kind in BOTH {
        for body in ["", "hello", r#"{"choices": []}"#, "data: [DONE]\n\n", "data:\n\n"] {
            let response = Response::bytes(200, "text/event-stream", body);
            let error = asked(kind, response).await.unwrap_err();
            let expect = match body {
                r#"{"choices": []}"# => ErrorKind::UnusableAnswer,
                _ => ErrorKind::BrokenStream,
            };
            assert_eq!(error.kind, expect, "{body}: {error}");
        }
    }
}

#[tokio::test]
async fn a_reason_to_stop_is_an_end() {
    let chunk = |delta: Value, reason: Value| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        let usage = if reason.is_null() {
            Value::Null
        } else {
            json!({"prompt_tokens": 7, "completion_tokens": 2})
        };
        // With spaces, as servers in Python write it.
        let chunk = json!({"choices": choices, "usage": usage}).to_string();
        format!("data: {}\n\n", chunk.replace("\":", "\": "))
    };
    let call = json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}]});
    let begun = chunk(json!({"content": "whole"}), Value::Null);
    for (rest, expect) in [
        (chunk(json!({}), json!("stop")), Ok((StopReason::Complete, 0))),
        (chunk(json!({}), json!("length")), Ok((StopReason::MaxTokens, 0))),
        (chunk(call.clone(), json!("tool_calls")), Ok((StopReason::ToolCalls, 1))),
        (chunk(json!({}), json!("content_filter")), Err(ErrorKind::ContentFilter)),
        (chunk(json!({"refusal": "No."}), json!("stop")), Err(ErrorKind::ContentFilter)),
        (chunk(call, Value::Null), Err(ErrorKind::BrokenStream)),
    ] {
        let body = format!("{begun}{rest}");
        let response = Response::bytes(200, "text/event-stream", body);
        let reply = asked(ProviderKind::OpenAiCompatible, response).await;
        let result = reply.as_ref().map(|reply| (reply.stop, reply.tool_calls().len()));
        assert_eq!(result.map_err(|error| error.kind), expect, "{rest}");
        if let Ok(reply) = &reply {
            assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (7, 2));
            assert_eq!(reply.text(), "whole");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_a_stream_is_read() {
    let call = |id: &str| json!({"id": id, "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    let body = json!({
        "choices": [{
            "message": {"content": "whole", "reasoning_content": "hm", "tool_calls": [call("x"), call("")]},
            "finish_reason": "tool_calls",
        }],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
    });
    let body = serde_json::to_string_pretty(&body).unwrap();
    for content_type in ["application/json", "text/plain", "text/event-stream"] {
        let answers = vec![Response::bytes(200, content_type, body.as_str()); 2];
        let server = Server::start(answers).await.unwrap();
        let model = client(ProviderKind::OpenAiCompatible, &server);
        for _ in 0..2 {
            let reply = complete(&model, request("Hi")).await.unwrap();
            let used =
                (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens);
            assert_eq!((reply.text().as_str(), used), ("whole", (7, 2, 3)));
            assert_eq!((reply.tool_calls().len(), reply.stop), (2, StopReason::ToolCalls));
            assert_eq!(reply.tool_calls()[1].arguments, json!({"a": 1}));
        }
        // No request is repeated.
        assert_eq!(server.requests().len(), 2);
    }

    let refusal = r#"{"error": {"code": "context_length_exceeded", "message": "too long"}}"#;
    let refused = Response::bytes(200, "application/json", refusal);
    let server = Server::start(vec![refused]).await.unwrap();
    let model = client(ProviderKind::OpenAiCompatible, &server);
    let error = complete(&model, request("Hi")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContextOverflow, "{error}");
}

#[tokio::test]
async fn an_answer_may_be_wanted_as_a_whole() {
    use ProviderKind::{Anthropic, Gemini, OpenAiCompatible, OpenAiResponses};
    let check = async |kind: ProviderKind, response: Response, path: &str| {
        let server = Server::start(vec![response]).await.unwrap();
        let mut request = request("Hi");
        request.streams = false;
        let reply = complete(&client(kind, &server), request).await.unwrap();
        assert_eq!((reply.text().as_str(), reply.stop), ("whole", StopReason::Complete));
        let used = (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens);
        assert_eq!(used, (7, 2, 3), "{kind:?}");
        let sent = &server.requests()[0];
        assert!(sent.path.ends_with(path), "{}", sent.path);
        let sent = sent.json();
        assert!(matches!(sent["stream"], Value::Null | Value::Bool(false)), "{sent}");
        assert!(sent["stream_options"].is_null(), "{sent}");
    };
    let json = |body: Value| Response::bytes(200, "application/json", body.to_string());
    let fake = || Response::text("whole").usage(7, 2, 3);
    check(OpenAiCompatible, fake(), "/chat/completions").await;
    check(Anthropic, fake(), "/messages").await;
    let response = json!({"status": "completed", "error": null,
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "whole"}]},
        ],
        "usage": {"input_tokens": 7, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}},
    });
    check(OpenAiResponses, json(response), "/responses").await;
    let gemini = json!({
        "candidates": [{"content": {"parts": [{"text": "whole"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2, "cachedContentTokenCount": 3},
    });
    check(Gemini, json(gemini), "/models/some-model:generateContent").await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_timeout() {
    for kind in BOTH {
        for response in [Response::silence(), Response::text("half").ending(Ending::Hang)] {
            let server = Server::start(vec![response]).await.unwrap();
            let provider = Provider {
                request_timeout: Some(Duration::from_secs(30)),
                stream_timeout: Some(Duration::from_secs(30)),
                ..provider(kind, &server)
            };
            let model = Providers::new(vec![provider], Catalog::empty()).unwrap();
            let error = complete(&model, request("Hi")).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_has_no_end_is_a_timeout() {
    let timeout = Some(Duration::from_secs(30));
    let pause = Duration::from_millis(250);
    let endless = "z".repeat(500);
    for kind in BOTH {
        for (status, body, expect) in [
            (500, endless.clone(), Err(ErrorKind::Timeout)),
            (401, "{\"error\": \"no\"}".to_owned(), Err(ErrorKind::Auth)),
            (200, format!("data: {endless}"), Err(ErrorKind::Timeout)),
            // Other activity is accepted.
            (200, format!("{}{}", ": wait\n\n".repeat(50), said(kind)), Ok("whole".to_owned())),
        ] {
            let response = Response::bytes(status, "text/event-stream", body).byte_delay(pause);
            let server = Server::start(vec![response]).await.unwrap();
            let provider = Provider {
                request_timeout: timeout,
                stream_timeout: timeout,
                ..provider(kind, &server)
            };
            let model = Providers::new(vec![provider], Catalog::empty()).unwrap();
            let reply = complete(&model, request("Hi")).await;
            let result = reply.as_ref().map(Reply::text).map_err(|error| error.kind);
            assert_eq!(result, expect, "{kind:?} {reply:?}");
        }
    }
}

/// A short answer in short events.
fn said(kind: ProviderKind) -> String {
    match kind {
        ProviderKind::Anthropic => [
            r#"event: content_block_delta
data: {"delta":{"type":"text_delta","text":"whole"}}"#,
            "event: message_stop\ndata: {}",
            "",
        ]
        .join("\n\n"),
        _ => [
            r#"data: {"choices":[{"delta":{"content":"whole"}}]}"#,
            r#"data: {"choices":[{"finish_reason":"stop"}]}"#,
            "data: [DONE]",
            "",
        ]
        .join("\n\n"),
    }
}

#[tokio::test]
async fn a_large_answer_is_whole() {
    let text = "0123456789".repeat(200_000);
    for kind in BOTH {
        assert_eq!(asked(kind, Response::text(text.clone())).await.unwrap().text(), text);
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_given_up() {
    let ping = format!("event: ping\ndata: {}\n\n", "z".repeat(1 << 16));
    let response = Response::bytes(200, "text/event-stream", ping.repeat(1040));
    let error = asked(ProviderKind::Anthropic, response).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    assert_snapshot!(error, @"the model's answer is too large: check the provider (test: it is larger than 64 MB)");
}

#[tokio::test]
async fn a_turn_that_is_dropped_ends_its_connection() {
    let server = Server::start(vec![Response::text("x").ending(Ending::Hang)]).await.unwrap();
    for kind in BOTH {
        let mut turn = client(kind, &server).stream(request("Hi"));
        let mut part = turn.next().await;
        if let Some(Ok(Part::Usage(_))) = part {
            part = turn.next().await;
        }
        assert_eq!(part, Some(Ok(Part::Text("x".to_owned()))));
        drop(turn);
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_event_without_an_end_is_given_up() {
    let line = format!("data: {}", "z".repeat((16 << 20) + 1));
    let lines = format!("data: {}\n", "z".repeat(1 << 20)).repeat(17);
    for kind in BOTH {
        for body in [&line, &lines] {
            let response = Response::bytes(200, "text/event-stream", body.as_str());
            let error = asked(kind, response).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        }
    }
}
