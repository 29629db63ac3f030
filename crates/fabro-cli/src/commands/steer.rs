//! `fabro steer`.

use std::fmt::Write as _;

use fabro_run::{is_driven, root};

use crate::cli::SteerArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Sends a message to the agents of a run.
pub async fn steer(args: &SteerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let stages = fabro_run::steer(&store, run, &args.text, args.node.as_deref())
        .await
        .map_err(|error| error::run(error, global))?;
    let mut text = if stages.is_empty() {
        "no such agent is running; the message is queued for the next one\n".to_owned()
    } else {
        format!("sent to {}\n", stages.join(", "))
    };
    if !is_driven(&store, run).await? {
        let resume = global.command(&format!("resume {}", root(&store, run).await?));
        let _ = writeln!(text, "continue with: {resume}");
    }
    output::stdout(&text)?;
    Ok(exit::SUCCEEDED)
}
