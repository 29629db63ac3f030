//! The models of others in the clouds, and the prompt cache.

use std::sync::Arc;

use fabro_fakes::{Block, Request as Received, Response, Server, Vendor, caching, strict};
use fabro_llm::{Catalog, Message, Provider, ProviderKind, Providers, Request, complete};
use serde_json::{Value, json};

use crate::{provider, request, result, tools};

const VERTEX: &str = "/v1/projects/p/locations/PLACE/publishers/anthropic";

/// Calls a tool many times for a question, and answers then.
fn plays(calls: usize) -> impl Fn(&Received) -> Response + Send + Sync {
    move |received| {
        let body = received.json();
        let messages = body["messages"].as_array().unwrap();
        let last = messages.last().unwrap().to_string();
        if calls == 0 || last.contains("tool_result") {
            return Response::text("Done");
        }
        let call = |number: usize| Block::Call {
            id: format!("call_{}_{number}", messages.len()),
            name: "read_file".to_owned(),
            arguments: r#"{"path": "a"}"#.to_owned(),
        };
        Response::turn((0..calls).map(call).collect())
    }
}

fn asks(model: &str) -> Request {
    let mut request = request("Read");
    request.model = Some(model.to_owned());
    request.tools = tools();
    request
}

/// Three questions, each answered after the calls of a tool; the cached share of each request, in percent.
async fn talk(providers: &Providers, mut request: Request) -> Vec<u64> {
    let mut shares = Vec::new();
    for _ in 0..3 {
        Arc::make_mut(&mut request.messages).push(Message::user("Go on").into());
        loop {
            let reply = complete(providers, request.clone()).await.unwrap();
            shares.push(reply.usage.cached_tokens * 100 / reply.usage.input_tokens);
            let calls = reply.tool_calls();
            let messages = Arc::make_mut(&mut request.messages);
            messages.push(reply.into_message().into());
            let results = calls.iter().map(|call| result(&call.id, &"text ".repeat(40), false));
            messages.extend(results);
            if calls.is_empty() {
                break;
            }
        }
    }
    shares
}

#[tokio::test]
async fn many_calls_in_a_turn_leave_the_cache_in_reach() {
    for calls in [1, 30] {
        let server = Server::answering(caching(strict(Vendor::Anthropic, plays(calls)))).await;
        let server = server.unwrap();
        let provider = provider(ProviderKind::Anthropic, &server);
        let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
        let shares = talk(&providers, asks("claude-opus-5-5")).await;
        let sizes = server.requests().iter().map(|it| it.body.len()).collect::<Vec<_>>();
        // All that an earlier request had is cached: what is new is the rest.
        for (number, share) in shares.iter().enumerate().skip(1) {
            let expect = sizes[number - 1] as u64 * 100 / sizes[number] as u64;
            assert!(share.abs_diff(expect) <= 12, "{calls} calls: {shares:?} of {sizes:?}");
        }
    }
}

#[tokio::test]
async fn the_cache_is_kept_for_an_hour_where_the_settings_say_so() {
    let marks = |long_cache| async move {
        let server = Server::answering(caching(strict(Vendor::Anthropic, plays(1)))).await.unwrap();
        let provider = Provider { long_cache, ..provider(ProviderKind::Anthropic, &server) };
        let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
        talk(&providers, asks("claude-opus-5-5")).await;
        let body = String::from_utf8(server.requests().pop().unwrap().body).unwrap();
        let count = |text: &str| body.matches(text).count();
        (count(r#""cache_control":{"type":"ephemeral"}"#), count(r#","ttl":"1h"}"#))
    };
    assert_eq!(marks(false).await, (4, 0));
    assert_eq!(marks(true).await, (0, 4));
}

#[tokio::test]
async fn claude_answers_on_vertex_ai() {
    for (place, dollars) in [("global", 4.0), ("us-east5", 4.4)] {
        let answer = strict(Vendor::Anthropic, plays(1));
        let server = Server::answering(move |request| answer(request).usage(1_000_000, 0, 0));
        let server = server.await.unwrap();
        let base_url = Some(format!("{}{}", server.url(), VERTEX.replace("PLACE", place)));
        let provider = Provider { base_url, ..provider(ProviderKind::Anthropic, &server) };
        let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
        let mut request = asks("claude-opus-5-5");
        let usage = complete(&providers, request.clone()).await.unwrap().usage;
        assert!((usage.cost_usd - dollars).abs() < 1e-9, "{place}: {usage:?}");
        request.streams = false;
        complete(&providers, request).await.unwrap();
        let got = server.requests();
        let paths: Vec<_> = got.iter().map(|it| it.path.rsplit('/').next().unwrap()).collect();
        assert_eq!(paths, ["claude-opus-5-5:streamRawPredict", "claude-opus-5-5:rawPredict"]);
        assert_eq!(got[0].header("authorization"), Some("Bearer sk-planted-secret"));
        assert_eq!(got[0].header("x-api-key"), None);
    }
}

#[tokio::test]
async fn a_model_on_bedrock_has_the_rules_of_its_own_but_no_price() {
    let server = Server::answering(caching(strict(Vendor::Anthropic, plays(1)))).await.unwrap();
    let base_url = Some(format!("{}/bedrock/anthropic", server.url()));
    let provider = Provider { base_url, ..provider(ProviderKind::Anthropic, &server) };
    let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
    for model in ["anthropic.claude-opus-5-5", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"] {
        let mut request = asks(model);
        request.reasoning_effort = Some("high".to_owned());
        let usage = complete(&providers, request).await.unwrap().usage;
        assert_eq!((usage.cost_usd, usage.unpriced_requests), (0.0, 1));
        let got = server.take_requests().pop().unwrap();
        assert_eq!(got.path, "/bedrock/anthropic/v1/messages");
        assert_eq!(got.header("authorization"), Some("Bearer sk-planted-secret"));
        assert!(!got.json()["thinking"].is_null(), "{model}");
    }
}

#[tokio::test]
async fn a_deployment_under_any_name_is_asked_as_its_model_wants() {
    // Azure, where the name says nothing of the model.
    let server = Server::answering(|received| {
        let body = received.json();
        let refusal = |message: &str, param: &str| {
            let error = json!({"message": message, "type": "invalid_request_error", "param": param,
                "code": "unsupported_parameter"});
            Response::bytes(400, "application/json", json!({"error": error}).to_string())
        };
        if !body["max_tokens"].is_null() {
            let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
            return refusal(message, "max_tokens");
        }
        let first = json!({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]});
        let text = json!({"choices": [{"index": 0, "delta": {"content": "Done"}, "finish_reason": "stop"}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
        let body = format!("data: {first}\n\ndata: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
        Response::bytes(200, "text/event-stream", body)
    });
    let server = server.await.unwrap();
    let base_url = Some(format!("{}/openai/v1", server.url()));
    let provider = Provider { base_url, ..provider(ProviderKind::OpenAi, &server) };
    let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
    let mut request = asks("our-deployment");
    request.max_tokens = Some(500);
    for _ in 0..2 {
        assert_eq!(complete(&providers, request.clone()).await.unwrap().text(), "Done");
    }
    let limits = server.requests().into_iter().map(|it| {
        let body: Value = it.json();
        let fields = ["max_tokens", "max_completion_tokens"];
        fields.into_iter().find(|field| !body[*field].is_null()).unwrap_or_default()
    });
    // It is remembered.
    assert_eq!(
        limits.collect::<Vec<_>>(),
        ["max_tokens", "max_completion_tokens", "max_completion_tokens"]
    );
    assert_eq!(server.requests()[0].path, "/openai/v1/chat/completions");
}
