//! `fabro fork` and `fabro rewind`.

use fabro_engine::{checkpoint, read_all};
use fabro_run::ForkPoint;
use fabro_store::SqliteStore;
use fabro_types::RunId;
use serde_json::{Map, Value, json};

use crate::cli::ForkArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Copies a run up to the end of a stage.
pub async fn fork(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, from) = find(&args, global).await?;
    let point = fabro_run::fork(&store, from, args.stage.as_deref(), &values(&args)).await;
    report("forked", from, point.map_err(|error| error::run(error, global))?, args.json, global)
}

/// Takes a run back to the end of a stage.
pub async fn rewind(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, from) = find(&args, global).await?;
    let point = fabro_run::rewind(&store, from, args.stage.as_deref(), &values(&args)).await;
    report("rewound", from, point.map_err(|error| error::run(error, global))?, args.json, global)
}

/// The run, in which the name of the stage must be unambiguous.
async fn find(args: &ForkArgs, global: &Global) -> anyhow::Result<(SqliteStore, RunId)> {
    let (store, run) = global.run_to_change(&args.run).await?;
    if let Some(stage) = &args.stage {
        let events = read_all(&store, run).await?;
        fabro_inspect::check_stage(&checkpoint::effective(&events), stage)?;
    }
    Ok((store, run))
}

fn values(args: &ForkArgs) -> Map<String, Value> {
    args.set.iter().map(|item| (item.key.clone(), item.value.clone())).collect()
}

fn report(
    verb: &str,
    from: RunId,
    point: ForkPoint,
    is_json: bool,
    global: &Global,
) -> anyhow::Result<Exit> {
    let ForkPoint { id, stage } = point;
    if is_json {
        output::json(&json!({"id": id, "from": from, "stage": stage}))?;
    } else {
        let resume = global.command(&format!("resume {id}"));
        output::stdout(&format!("{verb} {from} after {stage}\ncontinue with: {resume}\n"))?;
    }
    Ok(exit::SUCCEEDED)
}
