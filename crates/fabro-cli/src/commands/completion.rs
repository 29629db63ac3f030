//! `fabro completion`.

use crate::exit::Exit;
use crate::output;

/// Print the completions of a shell
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  fabro completion bash > ~/.local/share/bash-completion/completions/fabro"
)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the completions of a shell.
pub fn completion(args: &CompletionArgs, mut command: clap::Command) -> anyhow::Result<Exit> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "fabro", &mut text);
    output::stdout(&String::from_utf8_lossy(&text))?;
    Ok(Exit::SUCCEEDED)
}
