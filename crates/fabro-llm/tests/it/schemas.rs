//! The schema of an answer is described in words where it is not sent.

use fabro_fakes::{Response, Server};
use fabro_llm::{Catalog, Provider, ProviderKind, Providers, Request, complete};
use serde_json::{Value, json};

use crate::{client, provider, request, sent, tools};

const KIND: ProviderKind = ProviderKind::OpenAiCompatible;

fn with_schema() -> Request {
    let mut request = request("Rate");
    request.output_schema = Some(json!({"type": "object", "required": ["n"]}).into());
    request
}

/// How a request was sent: with its schema, or with words.
fn form(body: &Value) -> &'static str {
    let text = body.to_string();
    let is_sent = ["response_format", "responseJsonSchema", "output_config"]
        .iter()
        .any(|field| text.contains(field));
    match (is_sent, text.contains("matches the JSON Schema below")) {
        (true, false) => "schema",
        (false, true) => "words",
        (false, false) => "nothing",
        (true, true) => "both",
    }
}

fn forms(server: &Server) -> Vec<&'static str> {
    server.requests().iter().map(|it| form(&it.json())).collect()
}

#[tokio::test]
async fn a_refused_schema_is_described() {
    let answer = |request: &fabro_fakes::Request| {
        let error =
            r#"{"error":{"message":"json mode cannot be combined with tool/function calling"}}"#;
        let body = request.json();
        let refuses = !body["response_format"].is_null() && !body["tools"].is_null();
        if refuses { Response::bytes(400, "application/json", error) } else { Response::text("{}") }
    };
    let server = Server::answering(answer).await.unwrap();
    let client = client(KIND, &server);
    for has_tools in [true, false, true] {
        let mut request = with_schema();
        request.tools = if has_tools { tools() } else { [].into() };
        complete(&client, request).await.unwrap();
    }
    assert_eq!(forms(&server), ["schema", "words", "schema", "words"]);
    let system = server.requests()[1].json()["messages"][0]["content"].to_string();
    assert!(
        system.starts_with("\"Be short") && system.ends_with(r#"\"required\":[\"n\"]}""#),
        "{system}"
    );
}

#[tokio::test]
async fn a_schema_that_cannot_be_sent_is_described() {
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    let own = Provider { output_schema: Some(false), ..provider(KIND, &server) };
    let client = Providers::new(vec![own], Catalog::builtin()).unwrap();
    let mut request = with_schema();
    std::sync::Arc::make_mut(&mut request.messages).remove(0);
    complete(&client, request).await.unwrap();
    assert_eq!(forms(&server), ["words"]);
    // It leaves the object open, which Anthropic refuses.
    let body = sent(ProviderKind::Anthropic, with_schema()).await;
    assert!(body["system"].to_string().contains("matches the JSON Schema below"), "{body}");
}
