//! `fabro cancel`.

use clap_complete::ArgValueCandidates;
use fabro_run::Cancellation;
use fabro_terminal::clean;

use crate::complete;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Cancel a run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro cancel latest\n  fabro cancel 01K3 --reason 'wrong branch'\n\nA canceled run has ended and cannot be resumed. To stop it for now, press Ctrl-C where it runs. `fabro rewind` takes a canceled run back to a stage."
)]
pub struct CancelArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// The reason, for the log
    #[arg(long, default_value = "canceled by the user", value_name = "TEXT")]
    pub reason: String,
}

/// Cancels a run.
pub async fn cancel(args: &CancelArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let text = match fabro_run::cancel_here(&store, run, &args.reason, None).await? {
        Cancellation::Ended { warning } => {
            global.warn(warning.map(|text| clean(&text).into_owned()));
            format!("run {run} canceled\n")
        }
        Cancellation::Requested => format!("run {run} is being canceled by its driver\n"),
    };
    output::text(&text)?;
    Ok(Exit::SUCCEEDED)
}
