//! `fabro fork` and `fabro rewind`.

use std::io::{self, IsTerminal as _};

use clap_complete::ArgValueCandidates;
use fabro_run::{ForkChanges, ForkPoint};
use fabro_store::SqliteStore;
use fabro_terminal::clean;
use fabro_types::{RunId, RunStatus};
use serde_json::json;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use crate::values::{KeyValue, key_value};

/// The stage that a run is copied up to or taken back to.
#[derive(clap::Args, Clone, Debug)]
pub struct PointArgs {
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

/// Copy a run up to the end of a stage
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro fork latest plan\n  fabro fork latest test@2 --set tries=0\n  fabro fork latest plan -I style=casual\n\nThe copy is a new run. `fabro resume` continues it after that stage, and selects the edge there again. Stages up to there have read the old inputs."
)]
pub struct ForkArgs {
    /// The run and the stage to fork at.
    #[command(flatten)]
    pub point: PointArgs,

    /// Change an input; JSON if the value is valid JSON, else text. Repeatable
    #[arg(short = 'I', long = "input", value_name = "KEY=VALUE", value_parser = key_value)]
    pub inputs: Vec<KeyValue>,
}

/// Take a run back to the end of a stage
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro rewind latest plan\n  fabro rewind latest test@2 --set tries=0\n\n`fabro resume` continues the run after that stage. What happened later stays in the log but no longer counts. For a run that has succeeded, the stage must be named. In a run with --worktree the files are reset to that stage; without it, files are not changed."
)]
pub struct RewindArgs {
    /// The run and the stage to rewind to.
    #[command(flatten)]
    pub point: PointArgs,
}

/// Copies a run up to the end of a stage.
pub async fn fork(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let ForkArgs { point: args, inputs } = args;
    let (store, from) = global.run_to_change(&args.run).await?;
    let stage = args.stage.as_deref();
    let inputs = inputs.into_iter().collect();
    let changes = ForkChanges { set: args.set.iter().cloned().collect(), inputs };
    let (point, warnings) = fabro_run::fork_here(&store, from, stage, &changes, None).await?;
    global.warn(warnings);
    report("forked", from, &point, args.json, global)
}

/// Takes a run back to the end of a stage.
pub async fn rewind(args: RewindArgs, global: &Global) -> anyhow::Result<Exit> {
    let RewindArgs { point: args } = args;
    let (store, from) = global.run_to_change(&args.run).await?;
    let stage = match &args.stage {
        None => ask_stage(&store, from, global).await?,
        named => named.clone(),
    };
    let set = args.set.iter().cloned().collect();
    let point = fabro_run::rewind(&store, from, stage.as_deref(), &set, None).await?;
    report("rewound", from, &point, args.json, global)
}

/// How many stages are listed.
const MAX_LISTED: usize = 15;

/// Asks for the stage to rewind to if the run has succeeded. `None` for other runs: they go back to the last stage.
async fn ask_stage(
    store: &SqliteStore,
    run: RunId,
    global: &Global,
) -> anyhow::Result<Option<String>> {
    let report = fabro_inspect::inspect_run(store, run).await?;
    if !matches!(report.status, RunStatus::Succeeded | RunStatus::PartiallySucceeded) {
        return Ok(None);
    }
    // Nothing follows an exit.
    let ended = report.stages.iter().filter(|row| row.ended_at.is_some() && row.edge.is_some());
    let names: Vec<String> = ended.map(|row| clean(&row.name()).into_owned()).collect();
    let shown = &names[names.len().saturating_sub(MAX_LISTED)..];
    let rewind = global.command(&format!("rewind {run} STAGE"));
    let unnamed = || {
        let dots = if shown.len() < names.len() { "…, " } else { "" };
        error::usage(
            format!("run {run} has ended ({}), and no stage is named", report.status.as_str()),
            format!("go back to the end of a stage with `{rewind}`: {dots}{}", shown.join(", ")),
        )
    };
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(unnamed());
    }
    let list = shown.iter().map(|name| format!("  {name}\n")).collect::<Vec<_>>().concat();
    let status = report.status.as_str();
    output::stderr(&format!("run {run} has ended ({status}). Its stages:\n{list}"));
    output::stderr("go back to the end of which stage? (Enter: none) ");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    match line.trim() {
        "" => Err(unnamed()),
        stage => Ok(Some(stage.to_owned())),
    }
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
