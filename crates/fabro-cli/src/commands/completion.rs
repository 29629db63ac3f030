//! `fabro completion`.

use crate::complete;
use crate::exit::Exit;
use crate::output;

/// Print the completion script of a shell
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Install it by loading it when the shell starts:\n  bash  echo 'source <(fabro completion bash)' >> ~/.bashrc\n  zsh   echo 'source <(fabro completion zsh)' >> ~/.zshrc    (after compinit)\n  fish  echo 'fabro completion fish | source' >> ~/.config/fish/completions/fabro.fish\n  elvish      echo 'eval (fabro completion elvish | slurp)' >> ~/.config/elvish/rc.elv\n  powershell  add to $PROFILE: fabro completion powershell | Out-String | Invoke-Expression\n\nThe script asks `fabro` for the values, so load it again after an update."
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
