//! `fabro resume`.

use crate::cli::ResumeArgs;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;

/// Goes on with a run.
pub async fn resume(args: ResumeArgs, _global: &Global) -> anyhow::Result<Exit> {
    let message = format!("{} cannot be resumed by this build", args.run);
    Err(error::usage(message, "use a build with handlers"))
}
