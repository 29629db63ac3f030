//! The Responses API and Gemini, from bytes as they send them.

use std::sync::Arc;

use fabro_fakes::{Response, Server};
use fabro_llm::{ErrorKind, ProviderKind, Request, StopReason, complete};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{client, pretty, request, result, tools};

fn events(events: &[Value]) -> Response {
    let lines: Vec<_> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    Response::bytes(200, "text/event-stream", lines.concat())
}

/// Two turns with a tool call between them; the reply of the first, and the request of the second.
async fn tool_turn(kind: ProviderKind, first: Response, last: Response) -> (String, Value) {
    let server = Server::start(vec![first, last]).await.unwrap();
    let client = client(kind, &server);
    let mut request = full_request();
    let reply = complete(&client, request.clone()).await.unwrap();
    assert_eq!(reply.stop, StopReason::ToolCalls);
    let pretty_reply = serde_json::to_string_pretty(&reply).unwrap();
    let id = reply.tool_calls()[0].id.clone();
    Arc::make_mut(&mut request.messages).push(reply.into_message().into());
    Arc::make_mut(&mut request.messages).push(result(&id, "text of a", false));
    assert_eq!(complete(&client, request).await.unwrap().text(), "done");
    (pretty_reply, server.requests()[1].json())
}

fn full_request() -> Request {
    let mut request = request("Read a");
    request.tools = tools();
    request.tools = vec![request.tools[0].clone()].into();
    request.reasoning_effort = Some("low".to_owned());
    request.max_tokens = Some(4000);
    request.speed = Some("flex".to_owned());
    request.output_schema = Some(json!({"type": "object"}).into());
    request
}

fn response(status: &str, rest: Value) -> Value {
    let mut response = json!({"id": "r1", "model": "m", "status": status, "output": [],
        "usage": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
            "input_tokens_details": {"cached_tokens": 60}}});
    for (key, value) in rest.as_object().unwrap() {
        response[key] = value.clone();
    }
    json!({"type": format!("response.{status}"), "response": response})
}

#[tokio::test]
async fn a_turn_of_responses() {
    let item =
        json!({"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": ""});
    let first = events(&[
        json!({"type": "response.created", "response": {}}),
        json!({"type": "response.reasoning_summary_text.delta", "delta": "Hm"}),
        json!({"type": "response.output_item.done", "output_index": 0,
            "item": {"type": "reasoning", "encrypted_content": "sealed"}}),
        json!({"type": "response.output_text.delta", "delta": "Let me look"}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": item}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"path\": \"a\"}"}),
        response("completed", json!({})),
    ]);
    let last = events(&[
        json!({"type": "response.output_text.delta", "delta": "done"}),
        response("completed", json!({})),
    ]);
    let (result, body) = tool_turn(ProviderKind::OpenAiResponses, first, last).await;
    assert_snapshot!(result, @r#"
    {
      "content": [
        {
          "type": "reasoning",
          "text": "Hm",
          "signature": "sealed",
          "fields": {},
          "provider": "openai-responses",
          "model": "some-model",
          "prefix": "97f00833bfb0bb2e"
        },
        {
          "type": "text",
          "text": "Let me look"
        },
        {
          "type": "reasoning",
          "fields": {
            "arguments": "{\"path\": \"a\"}"
          },
          "provider": "openai-responses",
          "model": "some-model",
          "prefix": "fdf8a35d5ec81915"
        },
        {
          "type": "tool_call",
          "id": "c1",
          "name": "read_file",
          "arguments": {
            "path": "a"
          }
        }
      ],
      "usage": {
        "model": "some-model",
        "response_model": "m",
        "provider": "openai",
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 60,
        "unpriced_requests": 1,
        "turns": 1
      },
      "stop": "tool_calls"
    }
    "#);
    assert_snapshot!(pretty(&body), @r#"
    {
      "store": false,
      "model": "some-model",
      "stream": true,
      "tools": [
        {
          "type": "function",
          "name": "read_file",
          "parameters": {
            "type": "object",
            "properties": {
              "path": {
                "type": "string"
              }
            }
          },
          "description": "does read_file",
          "strict": false
        }
      ],
      "input": [
        {
          "role": "system",
          "content": "Be short"
        },
        {
          "role": "user",
          "content": "Read a"
        },
        {
          "type": "reasoning",
          "summary": [],
          "encrypted_content": "sealed"
        },
        {
          "type": "message",
          "role": "assistant",
          "content": [
            {
              "type": "output_text",
              "text": "Let me look"
            }
          ]
        },
        {
          "type": "function_call",
          "call_id": "c1",
          "name": "read_file",
          "arguments": "{\"path\": \"a\"}"
        },
        {
          "type": "function_call_output",
          "call_id": "c1",
          "output": "text of a"
        }
      ],
      "max_output_tokens": 4000,
      "text": {
        "format": {
          "name": "answer",
          "strict": false,
          "schema": {
            "type": "object"
          },
          "type": "json_schema"
        }
      },
      "service_tier": "flex"
    }
    "#);
}

#[tokio::test]
async fn responses_end_in_many_ways() {
    let text = json!({"type": "response.output_text.delta", "delta": "half"});
    let filtered = json!({"incomplete_details": {"reason": "content_filter"}});
    let failed = |code: &str| json!({"error": {"code": code, "message": "m"}});
    let endings = [
        vec![response(
            "incomplete",
            json!({"incomplete_details": {"reason": "max_output_tokens"}}),
        )],
        vec![response("incomplete", filtered)],
        vec![response("failed", failed("rate_limit_exceeded"))],
        vec![response("failed", failed("server_error"))],
        vec![json!({"type": "error", "code": "context_length_exceeded", "message": "m"})],
        vec![
            json!({"type": "response.refusal.delta", "delta": "No"}),
            response("completed", json!({})),
        ],
        vec![],
    ];
    let mut lines = Vec::new();
    for ending in endings {
        let parts: Vec<_> = [text.clone()].into_iter().chain(ending).collect();
        let server = Server::start(vec![events(&parts)]).await.unwrap();
        let result = complete(&client(ProviderKind::OpenAiResponses, &server), request("Hi")).await;
        lines.push(match result {
            Ok(reply) => format!("{:?} {}", reply.stop, reply.text()),
            Err(error) => format!("{:?}: {error}", error.kind),
        });
    }
    assert_snapshot!(lines.join("\n"), @r"
    MaxTokens half
    ContentFilter: the model's provider refused to answer: change the prompt (test: the answer was filtered)
    RateLimit: the model's rate limit is reached: try again later (test: rate_limit_exceeded: m)
    Overloaded: the model's server is overloaded or has failed: try again later (test: server_error: m)
    ContextOverflow: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: context_length_exceeded: m)
    ContentFilter: the model's provider refused to answer: change the prompt (test: No)
    BrokenStream: the model's answer stopped before its end: try again (test: it ended before it was complete)
    ");
}

fn candidate(parts: Value, rest: Value) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}});
    for (key, value) in rest.as_object().unwrap() {
        candidate[key] = value.clone();
    }
    json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 100,
        "candidatesTokenCount": 20, "totalTokenCount": 120, "cachedContentTokenCount": 60}})
}

#[tokio::test]
async fn a_turn_of_gemini() {
    let call = json!({"functionCall": {"name": "read_file", "args": {"path": "a"}}, "thoughtSignature": "sealed"});
    let first = events(&[
        candidate(json!([{"text": "Hm", "thought": true}]), json!({})),
        candidate(json!([{"text": "Let me look"}]), json!({})),
        candidate(json!([call]), json!({"finishReason": "STOP"})),
    ]);
    let last = events(&[candidate(json!([{"text": "done"}]), json!({"finishReason": "STOP"}))]);
    let (result, body) = tool_turn(ProviderKind::Gemini, first, last).await;
    assert_snapshot!(result, @r#"
    {
      "content": [
        {
          "type": "reasoning",
          "text": "Hm",
          "provider": "gemini",
          "model": "some-model"
        },
        {
          "type": "text",
          "text": "Let me look"
        },
        {
          "type": "reasoning",
          "signature": "sealed",
          "provider": "gemini",
          "model": "some-model",
          "prefix": "fdf8a35d5ec81915"
        },
        {
          "type": "tool_call",
          "id": "call#read_file#0",
          "name": "read_file",
          "arguments": {
            "path": "a"
          }
        }
      ],
      "usage": {
        "model": "some-model",
        "provider": "gemini",
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 60,
        "unpriced_requests": 1,
        "turns": 1
      },
      "stop": "tool_calls"
    }
    "#);
    assert_snapshot!(pretty(&body), @r#"
    {
      "generationConfig": {
        "responseMimeType": "application/json",
        "responseJsonSchema": {
          "type": "object"
        },
        "maxOutputTokens": 4000
      },
      "systemInstruction": {
        "parts": [
          {
            "text": "Be short"
          }
        ]
      },
      "tools": [
        {
          "functionDeclarations": [
            {
              "name": "read_file",
              "description": "does read_file",
              "parametersJsonSchema": {
                "type": "object",
                "properties": {
                  "path": {
                    "type": "string"
                  }
                }
              }
            }
          ]
        }
      ],
      "contents": [
        {
          "role": "user",
          "parts": [
            {
              "text": "Read a"
            }
          ]
        },
        {
          "role": "model",
          "parts": [
            {
              "text": "Let me look"
            },
            {
              "functionCall": {
                "name": "read_file",
                "args": {
                  "path": "a"
                }
              },
              "thoughtSignature": "sealed"
            }
          ]
        },
        {
          "role": "user",
          "parts": [
            {
              "functionResponse": {
                "name": "read_file",
                "response": {
                  "name": "read_file",
                  "content": "text of a"
                }
              }
            }
          ]
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn gemini_ends_in_many_ways() {
    let endings = [
        vec![candidate(json!([{"text": "half"}]), json!({"finishReason": "MAX_TOKENS"}))],
        vec![candidate(json!([{"text": "half"}]), json!({"finishReason": "SAFETY"}))],
        vec![candidate(
            json!([{"text": "half"}]),
            json!({"finishReason": "MALFORMED_FUNCTION_CALL"}),
        )],
        vec![candidate(json!([{"text": "half"}]), json!({}))],
        vec![json!({"promptFeedback": {"blockReason": "SAFETY"}})],
        vec![json!({"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}})],
    ];
    let mut lines = Vec::new();
    for ending in endings {
        let server = Server::start(vec![events(&ending)]).await.unwrap();
        let result = complete(&client(ProviderKind::Gemini, &server), request("Hi")).await;
        lines.push(match result {
            Ok(reply) => format!("{:?} {}", reply.stop, reply.text()),
            Err(error) => format!("{:?}: {error}", error.kind),
        });
    }
    assert_snapshot!(lines.join("\n"), @r"
    MaxTokens half
    ContentFilter: the model's provider refused to answer: change the prompt (test: the answer was filtered)
    UnusableAnswer: the model's answer cannot be used: try again (test: MALFORMED_FUNCTION_CALL)
    BrokenStream: the model's answer stopped before its end: try again (test: it ended before it was complete)
    ContentFilter: the model's provider refused to answer: change the prompt (test: SAFETY)
    Overloaded: the model's server is overloaded or has failed: try again later (test: UNAVAILABLE: m)
    ");
    let server = Server::start(vec![Response::bytes(400, "application/json",
        r#"{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).", "status": "INVALID_ARGUMENT"}}"#)]).await.unwrap();
    let error = complete(&client(ProviderKind::Gemini, &server), request("Hi")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContextOverflow);
    assert_eq!(server.requests()[0].path, "/v1/models/some-model:streamGenerateContent?alt=sse");
    assert_eq!(server.requests()[0].header("x-goog-api-key"), Some("sk-planted-secret"));
}
