//! `fabro sandbox`.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_run::sandbox_command;
use fabro_sandbox::Sandbox;
use tempfile::NamedTempFile;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, quoted};
use crate::output;

/// The commands for sandboxes.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum SandboxCommand {
    Shell(ShellArgs),
    Cp(CpArgs),
}

/// Start a shell in the sandbox of a run, in its working directory
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro sandbox shell latest\n  fabro sandbox shell latest -- ls -la /tmp\n\nIt sees what the scripts and agents of the run see. The exit code is that of the shell. `fabro run --preserve-sandbox` keeps the sandbox of a run that has ended."
)]
pub struct ShellArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    run: String,

    /// A command in the place of a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Copy a file out of the sandbox of a run, or into it
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro sandbox cp latest:/tmp/report.txt .\n  fabro sandbox cp fix.patch latest:fix.patch\n\nA path in the sandbox is relative to the working directory of the run. A directory: pack it first, with `fabro sandbox shell RUN -- tar cf /tmp/x.tar DIR`."
)]
pub struct CpArgs {
    /// A file, or RUN:PATH for one in the sandbox
    #[arg(value_name = "FROM")]
    from: String,

    /// A file or a directory, or RUN:PATH for one in the sandbox
    #[arg(value_name = "TO")]
    to: String,
}

/// Executes a command for sandboxes.
pub async fn sandbox(command: SandboxCommand, global: &Global) -> anyhow::Result<Exit> {
    match command {
        SandboxCommand::Shell(args) => shell(&args, global).await,
        SandboxCommand::Cp(args) => cp(&args, global).await,
    }
}

async fn shell(args: &ShellArgs, global: &Global) -> anyhow::Result<Exit> {
    let mut shell: Vec<String> = Vec::new();
    if args.command.is_empty() {
        shell.extend(
            ["-c", "command -v bash >/dev/null && exec bash || exec sh"].map(str::to_owned),
        );
    } else {
        shell.extend(["-c", "exec \"$@\"", "sh"].map(str::to_owned));
        shell.extend(args.command.iter().cloned());
    }
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let (mut command, _sandbox) = in_sandbox(&args.run, shell, terminal, global).await?;
    let status = command.status()?;
    Ok(status.code().and_then(Exit::of).unwrap_or(Exit::FAILED))
}

async fn cp(args: &CpArgs, global: &Global) -> anyhow::Result<Exit> {
    match (in_run(&args.from), in_run(&args.to)) {
        (Some((run, path)), None) => copy_out(run, path, Path::new(&args.to), global).await,
        (None, Some((run, path))) => copy_in(Path::new(&args.from), run, path, global).await,
        _ => Err(error::usage(
            "one of FROM and TO has to be in a sandbox, and the other one here",
            "write RUN:PATH for the file in the sandbox, such as `latest:/tmp/report.txt`",
        )),
    }
}

/// The run and the path of `RUN:PATH`.
fn in_run(text: &str) -> Option<(&str, &str)> {
    let (run, path) = text.split_once(':')?;
    (!run.is_empty() && !run.contains('/') && !path.is_empty()).then_some((run, path))
}

async fn copy_out(run: &str, path: &str, to: &Path, global: &Global) -> anyhow::Result<Exit> {
    let name = Path::new(path).file_name().unwrap_or_default();
    let to = if to.is_dir() { to.join(name) } else { to.to_owned() };
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = quoted(&to);
    let next = "choose another place";
    let unwritable = |error: &io::Error| error::unwritable(&shown, error, next);
    let file = NamedTempFile::new_in(dir).map_err(|error| unwritable(&error))?;
    let shell = ["-c", "exec cat -- \"$1\"", "sh", path].map(str::to_owned);
    let (mut command, _sandbox) = in_sandbox(run, shell.to_vec(), false, global).await?;
    let status = command.stdin(Stdio::null()).stdout(file.reopen()?).status()?;
    if !status.success() {
        return Err(not_copied(path));
    }
    if let Some(mut device) = output::device(&to).map_err(|error| unwritable(&error))? {
        let written = file.reopen().and_then(|mut file| io::copy(&mut file, &mut device));
        return written.map(|_| Exit::SUCCEEDED).map_err(|error| unwritable(&error));
    }
    file.persist(&to).map_err(|error| unwritable(&error.error))?;
    Ok(Exit::SUCCEEDED)
}

async fn copy_in(from: &Path, run: &str, path: &str, global: &Global) -> anyhow::Result<Exit> {
    let file = File::open(from).map_err(|error| {
        error::usage(format!("{} cannot be read: {error}", from.display()), "check the path")
    })?;
    // As of `cp`: into a directory under its own name.
    let script = "to=$1; [ ! -d \"$to\" ] || to=${to%/}/$2; exec cat > \"$to\"";
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let shell = ["-c", script, "sh", path, &name].map(str::to_owned);
    let (mut command, _sandbox) = in_sandbox(run, shell.to_vec(), false, global).await?;
    let status = command.stdin(file).status()?;
    if status.success() { Ok(Exit::SUCCEEDED) } else { Err(not_copied(path)) }
}

fn not_copied(path: &str) -> anyhow::Error {
    error::failed(
        format!("{path} was not copied"),
        "the reason stands above; a directory can be packed first, with `tar`",
    )
}

/// A shell with these arguments in the sandbox of a run.
async fn in_sandbox(
    run: &str,
    args: Vec<String>,
    terminal: bool,
    global: &Global,
) -> anyhow::Result<(Command, Arc<Sandbox>)> {
    let (store, run) = global.run_to_read(run).await?;
    let run_dir = store.runs_dir().join(run.to_string());
    Ok(sandbox_command(&store, run, &run_dir, &args, terminal).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_run_has_a_run_before_the_colon() {
        assert_eq!(in_run("latest:/tmp/x"), Some(("latest", "/tmp/x")));
        assert_eq!(in_run("01J:a:b"), Some(("01J", "a:b")));
        assert_eq!(in_run("./a:b"), None);
        assert_eq!(in_run("latest:"), None);
        assert_eq!(in_run("file"), None);
    }
}
