use std::sync::Arc;

use fabro_fakes::{Block, Response, Server};
use fabro_llm::{Content, Message, ProviderKind, Reasoning, Role, ToolCall, complete};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{client, message, pretty, request, result, sent, tools};

const KIND: ProviderKind = ProviderKind::Anthropic;

fn thinking_turn() -> Response {
    let thought = |text: &str, seal: &str| Block::Thinking {
        text: text.to_owned(),
        signature: Some(seal.to_owned()),
    };
    let call = |id: &str, name: &str| Block::Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: r#"{"path": "a"}"#.to_owned(),
    };
    Response::turn(vec![
        Block::Redacted { data: "first".to_owned() },
        thought("Hm", "seal1"),
        thought("", "seal2"),
        Block::Redacted { data: "last".to_owned() },
        Block::Text { text: vec!["Let me ".to_owned(), "look".to_owned()] },
        call("c1", "read_file"),
        call("c2", "read_file"),
    ])
    .usage(100, 20, 60)
}

#[tokio::test]
async fn thoughts_go_back_as_they_came() {
    let server = Server::start(vec![thinking_turn(), Response::text("done")]).await.unwrap();
    let client = client(KIND, &server);
    let mut request = request("Read a");
    request.tools = tools();
    let reply = complete(&client, request.clone()).await.unwrap();
    assert_snapshot!(serde_json::to_string_pretty(&reply).unwrap(), @r#"
    {
      "content": [
        {
          "type": "reasoning",
          "redacted": "first",
          "provider": "anthropic",
          "model": "some-model",
          "prefix": "26b414d0bad2c6fc"
        },
        {
          "type": "reasoning",
          "text": "Hm",
          "signature": "seal1",
          "provider": "anthropic",
          "model": "some-model",
          "prefix": "26b414d0bad2c6fc"
        },
        {
          "type": "reasoning",
          "signature": "seal2",
          "provider": "anthropic",
          "model": "some-model",
          "prefix": "26b414d0bad2c6fc"
        },
        {
          "type": "reasoning",
          "redacted": "last",
          "provider": "anthropic",
          "model": "some-model",
          "prefix": "26b414d0bad2c6fc"
        },
        {
          "type": "text",
          "text": "Let me look"
        },
        {
          "type": "tool_call",
          "id": "c1",
          "name": "read_file",
          "arguments": {
            "path": "a"
          }
        },
        {
          "type": "tool_call",
          "id": "c2",
          "name": "read_file",
          "arguments": {
            "path": "a"
          }
        }
      ],
      "usage": {
        "model": "some-model",
        "response_model": "scripted-1",
        "provider": "anthropic",
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
    assert_eq!(complete(&client, request).await.unwrap().text(), "done");
    assert_snapshot!(pretty(&server.requests()[1].json()["messages"]), @r#"
    [
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "Read a",
            "cache_control": {
              "type": "ephemeral"
            }
          }
        ]
      },
      {
        "role": "assistant",
        "content": [
          {
            "type": "redacted_thinking",
            "data": "first"
          },
          {
            "type": "thinking",
            "thinking": "Hm",
            "signature": "seal1"
          },
          {
            "type": "thinking",
            "thinking": "",
            "signature": "seal2"
          },
          {
            "type": "redacted_thinking",
            "data": "last"
          },
          {
            "type": "text",
            "text": "Let me look"
          },
          {
            "type": "tool_use",
            "id": "c1",
            "name": "read_file",
            "input": {
              "path": "a"
            }
          },
          {
            "type": "tool_use",
            "id": "c2",
            "name": "read_file",
            "input": {
              "path": "a"
            }
          }
        ]
      },
      {
        "role": "user",
        "content": [
          {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": "text of a"
          },
          {
            "type": "tool_result",
            "tool_use_id": "c2",
            "content": "no such file",
            "is_error": true,
            "cache_control": {
              "type": "ephemeral"
            }
          }
        ]
      }
    ]
    "#);
}

#[tokio::test]
async fn thoughts_between_the_rest_stay_where_they_are() {
    let thought = |text: &str| Block::Thinking {
        text: text.to_owned(),
        signature: Some(format!("seal of {text}")),
    };
    let call = || Block::Call {
        id: "c".to_owned(),
        name: "read_file".to_owned(),
        arguments: "{}".to_owned(),
    };
    let text = |text: &str| Block::Text { text: vec![text.to_owned()] };
    let turn = Response::turn(vec![
        thought("1"),
        text("2"),
        thought("3"),
        call(),
        Block::Redacted { data: "5".to_owned() },
        call(),
        text("7"),
    ]);
    let server = Server::start(vec![turn, Response::text("done")]).await.unwrap();
    let client = client(KIND, &server);
    let mut request = request("Read");
    request.tools = tools();
    let reply = complete(&client, request.clone()).await.unwrap();
    let ids: Vec<_> = reply.tool_calls().into_iter().map(|call| call.id).collect();
    assert_eq!(ids, ["c", "call_2_1"]);
    Arc::make_mut(&mut request.messages).push(reply.into_message().into());
    for id in ids {
        Arc::make_mut(&mut request.messages).push(result(&id, "", false));
    }
    complete(&client, request).await.unwrap();
    let sent = server.requests()[1].json();
    let blocks: Vec<_> = sent["messages"][1]["content"].as_array().unwrap().iter().collect();
    let lines: Vec<_> = blocks.iter().map(ToString::to_string).collect();
    assert_snapshot!(lines.join("\n"), @r#"
    {"type":"thinking","thinking":"1","signature":"seal of 1"}
    {"type":"text","text":"2"}
    {"type":"thinking","thinking":"3","signature":"seal of 3"}
    {"type":"tool_use","id":"c","name":"read_file","input":{}}
    {"type":"redacted_thinking","data":"5"}
    {"type":"tool_use","id":"call_2_1","name":"read_file","input":{}}
    {"type":"text","text":"7"}
    "#);
}

#[tokio::test]
async fn everything_of_a_request_is_sent() {
    let mut request = request("Hi");
    request.model = Some("claude-opus-5-5".to_owned());
    request.tools = tools();
    request.reasoning_effort = Some("high".to_owned());
    request.speed = Some("fast".to_owned());
    request.max_tokens = Some(4000);
    request.output_schema = Some(
        json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]})
            .into(),
    );
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    complete(&client(KIND, &server), request).await.unwrap();
    let got = &server.requests()[0];
    assert_eq!(got.path, "/v1/messages");
    assert_eq!(got.header("x-api-key"), Some("sk-planted-secret"));
    assert_eq!(got.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(got.header("anthropic-beta"), Some("fast-mode-2026-02-01"));
    assert_snapshot!(pretty(&got.json()), @r#"
    {
      "model": "claude-opus-5-5",
      "stream": true,
      "system": [
        {
          "type": "text",
          "text": "Be short",
          "cache_control": {
            "type": "ephemeral"
          }
        }
      ],
      "messages": [
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "Hi",
              "cache_control": {
                "type": "ephemeral"
              }
            }
          ]
        }
      ],
      "thinking": {
        "type": "adaptive",
        "display": "summarized"
      },
      "output_config": {
        "effort": "high",
        "format": {
          "type": "json_schema",
          "schema": {
            "type": "object",
            "properties": {
              "n": {
                "type": "integer"
              }
            },
            "required": [
              "n"
            ],
            "additionalProperties": false
          }
        }
      },
      "max_tokens": 4000,
      "tools": [
        {
          "name": "read_file",
          "description": "does read_file",
          "input_schema": {
            "type": "object",
            "properties": {
              "path": {
                "type": "string"
              }
            }
          }
        },
        {
          "name": "web_search",
          "description": "does web_search",
          "input_schema": {
            "type": "object",
            "properties": {
              "path": {
                "type": "string"
              }
            }
          },
          "cache_control": {
            "type": "ephemeral"
          }
        }
      ],
      "speed": "fast"
    }
    "#);
}

#[tokio::test]
async fn thinking_fits_into_the_answer() {
    let thinking = async |model: &str, effort: &str, max_tokens: Option<u32>| {
        let mut request = request("Hi");
        request.model = Some(model.to_owned());
        request.reasoning_effort = Some(effort.to_owned());
        request.max_tokens = max_tokens;
        let body = sent(KIND, request).await;
        (body["thinking"]["budget_tokens"].clone(), body["max_tokens"].clone())
    };
    let none = Value::Null;
    assert_eq!(thinking("claude-sonnet-4-5", "high", None).await, (24_000.into(), 64_000.into()));
    assert_eq!(
        thinking("claude-sonnet-4-5", "high", Some(10_000)).await,
        (8000.into(), 10_000.into())
    );
    assert_eq!(
        thinking("claude-sonnet-4-5", "medium", Some(8000)).await,
        (1024.into(), 8000.into())
    );
    assert_eq!(thinking("claude-sonnet-4-5", "low", Some(500)).await, (none.clone(), 500.into()));
    assert_eq!(thinking("claude-3-5-haiku", "high", None).await, (none, 8192.into()));
}

#[tokio::test]
async fn thinking_is_not_switched_on_in_the_middle_of_a_turn() {
    let mut request = request("Hi");
    request.model = Some("claude-sonnet-4-5".to_owned());
    request.reasoning_effort = Some("low".to_owned());
    request.tools = tools();
    let call = ToolCall { id: "c".to_owned(), name: "ls".to_owned(), arguments: json!("{\"half") };
    // The thoughts of others are not shown, and do not count.
    let foreign = Reasoning {
        text: "Hm".to_owned(),
        signature: Some("x".to_owned()),
        provider: Some("gemini".to_owned()),
        ..Reasoning::default()
    };
    Arc::make_mut(&mut request.messages)
        .push(message(Role::Assistant, vec![Content::Reasoning(foreign), Content::ToolCall(call)]));
    Arc::make_mut(&mut request.messages).push(result("c", "", false));
    let body = sent(KIND, request.clone()).await;
    assert_eq!(body["thinking"], Value::Null);
    assert_snapshot!(body["messages"][1], @r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"ls","input":{"invalid_arguments":"{\"half"}}]}"#);
    Arc::make_mut(&mut request.messages).push(Message::assistant("done").into());
    Arc::make_mut(&mut request.messages).push(Message::user("More").into());
    assert_eq!(sent(KIND, request).await["thinking"]["budget_tokens"], 1024);
}

#[tokio::test]
async fn what_is_written_into_the_cache_costs_more() {
    let body = r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":1000000,"cache_read_input_tokens":1000000,"cache_creation_input_tokens":1000000,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1000000}}

event: message_stop
data: {"type":"message_stop"}

"#;
    let response = Response::bytes(200, "text/event-stream", body);
    let server = Server::start(vec![response]).await.unwrap();
    let mut request = request("Hi");
    request.model = Some("claude-sonnet-4-5".to_owned());
    let usage = complete(&client(KIND, &server), request).await.unwrap().usage;
    // 3 + 3.75 + 0.3 for the question, 15 for the answer.
    assert_eq!(
        (usage.input_tokens, usage.cached_tokens, usage.cost_usd),
        (3_000_000, 1_000_000, 22.05)
    );
}
