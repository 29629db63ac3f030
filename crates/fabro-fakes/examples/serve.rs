//! Plays a script to any program: `cargo run -p fabro-fakes --example serve -- SCRIPT.json 8401`.
//!
//! The script is a list of responses, as `Response::list_from_json` describes them; without one, a
//! small script of its own is played. Each request is printed as a line of JSON.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use fabro_fakes::{Response, Server};

const SCRIPT: &str = r#"[
    {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 2}},
    {"error": "rate_limit", "retry_after": "1"},
    {"tool_calls": [{"name": "read_file", "arguments": {"path": "README.md"}}]},
    {"text": "Done", "thinking": "Nothing is left to do"}
]"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let script = match arguments.next() {
        Some(file) => std::fs::read_to_string(file)?,
        None => SCRIPT.to_owned(),
    };
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let script = Response::list_from_json(&script)?;
    let server = Server::start_on(SocketAddr::from(([127, 0, 0, 1], port)), script).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", server.base_url())?;
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for request in server.take_requests() {
            let line = serde_json::json!({"method": request.method, "path": request.path,
                "headers": request.headers, "body": request.json()});
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}
