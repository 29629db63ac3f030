//! The schema of an answer is left out where it is not taken, and changes nothing else.

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

/// Whether a request has the schema of its answer. It is never in words: who asks has said it to the model.
fn form(body: &Value) -> &'static str {
    let text = body.to_string();
    assert!(!text.contains("JSON Schema"), "{text}");
    let mut fields = ["response_format", "responseJsonSchema", "output_config"].iter();
    if fields.any(|field| text.contains(field)) { "schema" } else { "none" }
}

fn forms(server: &Server) -> Vec<&'static str> {
    server.requests().iter().map(|it| form(&it.json())).collect()
}

#[tokio::test]
async fn a_refused_schema_is_left_out_of_an_otherwise_equal_request() {
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
    assert_eq!(forms(&server), ["schema", "none", "schema", "none"]);
    let messages = |place: usize| server.requests()[place].json()["messages"].clone();
    assert_eq!(messages(0), messages(1));
}

#[tokio::test]
async fn a_schema_that_is_not_taken_is_not_sent() {
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    let own = Provider { output_schema: Some(false), ..provider(KIND, &server) };
    let client = Providers::new(vec![own], Catalog::builtin()).unwrap();
    let mut request = with_schema();
    std::sync::Arc::make_mut(&mut request.messages).remove(0);
    complete(&client, request).await.unwrap();
    assert_eq!(forms(&server), ["none"]);
    // It leaves the object open, which Anthropic refuses.
    let body = sent(ProviderKind::Anthropic, with_schema()).await;
    assert_eq!(form(&body), "none");
}
