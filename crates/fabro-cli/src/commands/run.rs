//! `fabro run`.

use crate::cli::RunArgs;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;

/// Creates a run and drives it.
pub async fn run(args: RunArgs, _global: &Global) -> anyhow::Result<Exit> {
    let message = format!("{} cannot be run by this build", args.workflow);
    Err(error::usage(message, "use a build with handlers"))
}
