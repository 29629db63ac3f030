//! Asks a provider: `cargo run -p fabro-llm --features providers --example ask -- URL [MODEL] [TEXT]`.
//!
//! The provider speaks Chat Completions at this base URL, such as `http://127.0.0.1:8080/v1`; with
//! `anthropic` in place of the URL it is Anthropic. The key, where one is needed, is in `API_KEY`.

use std::io::Write;

use fabro_llm::{
    Catalog, Message, Part, Progress, Provider, ProviderKind, Providers, Request, RequestPolicy,
    Secret, ask,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("say where: a base URL, or `anthropic`")?;
    let mut provider = match url.as_str() {
        "anthropic" => Provider::new("anthropic", ProviderKind::Anthropic),
        _ => Provider::new("here", ProviderKind::OpenAiCompatible),
    };
    if provider.kind == ProviderKind::OpenAiCompatible {
        provider.base_url = Some(url);
    }
    provider.key = std::env::var("API_KEY").ok().map(Secret::new);
    let model = Providers::new(vec![provider], Catalog::builtin())?;

    let name = arguments.next();
    let text = arguments.next().unwrap_or_else(|| "Name three colours.".to_owned());
    let mut request = Request::new(vec![Message::user(text).into()]);
    request.model = name;
    request.max_tokens = Some(200);
    let mut out = std::io::stdout();
    let reply = ask(&model, request, &RequestPolicy::default(), |progress| {
        // What cannot be shown is not worth ending for.
        let _ = match progress {
            Progress::Part(Part::Text(text)) => write!(out, "{text}").and_then(|()| out.flush()),
            Progress::Retrying { error, wait, .. } => writeln!(out, "[{error}; again in {wait:?}]"),
            _ => Ok(()),
        };
    })
    .await?;
    writeln!(out, "\n{:?}", reply.usage)?;
    Ok(())
}
