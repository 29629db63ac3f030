//! The client of the providers against scripted servers, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::too_many_lines, reason = "requests in full are long")]
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

mod anthropic;
mod chat;
mod clouds;
mod errors;
mod names;
mod others;
mod schemas;
mod streams;
mod vendors;

use std::sync::Arc;

use fabro_fakes::{Response, Server};
use fabro_llm::{
    Catalog, Content, Message, ModelError, Provider, ProviderKind, Providers, Reply, Request, Role,
    Secret, ToolSpec, complete,
};
use serde_json::{Value, json};

const BOTH: [ProviderKind; 2] = [ProviderKind::Anthropic, ProviderKind::OpenAiCompatible];

fn provider(kind: ProviderKind, server: &Server) -> Provider {
    let base_url = Some(server.base_url());
    let key = Some(Secret::new("sk-planted-secret"));
    Provider { base_url, key, ..Provider::new("test", kind) }
}

fn client(kind: ProviderKind, server: &Server) -> Providers {
    Providers::new(vec![provider(kind, server)], Catalog::builtin()).unwrap()
}

/// A question to a model that is not in the catalog.
fn request(text: &str) -> Request {
    let messages = vec![Message::system("Be short").into(), Message::user(text).into()];
    let mut request = Request::new(messages);
    request.model = Some("some-model".to_owned());
    request
}

fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("does {name}"),
        parameters: Arc::new(json!({"type": "object", "properties": {"path": {"type": "string"}}})),
    };
    Arc::new([tool("read_file"), tool("web_search")])
}

/// Asks one question of a server that plays this.
async fn asked(kind: ProviderKind, response: Response) -> Result<Reply, ModelError> {
    let server = Server::start(vec![response]).await.unwrap();
    complete(&client(kind, &server), request("Hi")).await
}

/// What a server gets for a request: the body of the last one.
async fn sent(kind: ProviderKind, request: Request) -> Value {
    let server = Server::start(vec![Response::text("ok")]).await.unwrap();
    complete(&client(kind, &server), request).await.unwrap();
    server.requests()[0].json()
}

fn message(role: Role, content: Vec<Content>) -> Arc<Message> {
    Arc::new(Message { role, content })
}

fn result(id: &str, text: &str, is_error: bool) -> Arc<Message> {
    let id = id.to_owned();
    let text = text.to_owned();
    message(Role::Tool, vec![Content::ToolResult { id, text, is_error }])
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}
