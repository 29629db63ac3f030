//! Shows a page as an agent gets to read it: `cargo run -p fabro-tools --features web --example fetch -- URL [ALLOW …]`.
//! Without arguments it asks for a page of this machine, which is refused.

use fabro_redact::Redactor;
use fabro_tools::web::{WebFetch, WebSettings};
use fabro_tools::{Call, Tool, ToolContext};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it got")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://localhost:8080/".to_owned());
    let settings = WebSettings { allow: arguments.collect(), ..WebSettings::default() };
    let tool = WebFetch::new(settings)?;
    let arguments = json!({ "url": url });
    let call = Call {
        id: "1",
        arguments: arguments.as_object().ok_or("the arguments are no object")?,
        context: &ToolContext::default(),
        cancel: &CancellationToken::new(),
        redactor: &Redactor::default(),
    };
    println!("{}", tool.call(call).await.text);
    Ok(())
}
