//! A branch works on a copy of its own: `cargo run -p fabro-context --example fork`.

use std::io::Write;

use fabro_context::{Context, keys};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    let mut main = Context::new();
    main.set("tests_passed", json!(true));
    main.set(keys::LAST_STAGE, json!("test"));

    let mut branch = main.clone();
    branch.set("tests_passed", json!(false));
    branch.set("coverage", json!({"lines": 85}));
    for change in main.diff(&branch) {
        writeln!(out, "{}", serde_json::to_string(&change)?)?;
    }

    // What handlers write is theirs alone.
    for key in ["coverage", keys::COMMAND_EXIT_CODE] {
        let verdict = keys::refusal(key).unwrap_or_else(|| "an agent may write it".to_owned());
        writeln!(out, "{key}: {verdict}")?;
    }
    Ok(())
}
