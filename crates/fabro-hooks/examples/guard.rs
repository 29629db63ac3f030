//! Asks a script whether a tool may be called: `cargo run -p fabro-hooks --example guard -- SCRIPT`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use fabro_hooks::{Hook, HookAction, HookEvent, Occasion, OnHookError, Runner, Surroundings};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let script = std::env::args().nth(1).unwrap_or_else(|| "echo never >&2; exit 2".to_owned());
    let hook = Hook {
        name: Some("guard".to_owned()),
        event: HookEvent::PreToolUse,
        action: HookAction::Command { script },
        matcher: None,
        blocking: true,
        timeout: None,
        on_error: OnHookError::Block,
    };
    let env = std::env::vars().collect();
    let runner = Runner::new(hook, Surroundings { env, ..Surroundings::default() })?;
    let data = json!({ "event": "pre_tool_use", "tool_name": "shell" });
    let occasion = Occasion { data, cwd: std::env::current_dir()?, env: Vec::new() };
    let answer = runner.run(&occasion, &CancellationToken::new()).await;
    println!("{answer:?}");
    Ok(())
}
