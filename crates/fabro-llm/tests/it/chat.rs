use std::sync::Arc;

use std::collections::BTreeMap;

use fabro_fakes::{Block, Response, Server};
use fabro_llm::{
    Catalog, Content, Message, ModelInfo, Provider, ProviderKind, Providers, Reasoning, Role,
    StopReason, TokenPrices, complete,
};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{asked, client, message, pretty, provider, request, result, sent, tools};

const KIND: ProviderKind = ProviderKind::OpenAiCompatible;

#[tokio::test]
async fn tools_are_called_side_by_side() {
    let thought = Block::Thinking { text: "Hm".to_owned(), signature: None };
    let call = |id: &str, path: &str| Block::Call {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: json!({"path": path}).to_string(),
    };
    let turn = Response::turn(vec![thought, call("c1", "ä"), call("c2", "b")]).usage(100, 20, 60);
    let server = Server::start(vec![turn, Response::text("done")]).await.unwrap();
    let client = client(KIND, &server);
    let mut request = request("Read");
    request.tools = tools();
    let reply = complete(&client, request.clone()).await.unwrap();
    assert_snapshot!(serde_json::to_string_pretty(&reply).unwrap(), @r#"
    {
      "content": [
        {
          "type": "reasoning",
          "text": "Hm",
          "provider": "openai-compatible",
          "model": "some-model"
        },
        {
          "type": "tool_call",
          "id": "c1",
          "name": "read_file",
          "arguments": {
            "path": "ä"
          }
        },
        {
          "type": "tool_call",
          "id": "c2",
          "name": "read_file",
          "arguments": {
            "path": "b"
          }
        }
      ],
      "usage": {
        "model": "some-model",
        "response_model": "scripted-1",
        "provider": "test",
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 60,
        "unpriced_requests": 1,
        "turns": 1
      },
      "stop": "tool_calls"
    }
    "#);
    Arc::make_mut(&mut request.messages).push(reply.into_message().into());
    Arc::make_mut(&mut request.messages).push(result("c1", "text of a", false));
    Arc::make_mut(&mut request.messages).push(result("c2", "no such file", true));
    assert_eq!(complete(&client, request.clone()).await.unwrap().text(), "done");
    assert_snapshot!(pretty(&server.requests()[1].json()["messages"]), @r#"
    [
      {
        "role": "system",
        "content": "Be short"
      },
      {
        "role": "user",
        "content": "Read"
      },
      {
        "role": "assistant",
        "content": null,
        "reasoning_content": "Hm",
        "tool_calls": [
          {
            "type": "function",
            "id": "c1",
            "function": {
              "name": "read_file",
              "arguments": "{\"path\":\"ä\"}"
            }
          },
          {
            "type": "function",
            "id": "c2",
            "function": {
              "name": "read_file",
              "arguments": "{\"path\":\"b\"}"
            }
          }
        ]
      },
      {
        "role": "tool",
        "content": "text of a",
        "tool_call_id": "c1"
      },
      {
        "role": "tool",
        "content": "no such file",
        "tool_call_id": "c2"
      }
    ]
    "#);

    // It stays where it is, as conversations only grow; another model does not get it.
    Arc::make_mut(&mut request.messages).push(Message::assistant("done").into());
    Arc::make_mut(&mut request.messages).push(Message::user("More").into());
    let body = sent(KIND, request.clone()).await;
    assert_eq!(body["messages"][2]["reasoning_content"], "Hm");
    request.model = Some("another".to_owned());
    let body = sent(KIND, request).await;
    assert_eq!(body["messages"][2]["reasoning_content"], Value::Null);
}

#[tokio::test]
async fn everything_of_a_request_is_sent() {
    let mut request = request("Hi");
    Arc::make_mut(&mut request.messages).insert(1, Message::system("[Context Summary]").into());
    request.model = Some("gpt-5.2".to_owned());
    request.tools = tools();
    request.reasoning_effort = Some("low".to_owned());
    request.speed = Some("fast".to_owned());
    request.max_tokens = Some(4000);
    request.output_schema = Some(json!({"type": "object"}).into());
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    complete(&client(ProviderKind::OpenAi, &server), request).await.unwrap();
    let got = &server.requests()[0];
    assert_eq!(got.path, "/v1/chat/completions");
    assert_eq!(got.header("authorization"), Some("Bearer sk-planted-secret"));
    assert_snapshot!(pretty(&got.json()), @r#"
    {
      "model": "gpt-5.2",
      "stream": true,
      "tools": [
        {
          "type": "function",
          "function": {
            "name": "read_file",
            "description": "does read_file",
            "parameters": {
              "type": "object",
              "properties": {
                "path": {
                  "type": "string"
                }
              }
            }
          }
        },
        {
          "type": "function",
          "function": {
            "name": "web_search",
            "description": "does web_search",
            "parameters": {
              "type": "object",
              "properties": {
                "path": {
                  "type": "string"
                }
              }
            }
          }
        }
      ],
      "messages": [
        {
          "role": "system",
          "content": "Be short\n\n[Context Summary]"
        },
        {
          "role": "user",
          "content": "Hi"
        }
      ],
      "stream_options": {
        "include_usage": true
      },
      "max_completion_tokens": 4000,
      "response_format": {
        "type": "json_schema",
        "json_schema": {
          "name": "answer",
          "strict": false,
          "schema": {
            "type": "object"
          }
        }
      },
      "service_tier": "priority"
    }
    "#);
}

#[tokio::test]
async fn models_that_do_not_think_get_no_effort() {
    let mut request = request("Hi");
    request.model = Some("gpt-4o".to_owned());
    request.reasoning_effort = Some("low".to_owned());
    request.max_tokens = Some(1_000_000);
    let body = sent(KIND, request.clone()).await;
    assert_eq!((&body["reasoning_effort"], &body["max_tokens"]), (&Value::Null, &16_384.into()));
    request.reasoning_effort = Some("hard".to_owned());
    let server = Server::start(vec![]).await.unwrap();
    let error = complete(&client(KIND, &server), request).await.unwrap_err();
    assert_snapshot!(error, @"reasoning effort `hard` is not known: use `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`");
    assert_eq!((server.requests().len(), error.usage.turns), (0, 0));
}

#[tokio::test]
async fn names_are_sent_as_they_are() {
    for model in ["qwen-max", "a/b::c-high", "llama-low", "x-none"] {
        let mut request = request("Hi");
        request.model = Some(model.to_owned());
        let body = sent(KIND, request.clone()).await;
        assert_eq!((&body["model"], &body["reasoning_effort"]), (&model.into(), &Value::Null));
        // It is not known whether they take an effort.
        request.reasoning_effort = Some("medium".to_owned());
        let body = sent(KIND, request).await;
        assert_eq!((&body["model"], &body["reasoning_effort"]), (&model.into(), &Value::Null));
    }
}

#[tokio::test]
async fn no_key_is_needed_and_headers_are_the_users() {
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    let headers = BTreeMap::from([("X-Team".to_owned(), "a".to_owned())]);
    let own = Provider { key: None, headers, ..provider(KIND, &server) };
    let model = Providers::new(vec![own], Catalog::empty()).unwrap();
    complete(&model, request("Hi")).await.unwrap();
    let got = &server.requests()[0];
    assert_eq!((got.header("authorization"), got.header("x-team")), (None, Some("a")));

    let headers = BTreeMap::from([("Authorization".to_owned(), "Basic abc".to_owned())]);
    let own = Provider { headers, ..provider(KIND, &server) };
    let model = Providers::new(vec![own], Catalog::empty()).unwrap();
    complete(&model, request("Hi")).await.unwrap();
    assert_eq!(server.requests()[1].header("authorization"), Some("Basic abc"));
}

#[tokio::test]
async fn calls_without_an_id_of_their_own_get_one() {
    let delta = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_0","function":{"name":"ls","arguments":"{}"}},{"index":1,"function":{"name":"ls"}}]},"finish_reason":"tool_calls"}]}"#;
    let body = format!("data: {delta}\n\ndata: [DONE]\n\n");
    let server =
        Server::start(vec![Response::bytes(200, "text/event-stream", body)]).await.unwrap();
    let client = client(KIND, &server);
    let mut request = request("Hi");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let reply = complete(&client, request.clone()).await.unwrap();
        let new = reply.tool_calls().into_iter().map(|call| call.id);
        Arc::make_mut(&mut request.messages).push(reply.message().into());
        ids.extend(new);
    }
    assert_snapshot!(ids.join(" "), @"call_0 call_2_1 call_3_0 call_3_1 call_4_0 call_4_1");
}

#[tokio::test]
async fn the_stop_reason_is_reported() {
    let stop = async |response| asked(KIND, response).await.map(|reply| reply.stop);
    assert_eq!(stop(Response::text("x")).await, Ok(StopReason::Complete));
    assert_eq!(stop(Response::text("x").stop("length")).await, Ok(StopReason::MaxTokens));
    assert_eq!(stop(Response::calls([("ls", json!({}))])).await, Ok(StopReason::ToolCalls));
    // Some say `stop` although they call tools.
    assert_eq!(
        stop(Response::calls([("ls", json!({}))]).stop("stop")).await,
        Ok(StopReason::ToolCalls)
    );
    assert_eq!(stop(Response::text("")).await, Ok(StopReason::Complete));
}

#[tokio::test]
async fn the_catalog_of_the_user_prices_answers() {
    let server =
        Server::start(vec![Response::text("x").usage(1_000_000, 1_000_000, 0)]).await.unwrap();
    let mut catalog = Catalog::builtin();
    catalog.extend([ModelInfo {
        aliases: vec!["mine".to_owned()],
        cost: TokenPrices {
            input_cost: Some(1.0),
            output_cost: Some(2.0),
            ..TokenPrices::default()
        },
        ..ModelInfo::new("my-model")
    }]);
    let model = Providers::new(vec![provider(KIND, &server)], catalog).unwrap();
    let mut request = request("Hi");
    request.model = Some("mine".to_owned());
    let usage = complete(&model, request).await.unwrap().usage;
    assert_eq!((usage.model.as_deref(), usage.cost_usd), (Some("my-model"), 3.0));
    assert_eq!(server.requests()[0].json()["model"], "my-model");
}

#[tokio::test]
async fn messages_without_content_are_left_out() {
    let mut request = request("Hi");
    let sealed = Reasoning { signature: Some("x".to_owned()), ..Reasoning::default() };
    Arc::make_mut(&mut request.messages)
        .push(message(Role::Assistant, vec![Content::Reasoning(sealed)]));
    Arc::make_mut(&mut request.messages)
        .push(message(Role::Assistant, vec![Content::Text { text: String::new() }]));
    let body = sent(KIND, request).await;
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn calls_with_one_id_stay_apart() {
    let call = |path: &str| Block::Call {
        id: "x".to_owned(),
        name: "read_file".to_owned(),
        arguments: json!({"path": path}).to_string(),
    };
    let reply = asked(KIND, Response::turn(vec![call("a"), call("b")])).await.unwrap();
    let result: Vec<_> =
        reply.tool_calls().into_iter().map(|call| (call.id, call.arguments)).collect();
    let arguments = |path: &str| json!({"path": path});
    let expect = [("x", arguments("a")), ("call_2_1", arguments("b"))];
    assert_eq!(result, expect.map(|(id, arguments)| (id.to_owned(), arguments)));
}

#[tokio::test]
async fn an_answer_of_reasoning_alone_is_not_sent() {
    let mut request = request("Hi");
    let thought = Reasoning { text: "hm".to_owned(), ..Reasoning::default() };
    let messages = Arc::make_mut(&mut request.messages);
    messages.push(message(Role::Assistant, vec![Content::Reasoning(thought)]));
    messages.push(Message::user("Well?").into());
    let body = sent(ProviderKind::OpenAiCompatible, request).await;
    let roles = body["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap());
    assert_eq!(roles.collect::<Vec<_>>(), ["system", "user", "user"], "{body}");
}
