//! `fabro fork` and `fabro rewind`.

use clap_complete::ArgValueCandidates;
use fabro_run::ForkPoint;
use fabro_types::RunId;
use serde_json::{Map, Value, json};

use crate::complete;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use crate::values::{KeyValue, key_value};

/// The stage that a run is copied up to or taken back to.
#[derive(clap::Args, Clone, Debug)]
pub struct ForkArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// The stage to continue after [default: the last one]
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    pub stage: Option<String>,

    /// Set a context value there; JSON if it is valid JSON, else text. Repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<KeyValue>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Copies a run up to the end of a stage.
pub async fn fork(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, from) = global.run_to_change(&args.run).await?;
    let stage = args.stage.as_deref();
    let (point, warnings) = fabro_run::fork_here(&store, from, stage, &values(&args), None).await?;
    global.warn(warnings);
    report("forked", from, &point, args.json, global)
}

/// Takes a run back to the end of a stage.
pub async fn rewind(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, from) = global.run_to_change(&args.run).await?;
    let point = fabro_run::rewind(&store, from, args.stage.as_deref(), &values(&args), None).await;
    report("rewound", from, &point?, args.json, global)
}

fn values(args: &ForkArgs) -> Map<String, Value> {
    args.set.iter().cloned().collect()
}

fn report(
    verb: &str,
    from: RunId,
    point: &ForkPoint,
    is_json: bool,
    global: &Global,
) -> anyhow::Result<Exit> {
    let ForkPoint { id, stage } = point;
    output::report(is_json, &json!({"id": id, "from": from, "stage": stage}), || {
        let resume = global.command(&format!("resume {id}"));
        format!("{verb} {from} after {stage}\ncontinue with: {resume}\n")
    })?;
    Ok(Exit::SUCCEEDED)
}
