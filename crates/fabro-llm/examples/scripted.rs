//! Asks a scripted model three times: `cargo run -p fabro-llm --example scripted`.

use std::io::Write;

use fabro_llm::{Message, Model, Origin, Part, Request, ScriptedModel};
use futures_util::StreamExt;

const SCRIPT: &str = r#"{
    "plan": [{"text": "1. read the code\n2. fix it", "delay_ms": 200}],
    "*": [{"error": "rate_limit", "retry_after_s": 2}, {"text": "done"}]
}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = ScriptedModel::from_json(SCRIPT)?;
    let mut origin = Origin::default();
    for node in ["plan", "fix", "fix"] {
        origin.node = node.into();
        let mut turn =
            model.stream(Request::new(origin.clone(), vec![Message::user("Go on").into()]));
        let mut out = std::io::stdout().lock();
        while let Some(part) = turn.next().await {
            match part {
                Ok(Part::Text(text)) => write!(out, "{node}: {text}")?,
                Ok(Part::End { usage, .. }) => writeln!(out, " ({usage:?})")?,
                Ok(part) => writeln!(out, "{part:?}")?,
                Err(error) => writeln!(out, "{node}: {error} ({})", error.class())?,
            }
        }
        *origin.taken.entry(node.into()).or_default() += 1;
    }
    Ok(())
}
