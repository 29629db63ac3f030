//! `fabro completion`.

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionArgs};
use crate::exit::{self, Exit};
use crate::output;

/// Prints the completions of a shell.
pub fn completion(args: &CompletionArgs) -> anyhow::Result<Exit> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fabro", &mut text);
    output::stdout(&String::from_utf8_lossy(&text))?;
    Ok(exit::SUCCEEDED)
}
