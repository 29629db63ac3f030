//! Asks scripted models three times: `cargo run -p fabro-llm --example scripted`.

use std::io::Write;

use fabro_llm::{Message, Model, Part, Request, Script, TurnCounts};
use futures_util::StreamExt;

const SCRIPT: &str = r#"{
    "plan": [{"text": "1. read the code\n2. fix it", "delay_ms": 200}],
    "*": [{"error": "rate_limit", "retry_after_s": 2}, {"text": "done"}]
}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let script = Script::from_json(SCRIPT)?;
    let mut taken = TurnCounts::new();
    for node in ["plan", "fix", "fix"] {
        let model = script.model(node, &taken);
        let mut turn = model.stream(Request::new(vec![Message::user("Continue").into()]));
        let mut out = std::io::stdout().lock();
        while let Some(part) = turn.next().await {
            match part {
                Ok(Part::Text(text)) => write!(out, "{node}: {text}")?,
                Ok(Part::End { usage, .. }) => writeln!(out, " ({usage:?})")?,
                Ok(part) => writeln!(out, "{part:?}")?,
                Err(error) => writeln!(out, "{node}: {error} ({})", error.class())?,
            }
        }
        *taken.entry(node.into()).or_default() += 1;
    }
    Ok(())
}
