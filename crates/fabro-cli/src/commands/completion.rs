//! `fabro completion`.

use crate::complete;
use crate::exit::Exit;
use crate::output;

/// Print the completion script of a shell
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Install it by loading it when the shell starts:\n  ~/.bashrc                  source <(fabro completion bash)\n  ~/.zshrc, after compinit   source <(fabro completion zsh)\n  ~/.config/fish/config.fish fabro completion fish | source\n  ~/.config/elvish/rc.elv    eval (fabro completion elvish | slurp)\n  $PROFILE of PowerShell     fabro completion powershell |\n                               Out-String | Invoke-Expression\n\nThe script asks `fabro` for the values, so load it again after an update."
)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the script for a shell.
pub fn completion(args: &CompletionArgs) -> anyhow::Result<Exit> {
    output::stdout(&complete::script(args.shell)?)?;
    Ok(Exit::SUCCEEDED)
}
