//! `fabro cancel`.

use fabro_run::Cancellation;

use crate::cli::CancelArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Cancels a run.
pub async fn cancel(args: &CancelArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let canceled = fabro_run::cancel(&store, run, &args.reason).await;
    let text = match canceled.map_err(|error| error::run(error, global))? {
        Cancellation::Ended => format!("run {run} canceled\n"),
        Cancellation::Requested => format!("run {run} is being canceled by its driver\n"),
    };
    output::stdout(&text)?;
    Ok(exit::SUCCEEDED)
}
