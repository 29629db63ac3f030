//! One file a command.

mod resume;
mod run;

use crate::cli::Command;
use crate::exit::Exit;
use crate::global::Global;

/// Does what the command line asks for.
pub fn dispatch(command: Command, global: &Global) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => block_on(run::run(*args, global)),
        Command::Resume(args) => block_on(resume::resume(args, global)),
    }
}

/// Runs a future to its end on this thread.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // A prompt that still waits for a key must not hold the process.
    runtime.shutdown_background();
    result
}
