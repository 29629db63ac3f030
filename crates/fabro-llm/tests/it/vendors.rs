//! Conversations with servers that refuse what the real ones refuse.

use std::sync::Arc;

use fabro_fakes::{Request as Received, Response, Server, Vendor, strict};
use fabro_llm::{
    Catalog, Content, Message, ModelError, ModelInfo, Part, Provider, ProviderKind, Providers,
    Reasoning, Reply, Request, Role, collect,
};
use fabro_types::ModelInterface;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::{message, provider, request, result, tools};

/// Answers questions with a call, and results with a text.
fn plays(received: &Received) -> Response {
    let body = received.json();
    let lists = [&body["messages"], &body["input"], &body["contents"]];
    let list = lists.into_iter().find_map(Value::as_array).unwrap();
    let newest = list.last().unwrap().to_string();
    let is_question = !["\"tool\"", "tool_result", "function_call_output", "functionResponse"]
        .iter()
        .any(|word| newest.contains(word));
    let tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    if is_question && tools {
        let call = fabro_fakes::Block::Call {
            id: format!("call_{}", list.len()),
            name: "read_file".to_owned(),
            arguments: r#"{"path": "a"}"#.to_owned(),
        };
        return Response::turn(vec![call]);
    }
    Response::text("Done")
}

async fn serve(vendor: Vendor) -> Server {
    Server::answering(strict(vendor, plays)).await.unwrap()
}

fn client(provider: Provider) -> Providers {
    Providers::new(vec![provider], Catalog::builtin()).unwrap()
}

/// A turn, with the warnings before it.
async fn ask(model: &Providers, request: &Request) -> (Result<Reply, ModelError>, Vec<String>) {
    use fabro_llm::Model as _;
    let mut warnings = Vec::new();
    let stream = model.stream(request.clone()).boxed();
    let reply = collect(stream, |part| {
        if let Part::Warning(message) = part {
            warnings.push(message.clone());
        }
    });
    (reply.await, warnings)
}

/// Questions to a model, each answered after a call of a tool; a change comes between any two. Returns
/// the number of answers.
async fn talk(
    providers: &Providers,
    mut request: Request,
    changes: &[&dyn Fn(&mut Request)],
) -> Result<usize, ModelError> {
    let mut answers = 0;
    let unchanged: &dyn Fn(&mut Request) = &|_| {};
    for change in [unchanged].iter().chain(changes) {
        change(&mut request);
        Arc::make_mut(&mut request.messages).push(Message::user("Go on").into());
        loop {
            let reply = ask(providers, &request).await.0?;
            answers += 1;
            let calls = reply.tool_calls();
            let messages = Arc::make_mut(&mut request.messages);
            messages.push(reply.into_message().into());
            messages.extend(calls.iter().map(|call| result(&call.id, "text of a", false)));
            if calls.is_empty() {
                break;
            }
        }
    }
    Ok(answers)
}

fn for_model(model: &str, effort: Option<&str>) -> Request {
    let mut request = request("Read");
    request.model = Some(model.to_owned());
    request.tools = tools();
    request.max_tokens = Some(20_000);
    request.reasoning_effort = effort.map(str::to_owned);
    request
}

const EFFORTS: [Option<&str>; 4] = [None, Some("none"), Some("minimal"), Some("max")];

/// Every model of a vendor, with every effort, through every kind of edit.
async fn check_models(vendor: Vendor, kind: ProviderKind, models: &[&str]) {
    let server = serve(vendor).await;
    for model in models {
        for effort in EFFORTS {
            let providers = client(provider(kind, &server));
            let compact = |request: &mut Request| {
                let messages = Arc::make_mut(&mut request.messages);
                let summary = [Message::system("[Context Summary] a").into()];
                messages.splice(1..messages.len() - 3, summary);
                if messages[2].role == Role::Assistant {
                    messages.insert(2, Message::user("Go on from the summary").into());
                }
            };
            let other_tools =
                |request: &mut Request| request.tools = vec![request.tools[0].clone()].into();
            let no_tools = |request: &mut Request| request.tools = Arc::default();
            let schema = |request: &mut Request| {
                request.output_schema = Some(
                    json!({"type": "object", "properties":
                    {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false})
                    .into(),
                );
            };
            let steer = |request: &mut Request| {
                let messages = Arc::make_mut(&mut request.messages);
                messages.push(Message::user("Look at b, too").into());
            };
            let changes: [&dyn Fn(&mut Request); 7] =
                [&steer, &compact, &compact, &other_tools, &schema, &compact, &no_tools];
            let talked = talk(&providers, for_model(model, effort), &changes).await;
            let requests = server.take_requests();
            match talked {
                Ok(answers) if kind != ProviderKind::OpenAiCompatible => {
                    // Nothing was refused and sent again another way.
                    assert_eq!(requests.len(), answers, "{model} with {effort:?}");
                }
                Ok(_) => {}
                Err(error) => {
                    let body = requests.last().unwrap().json();
                    panic!("{model} with {effort:?}: {error}\n{}", crate::pretty(&body));
                }
            }
        }
    }
}

#[tokio::test]
async fn openai_refuses_nothing() {
    let models = [
        "gpt-6.2-sol",
        "gpt-6.1-sol",
        "gpt-6-luna",
        "gpt-5.6-sol",
        "gpt-5.5",
        "gpt-5.4",
        "gpt-5.3-codex",
        "gpt-5.2",
        "gpt-5",
        "o3",
        "gpt-4.1",
    ];
    check_models(Vendor::OpenAi, ProviderKind::OpenAi, &models).await;
}

#[tokio::test]
async fn anthropic_refuses_nothing() {
    let models = [
        "claude-fable-5-2",
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-opus-5",
        "claude-opus-4-7",
        "claude-sonnet-4-6",
        "claude-opus-4-5",
        "claude-sonnet-4-5",
        "claude-3-5-haiku",
    ];
    check_models(Vendor::Anthropic, ProviderKind::Anthropic, &models).await;
}

#[tokio::test]
async fn gemini_refuses_nothing() {
    let models = [
        "gemini-4-argon",
        "gemini-4-hydrogen",
        "gemini-3.8-flash",
        "gemini-3-pro-preview",
        "gemini-2.5-flash",
        "gemini-2.5-pro",
    ];
    check_models(Vendor::Gemini, ProviderKind::Gemini, &models).await;
}

#[tokio::test]
async fn compatible_servers_refuse_nothing() {
    for (vendor, model) in [
        (Vendor::DeepSeek, "deepseek-v4-pro"),
        (Vendor::Groq, "openai/gpt-oss-120b"),
        (Vendor::Mistral, "mistral-large-4"),
        (Vendor::Cerebras, "gpt-oss-120b"),
        (Vendor::Ollama, "some-model"),
        (Vendor::LlamaCpp, "some-model"),
        (Vendor::LmStudio, "some-model"),
        (Vendor::Qwen, "qwen3.8-max"),
        (Vendor::GeminiCompatible, "gemini-4-argon"),
        (Vendor::OpenRouter, "test/anthropic/claude-opus-5-5"),
        (Vendor::Moonshot, "kimi-k3"),
        (Vendor::XAi, "grok-4.5"),
    ] {
        check_models(vendor, ProviderKind::OpenAiCompatible, &[model]).await;
    }
}

#[tokio::test]
async fn a_conversation_fails_over_between_all_interfaces() {
    let servers = [
        (serve(Vendor::OpenAi).await, ProviderKind::OpenAi, "gpt-6.2-sol"),
        (serve(Vendor::Anthropic).await, ProviderKind::Anthropic, "claude-opus-5-5"),
        (serve(Vendor::Gemini).await, ProviderKind::Gemini, "gemini-4-argon"),
        (serve(Vendor::DeepSeek).await, ProviderKind::OpenAiCompatible, "deepseek-v4-pro"),
        (serve(Vendor::Mistral).await, ProviderKind::OpenAiCompatible, "mistral-large-4"),
        (serve(Vendor::OpenAi).await, ProviderKind::OpenAi, "gpt-5.2"),
        (serve(Vendor::Anthropic).await, ProviderKind::Anthropic, "claude-sonnet-5-5"),
    ];
    let providers = servers.iter().enumerate().map(|(number, (server, kind, _))| Provider {
        name: format!("p{number}"),
        ..provider(*kind, server)
    });
    let providers = Providers::new(providers.collect(), Catalog::builtin()).unwrap();
    let switches: Vec<_> = (0..servers.len() * 2)
        .map(|number| {
            let place = number * 3 % servers.len();
            let model = servers[place].2;
            move |request: &mut Request| {
                request.provider = Some(format!("p{place}"));
                request.model = Some(model.to_owned());
            }
        })
        .collect();
    let changes: Vec<&dyn Fn(&mut Request)> =
        switches.iter().map(|change| change as &dyn Fn(&mut Request)).collect();
    let mut first = for_model("gpt-6.2-sol", Some("high"));
    first.provider = Some("p0".to_owned());
    talk(&providers, first, &changes).await.unwrap();
}

#[tokio::test]
async fn reasoning_goes_back_while_nothing_changes() {
    let seals = |body: &Value| body.to_string().matches("sealed:").count();
    for (vendor, kind, model) in [
        (Vendor::OpenAi, ProviderKind::OpenAi, "gpt-6.2-sol"),
        (Vendor::Anthropic, ProviderKind::Anthropic, "claude-fable-5-2"),
        (Vendor::Gemini, ProviderKind::Gemini, "gemini-4-argon"),
    ] {
        let server = serve(vendor).await;
        let unchanged: &dyn Fn(&mut Request) = &|_| {};
        let providers = client(provider(kind, &server));
        talk(&providers, for_model(model, None), &[unchanged, unchanged]).await.unwrap();
        let counts: Vec<_> =
            server.requests().iter().map(|request| seals(&request.json())).collect();
        // Each answer had one, which stays.
        assert_eq!(counts, [0, 1, 2, 3, 4, 5], "{model}");
    }
}

#[tokio::test]
async fn what_is_refused_is_left_out_from_then_on() {
    let schema = Some(Arc::new(json!({"type": "object"})));
    let server = serve(Vendor::LlamaCpp).await;
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let mut with_schema = for_model("some-model", None);
    with_schema.output_schema = schema;
    let warned = ask(&providers, &with_schema).await.1;
    assert_eq!(
        warned,
        ["the provider does not take the JSON Schema of the answer: only Fabro checks it"]
    );
    assert_eq!(ask(&providers, &with_schema).await.1, [""; 0]);
    let sent = |server: &Server| {
        let requests = server.take_requests();
        requests.iter().map(|it| !it.json()["response_format"].is_null()).collect::<Vec<_>>()
    };
    assert_eq!(sent(&server), [true, false, false]);
    // Without tools it is accepted.
    with_schema.tools = Arc::default();
    ask(&providers, &with_schema).await.0.unwrap();
    assert_eq!(sent(&server), [true]);
    // The settings may say it beforehand.
    let told = Provider {
        output_schema: Some(false),
        ..provider(ProviderKind::OpenAiCompatible, &server)
    };
    with_schema.tools = tools();
    ask(&client(told), &with_schema).await.0.unwrap();
    assert_eq!(sent(&server), [false]);
}

#[tokio::test]
async fn models_of_openai_find_their_interface() {
    let server = serve(Vendor::OpenAi).await;
    let asked = async |own: Provider, model: &str, effort: Option<&str>| {
        let (reply, _) = ask(&client(own), &for_model(model, effort)).await;
        let paths = server.take_requests();
        let paths = paths.iter().map(|it| it.path.trim_start_matches("/v1/").to_owned());
        let error = reply.err().map(|error| format!(" {:?}", error.kind)).unwrap_or_default();
        paths.collect::<Vec<_>>().join(" ") + &error
    };
    let own = || provider(ProviderKind::OpenAi, &server);
    let with = |interface| Provider { interface: Some(interface), ..own() };
    assert_eq!(asked(own(), "gpt-6.2-sol", None).await, "responses");
    assert_eq!(asked(own(), "gpt-5.3-codex", None).await, "responses");
    assert_eq!(asked(own(), "gpt-5.2", Some("high")).await, "chat/completions");
    assert_eq!(asked(with(ModelInterface::Responses), "gpt-5.2", Some("high")).await, "responses");
    let chat = ModelInterface::ChatCompletions;
    // Without an effort it would think, and refuse tools.
    for effort in [Some("high"), None] {
        assert_eq!(asked(with(chat), "gpt-6-sol", effort).await, "chat/completions");
    }
    assert_eq!(
        asked(with(chat), "gpt-6.2-sol", Some("high")).await,
        "chat/completions InvalidRequest"
    );
    // At a proxy of another kind the refusal says so.
    let proxy = provider(ProviderKind::OpenAiCompatible, &server);
    assert_eq!(asked(proxy, "gpt-6.2-sol", None).await, "chat/completions responses");
    // A server that has Chat Completions only.
    let old = Server::start(vec![
        Response::text("ok").at("/v1/chat/completions"),
        Response::text("ok").at("/v1/other"),
    ])
    .await
    .unwrap();
    let providers = client(provider(ProviderKind::OpenAi, &old));
    for _ in 0..2 {
        ask(&providers, &for_model("gpt-6.2-sol", None)).await.0.unwrap();
    }
    let paths: Vec<_> = old.requests().iter().map(|it| it.path.clone()).collect();
    assert_eq!(paths, ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]);
}

#[tokio::test]
async fn refused_reasoning_is_left_out_of_that_request() {
    let server = Server::answering(|received| {
        if received.json()["messages"].to_string().contains("seal") {
            let message = "Invalid `signature` in `thinking` block";
            let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
            return Response::bytes(400, "application/json", body.to_string());
        }
        Response::text("ok")
    })
    .await
    .unwrap();
    let providers = client(provider(ProviderKind::Anthropic, &server));
    let mut request = for_model("claude-opus-5-5", None);
    let thought = Reasoning {
        signature: Some("seal".to_owned()),
        provider: Some("anthropic".to_owned()),
        ..Reasoning::default()
    };
    let text = Content::Text { text: "t".to_owned() };
    let messages = Arc::make_mut(&mut request.messages);
    messages.push(message(Role::Assistant, vec![Content::Reasoning(thought), text]));
    messages.push(Message::user("Go on").into());
    // The second time, the same request is a retry.
    for requests in [2, 3] {
        ask(&providers, &request).await.0.unwrap();
        assert_eq!(server.requests().len(), requests);
    }
    Arc::make_mut(&mut request.messages).push(Message::user("And on").into());
    ask(&providers, &request).await.0.unwrap();
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn a_speed_goes_to_models_that_have_it() {
    for (vendor, kind, model, speed, sent, warned) in [
        (Vendor::Anthropic, ProviderKind::Anthropic, "claude-opus-5-5", "fast", "fast", false),
        (Vendor::Anthropic, ProviderKind::Anthropic, "claude-sonnet-5-5", "fast", "", true),
        (Vendor::Anthropic, ProviderKind::Anthropic, "claude-opus-5-5", "flex", "", true),
        (Vendor::Anthropic, ProviderKind::Anthropic, "claude-opus-5-5", "default", "", false),
        (Vendor::OpenAi, ProviderKind::OpenAi, "gpt-6.2-sol", "fast", "priority", false),
        (Vendor::Gemini, ProviderKind::Gemini, "gemini-4-argon", "fast", "", true),
        (Vendor::Mistral, ProviderKind::OpenAiCompatible, "mistral-large-4", "fast", "", true),
    ] {
        let server = serve(vendor).await;
        let mut request = for_model(model, None);
        request.speed = Some(speed.to_owned());
        let (reply, warnings) = ask(&client(provider(kind, &server)), &request).await;
        reply.unwrap();
        let [received] = &*server.requests() else { panic!("{model} refused {speed}") };
        let body = received.json();
        let tier = [&body["speed"], &body["service_tier"]].into_iter().find_map(Value::as_str);
        assert_eq!(tier.unwrap_or_default(), sent, "{model} {speed}");
        let text = format!("model `{model}` has no speed `{speed}`: it is not sent");
        assert_eq!(warnings, if warned { vec![text] } else { Vec::new() }, "{model}");
    }
    // A server that is not known refuses it once.
    let server = Server::answering(|received| match &received.json()["service_tier"] {
        Value::Null => Response::text("ok"),
        _ => Response::bytes(422, "application/json", r#"{"detail": "extra: service_tier"}"#),
    });
    let server = server.await.unwrap();
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let mut request = for_model("some-model", None);
    request.speed = Some("flex".to_owned());
    let refused = "the provider does not take the speed: it is not sent";
    for (warned, requests) in [(vec![refused], 2), (vec![], 3)] {
        let (reply, warnings) = ask(&providers, &request).await;
        reply.unwrap();
        assert_eq!(
            (warnings, server.requests().len()),
            (warned.iter().map(ToString::to_string).collect(), requests)
        );
    }
}

#[tokio::test]
async fn a_server_that_only_streams_is_asked_for_a_stream() {
    let server = serve(Vendor::Qwen).await;
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let mut whole = for_model("qwen3.8-max", None);
    whole.tools = Arc::default();
    whole.streams = false;
    for requests in [2, 3] {
        let reply = ask(&providers, &whole).await.0.unwrap();
        assert_eq!((reply.text().as_str(), server.requests().len()), ("Done", requests));
    }
}

/// The bodies of the requests that a server got since the last call.
fn taken(server: &Server) -> Vec<Value> {
    server.take_requests().iter().map(fabro_fakes::Request::json).collect()
}

/// A server that refuses requests where this holds, with this text.
async fn refusing(refused: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> Server {
    let server = Server::answering(move |received| match refused(&received.json()) {
        Some(text) => Response::bytes(400, "application/json", json!({"error": text}).to_string()),
        None => Response::text("ok").usage(1, 1, 0),
    });
    server.await.unwrap()
}

#[tokio::test]
async fn a_refused_speed_leaves_the_others() {
    let server = refusing(|body| {
        let tier = body["service_tier"].as_str()?;
        (tier != "flex").then(|| format!("service_tier: {tier} is not available"))
    });
    let server = server.await;
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let sent = async |speed: &str| {
        let mut request = for_model("some-model", None);
        request.speed = Some(speed.to_owned());
        ask(&providers, &request).await.0.unwrap();
        let tiers: Vec<_> =
            taken(&server).iter().map(|body| body["service_tier"].clone()).collect();
        tiers
    };
    assert_eq!(sent("fast").await, [json!("priority"), Value::Null]);
    assert_eq!(sent("flex").await, [json!("flex")]);
    assert_eq!(sent("slow").await, [json!("slow"), Value::Null]);
    for speed in ["fast", "slow"] {
        assert_eq!(sent(speed).await, [Value::Null], "{speed} is remembered");
    }
}

#[tokio::test]
async fn a_refused_effort_leaves_the_others() {
    let server = refusing(|body| {
        let effort = body["reasoning_effort"].as_str()?;
        let text = format!("Unsupported value: 'reasoning_effort' does not support '{effort}'");
        ["max", "xhigh"].contains(&effort).then_some(text)
    });
    let server = server.await;
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let sent = async |effort: &str| {
        ask(&providers, &for_model("kimi-k3.1-pro", Some(effort))).await.0.unwrap();
        let efforts = taken(&server);
        efforts.iter().map(|body| body["reasoning_effort"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(sent("max").await, [json!("max"), Value::Null]);
    assert_eq!(sent("low").await, [json!("low")]);
    assert_eq!(sent("max").await, [Value::Null]);
    assert_eq!(sent("high").await, [json!("high")]);
}

#[tokio::test]
async fn a_refused_schema_leaves_the_others() {
    let server = refusing(|body| {
        let schema = &body["response_format"]["json_schema"]["schema"];
        let text = "Invalid schema for response_format 'answer': In context=(), 'b' is not known";
        schema["properties"]["b"].is_object().then(|| text.to_owned())
    });
    let server = server.await;
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let sent = async |property: &str| {
        let mut request = for_model("some-model", None);
        request.tools = Arc::default();
        let schema = json!({"type": "object", "properties": {property: {"type": "string"}}});
        request.output_schema = Some(schema.into());
        ask(&providers, &request).await.0.unwrap();
        let bodies = taken(&server);
        bodies.iter().map(|body| body["response_format"].is_object()).collect::<Vec<_>>()
    };
    assert_eq!(sent("b").await, [true, false]);
    assert_eq!(sent("a").await, [true]);
    assert_eq!(sent("b").await, [false]);
}

#[tokio::test]
async fn stream_options_that_are_refused_beside_tools_are_sent_without_tools() {
    let server = refusing(|body| {
        let has_both = body["tools"].is_array() && body["stream_options"].is_object();
        has_both.then(|| "`stream_options` is not supported together with `tools`".to_owned())
    });
    let server = server.await;
    let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
    let sent = async |has_tools: bool| {
        let mut request = for_model("some-model", None);
        if !has_tools {
            request.tools = Arc::default();
        }
        ask(&providers, &request).await.0.unwrap();
        let bodies = taken(&server);
        bodies.iter().map(|body| body["stream_options"].is_object()).collect::<Vec<_>>()
    };
    assert_eq!(sent(true).await, [true, false]);
    assert_eq!(sent(false).await, [true]);
    assert_eq!(sent(true).await, [false]);
}

#[tokio::test]
async fn an_answer_without_usage_has_an_unknown_price() {
    let answer = r#"{"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}"#;
    let server = Server::answering(move |_| Response::bytes(200, "application/json", answer));
    let server = server.await.unwrap();
    let warning =
        "the provider does not report tokens: limits of tokens and of costs do not count them";
    let provider = provider(ProviderKind::OpenAiCompatible, &server);
    let mut catalog = Catalog::builtin();
    let mut free = ModelInfo::new("free");
    free.cost.input_cost = Some(0.0);
    free.cost.output_cost = Some(0.0);
    catalog.extend([free]);
    let providers = Providers::new(vec![provider], catalog).unwrap();
    for (model, unpriced) in [("some-model", 1), ("gpt-4.1", 1), ("free", 0)] {
        let (reply, warnings) = ask(&providers, &for_model(model, None)).await;
        assert_eq!(reply.unwrap().usage.unpriced_requests, unpriced, "{model}");
        let expect = if unpriced > 0 { vec![warning.to_owned()] } else { Vec::new() };
        assert_eq!(warnings, expect, "{model}");
    }
}

#[tokio::test]
async fn phases_of_texts_go_back() {
    let text = fabro_fakes::Block::Text { text: vec!["I look".to_owned()] };
    let call = fabro_fakes::Block::Call {
        id: "call_1".to_owned(),
        name: "read_file".to_owned(),
        arguments: "{}".to_owned(),
    };
    let server = Server::start(vec![Response::turn(vec![text, call]), Response::text("Done")]);
    let server = server.await.unwrap();
    let providers = client(provider(ProviderKind::OpenAi, &server));
    talk(&providers, for_model("gpt-6.2-sol", None), &[&|_| {}]).await.unwrap();
    let body = server.requests().pop().unwrap().json();
    let phases = body["input"].as_array().unwrap().iter().filter(|it| it["role"] == "assistant");
    let phases: Vec<_> = phases.map(|item| item["phase"].clone()).collect();
    assert_eq!(phases, ["commentary", "final_answer"]);
}

#[tokio::test]
async fn what_leads_to_nothing_is_not_sent() {
    let thought = |provider: &str| {
        Content::Reasoning(Reasoning {
            text: "Hm".to_owned(),
            signature: Some("x".to_owned()),
            provider: Some(provider.to_owned()),
            model: Some("some-model".to_owned()),
            ..Reasoning::default()
        })
    };
    let text = |text: &str| Content::Text { text: text.to_owned() };
    let with = |contents: Vec<Content>| {
        let mut request = request("Hi");
        let messages = Arc::make_mut(&mut request.messages);
        messages.push(message(Role::Assistant, contents));
        messages.push(Message::user("Go on").into());
        request
    };
    // Reasoning at the end of an answer is refused, and so is an empty text.
    let of_openai = vec![thought("openai-responses")];
    let sent = crate::sent(ProviderKind::OpenAiResponses, with(of_openai)).await;
    assert!(!sent.to_string().contains("reasoning\","), "{sent:#}");
    let of_anthropic = vec![text(" "), thought("anthropic"), text("a"), thought("anthropic")];
    let sent = crate::sent(ProviderKind::Anthropic, with(of_anthropic)).await;
    let blocks = sent["messages"][1]["content"].as_array().unwrap();
    let kinds: Vec<_> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text"]);
}

#[tokio::test]
async fn an_answer_of_reasoning_alone_is_refused_by_no_compatible_server() {
    for vendor in [Vendor::DeepSeek, Vendor::Moonshot, Vendor::LlamaCpp] {
        let server = serve(vendor).await;
        let providers = client(provider(ProviderKind::OpenAiCompatible, &server));
        let mut request = request("Hi");
        let thought = Reasoning { text: "hm".to_owned(), ..Reasoning::default() };
        let messages = Arc::make_mut(&mut request.messages);
        messages.push(message(Role::Assistant, vec![Content::Reasoning(thought)]));
        messages.push(Message::user("Well?").into());
        ask(&providers, &request).await.0.unwrap();
    }
}

#[tokio::test]
async fn a_schema_of_many_optional_properties_is_not_sent_to_anthropic() {
    let server = serve(Vendor::Anthropic).await;
    let providers = client(provider(ProviderKind::Anthropic, &server));
    for count in [24, 25] {
        let properties = (0..count).map(|number| (format!("p{number}"), json!({"type": "string"})));
        let properties: serde_json::Map<_, _> = properties.collect();
        let mut request = for_model("claude-opus-5-5", None);
        request.output_schema = Some(json!({"type": "object", "properties": properties}).into());
        ask(&providers, &request).await.0.unwrap();
        let is_sent =
            !server.requests().last().unwrap().json()["output_config"]["format"].is_null();
        assert_eq!(is_sent, count == 24);
    }
}
