//! `fabro steer`.

use clap_complete::ArgValueCandidates;

use crate::complete;
use crate::drive::resume_hint;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Send a message to the running agents of a run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro steer latest 'Leave the tests as they are'\n  fabro steer 01K3 'Use the new API' --node implement\n\nThe agents read it before their next request to the model. If no agent is running, the next one that starts reads it."
)]
pub struct SteerArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// The message
    pub text: String,

    /// Only agents of this node
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(complete::nodes))]
    pub node: Option<String>,
}

/// Sends a message to the agents of a run.
pub async fn steer(args: &SteerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let stages = fabro_run::steer(&store, run, &args.text, args.node.as_deref(), None).await?;
    let text = if stages.is_empty() {
        "no such agent is running; the message is queued for the next one".to_owned()
    } else {
        format!("sent to {}", stages.join(", "))
    };
    let hint = resume_hint(&store, run, global).await?;
    output::text(&format!("{text}\n{hint}"))?;
    Ok(Exit::SUCCEEDED)
}
