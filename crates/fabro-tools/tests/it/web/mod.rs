//! Tools that reach real sockets.

mod http_tool;
mod web_fetch;
mod web_search;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use fabro_tools::web::{WebFetch, WebSettings};
use fabro_tools::{Call, Output, Tool, ToolContext};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Calls a tool in a workflow that has said something.
async fn call(tool: &dyn Tool, arguments: Value) -> Output {
    let context = ToolContext {
        workflow_summary: "the summary".to_owned(),
        recent_turns: vec!["plan (llm): a & b".to_owned()],
        round: 3,
    };
    let cancel = CancellationToken::new();
    let arguments = arguments.as_object().expect("an object");
    let redactor = fabro_redact::Redactor::default();
    tool.call(Call { id: "1", arguments, context: &context, cancel: &cancel, redactor: &redactor })
        .await
}

fn web(allow: &[&str]) -> WebFetch {
    web_with(allow, &[])
}

/// With names that a resolver of our own knows, beside those of the machine.
fn web_with(allow: &[&str], names: &[(&str, &[&str])]) -> WebFetch {
    let mut settings = WebSettings {
        allow: allow.iter().map(ToString::to_string).collect(),
        ..WebSettings::default()
    };
    if !names.is_empty() {
        let address = |it: &&str| it.parse::<IpAddr>().expect("an address");
        let names = names.iter().map(|(name, addresses)| {
            ((*name).to_owned(), addresses.iter().map(address).collect::<Vec<_>>())
        });
        settings.resolver = Arc::new(names.collect::<BTreeMap<_, _>>());
    }
    WebFetch::new(settings).expect("hosts")
}

/// What came out, with the server's port made the same in every run.
fn shown(output: &Output, port: u16) -> String {
    let kind = if output.is_error { "error: " } else { "" };
    format!("{kind}{}", output.text).replace(&format!(":{port}"), ":PORT")
}
