//! Asks a program a question.
//!
//! `cargo run -p fabro-external-agents --example ask [claude|codex|gemini [PROMPT]]`; without arguments a
//! few lines of shell stand in for `claude`.

use std::os::unix::fs::PermissionsExt;

use fabro_external_agents::{Backend, Cli, CliAgent, Progress, Task};
use fabro_types::Permissions;

const STAND_IN: &str = r#"#!/bin/sh
prompt=$(cat)
echo '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Read"}]}}'
echo '{"type":"result","subtype":"success","result":"You asked: '"$prompt"'","num_turns":1}'
"#;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it got")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let logs = tempfile::tempdir()?;
    let mut words = std::env::args().skip(1);
    let backend = match words.next().as_deref() {
        Some("codex") => Cli::new(CliAgent::Codex),
        Some("gemini") => Cli::new(CliAgent::Gemini),
        Some(_) => Cli::new(CliAgent::Claude),
        None => {
            let program = logs.path().join("claude");
            std::fs::write(&program, STAND_IN)?;
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
            Cli::new(CliAgent::Claude).with_program(program.display().to_string())
        }
    };
    let prompt = words.next().unwrap_or_else(|| "What is in this directory?".to_owned());
    let env: Vec<_> = std::env::vars().collect();
    let on_event = |progress: Progress| println!("{progress:?}");
    let task = Task {
        permissions: Permissions::ReadOnly,
        on_event: &on_event,
        ..Task::new(&prompt, std::path::Path::new("."), logs.path()).with_env(&env)
    };
    println!("{:#?}", backend.run(task).await?);
    Ok(())
}
