//! What is called by names that providers refuse.

use std::sync::Arc;

use fabro_fakes::{Block, Response, Server};
use fabro_llm::{Content, ProviderKind, Reasoning, Request, Role, ToolCall, complete};
use serde_json::{Value, json};

use crate::{BOTH, client, message, request, result, tools};

const ALL: [ProviderKind; 5] = [
    ProviderKind::Anthropic,
    ProviderKind::OpenAi,
    ProviderKind::OpenAiCompatible,
    ProviderKind::OpenAiResponses,
    ProviderKind::Gemini,
];

/// A conversation with these calls, each in a turn of its own.
fn conversation(calls: &[(&str, &str)]) -> Request {
    let mut request = request("Read");
    request.tools = tools();
    for (id, name) in calls {
        let call =
            ToolCall { id: (*id).to_owned(), name: (*name).to_owned(), arguments: json!({}) };
        let messages = Arc::make_mut(&mut request.messages);
        messages.push(message(Role::Assistant, vec![Content::ToolCall(call)]));
        messages.push(result(id, "told", true));
    }
    request
}

/// The calls that a body has, as ids and names, and then the ids of results.
fn called(kind: ProviderKind, body: &Value) -> (Vec<[String; 2]>, Vec<String>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let flat = |from: &str, inner: &str| -> Vec<Value> {
        list(&body[from]).iter().flat_map(|it| list(&it[inner])).collect()
    };
    let of = |all: &[Value], what: &str| -> Vec<Value> {
        all.iter().filter(|it| it["type"] == what).cloned().collect()
    };
    let (calls, results): (Vec<_>, Vec<_>) = match kind {
        ProviderKind::Anthropic => {
            let all = flat("messages", "content");
            let calls = of(&all, "tool_use");
            let results = of(&all, "tool_result");
            (
                calls.iter().map(|it| [text(&it["id"]), text(&it["name"])]).collect(),
                results.iter().map(|it| text(&it["tool_use_id"])).collect(),
            )
        }
        ProviderKind::OpenAiResponses => {
            let all = list(&body["input"]);
            let calls = of(&all, "function_call");
            let results = of(&all, "function_call_output");
            (
                calls.iter().map(|it| [text(&it["call_id"]), text(&it["name"])]).collect(),
                results.iter().map(|it| text(&it["call_id"])).collect(),
            )
        }
        ProviderKind::Gemini => {
            let all = flat("contents", "parts");
            let some = |what: &str| -> Vec<Value> {
                all.iter().map(|it| it[what].clone()).filter(|it| !it.is_null()).collect()
            };
            // Each result says the name of its call as well.
            let pairs = |what: &str| -> Vec<[String; 2]> {
                some(what).iter().map(|it| [text(&it["id"]), text(&it["name"])]).collect()
            };
            assert_eq!(pairs("functionCall"), pairs("functionResponse"));
            let results = pairs("functionResponse").into_iter().map(|[id, _]| id).collect();
            (pairs("functionCall"), results)
        }
        _ => {
            let calls = flat("messages", "tool_calls");
            let messages = list(&body["messages"]);
            let results = messages.iter().filter(|it| it["role"] == "tool");
            (
                calls.iter().map(|it| [text(&it["id"]), text(&it["function"]["name"])]).collect(),
                results.map(|it| text(&it["tool_call_id"])).collect(),
            )
        }
    };
    (calls, results)
}

/// What a server of this kind gets of these calls.
async fn sent(kind: ProviderKind, calls: &[(&str, &str)]) -> Vec<[String; 2]> {
    let server = Server::start(vec![Response::bytes(200, "text/event-stream", "")]).await.unwrap();
    let request = conversation(calls);
    let before = request.clone();
    // With any answer.
    let _ = complete(&client(kind, &server), request.clone()).await;
    assert_eq!(request, before);
    let (calls, results) = called(kind, &server.requests()[0].json());
    let ids: Vec<_> = calls.iter().map(|[id, _]| id.clone()).collect();
    assert_eq!(results, ids, "{kind:?}");
    calls
}

#[tokio::test]
async fn every_provider_takes_the_names_and_ids_it_is_sent() {
    let long = "a".repeat(200);
    let calls = [
        ("functions.list_dir:0", ""),
        ("functions.read_file:1", "read file"),
        ("functions_list_dir_0", "read_file"),
        ("call#read_file#0", "✓"),
        ("i d:✓", "mcp.x/y"),
        (&*long, &*long),
        ("toolu_01", "web_search"),
    ];
    for kind in ALL {
        let sent = sent(kind, &calls).await;
        let names: Vec<_> = sent.iter().map(|[_, name]| name.as_str()).collect();
        let long = "a".repeat(64);
        let expect = ["unnamed", "read_file_2", "read_file", "__", "mcp_x_y", &*long, "web_search"];
        assert_eq!(names, expect, "{kind:?}");
        let ids: Vec<_> = sent.iter().map(|[id, _]| id.as_str()).collect();
        let long = "a".repeat(40);
        let expect = match kind {
            // They are result by many of these servers, and go back to them.
            ProviderKind::OpenAiCompatible => {
                [calls[0].0, calls[1].0, calls[2].0, calls[3].0, "i_d__", &*long, "toolu_01"]
            }
            _ => [
                "functions_list_dir_0_2",
                "functions_read_file_1",
                "functions_list_dir_0",
                if kind == ProviderKind::Gemini { "" } else { "call_read_file_0" },
                "i_d__",
                &*long,
                "toolu_01",
            ],
        };
        assert_eq!(ids, expect, "{kind:?}");
    }
}

#[tokio::test]
async fn what_a_server_calls_is_kept_and_goes_back_in_its_form() {
    for kind in BOTH {
        let call = Block::Call {
            id: "i d:✓".to_owned(),
            name: "look it up".to_owned(),
            arguments: "{}".to_owned(),
        };
        let turns = vec![Response::turn(vec![call]), Response::text("done")];
        let server = Server::start(turns).await.unwrap();
        let client = client(kind, &server);
        let mut request = request("Read");
        request.tools = tools();
        let reply = complete(&client, request.clone()).await.unwrap();
        let call = reply.tool_calls()[0].clone();
        assert_eq!((call.id.as_str(), call.name.as_str()), ("i d:✓", "look it up"));
        let messages = Arc::make_mut(&mut request.messages);
        messages.push(reply.into_message().into());
        messages.push(result(&call.id, "no such tool", true));
        assert_eq!(complete(&client, request).await.unwrap().text(), "done");
        let (calls, results) = called(kind, &server.requests()[1].json());
        assert_eq!(calls, [["i_d__".to_owned(), "look_it_up".to_owned()]]);
        assert_eq!(results, ["i_d__"]);
    }
}

#[tokio::test]
async fn a_renamed_call_loses_its_signature() {
    let mut request = conversation(&[("a", "read_file"), ("b", "no such tool")]);
    for place in [2, 4] {
        let message = Arc::make_mut(&mut Arc::make_mut(&mut request.messages)[place]);
        let signature = Some(format!("sealed{place}"));
        message
            .content
            .insert(0, Content::Reasoning(Reasoning { signature, ..Reasoning::default() }));
    }
    request.model = Some("gemini-4-argon".to_owned());
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    complete(&client(ProviderKind::Gemini, &server), request).await.unwrap();
    let body = server.requests()[0].json();
    let signed = |place: usize| {
        let part = &body["contents"][place]["parts"][0];
        [&part["functionCall"]["name"], &part["thoughtSignature"]]
            .map(|it| it.as_str().unwrap().to_owned())
    };
    assert_eq!(signed(1), ["read_file", "sealed2"]);
    // Gemini would refuse the one that was given for another name.
    assert_eq!(signed(3), ["no_such_tool", "skip_thought_signature_validator"]);
}
