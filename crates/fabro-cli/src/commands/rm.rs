//! `fabro rm`.

use clap_complete::ArgValueCandidates;
use fabro_run::{RunError, remove_run};
use fabro_store::{Runs as _, SqliteStore};
use fabro_types::RunId;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, find};
use crate::output;

/// Remove runs with all their data
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro rm latest\n  fabro rm 01K3 01K4\n\nA run that is being driven is not removed: end it with `fabro cancel` first."
)]
pub struct RmArgs {
    /// The runs: ids, the beginnings of ids, or `latest`
    #[arg(required = true, value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    pub runs: Vec<String>,
}

/// The minimum length of an id prefix that removes a run.
const MIN_PREFIX: usize = 4;

/// Removes runs. All of them are looked up first, so that `latest` keeps its meaning, and a typo
/// removes nothing.
pub async fn rm(args: &RmArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.existing_store()?;
    let mut runs = Vec::new();
    for text in &args.runs {
        if text != "latest" && text.len() < MIN_PREFIX {
            return Err(error::usage(
                format!("`{text}` is too short to remove a run by"),
                format!(
                    "write at least {MIN_PREFIX} characters of its id; `fabro ps` lists the runs"
                ),
            ));
        }
        let run = find(&store, text).await?;
        let root = store.root(run).await?;
        if root != run {
            return Err(RunError::SubWorkflow { run, root }.into());
        }
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    for run in runs {
        remove(&store, run, global).await?;
        output::text(&format!("removed {run}\n"))?;
    }
    Ok(Exit::SUCCEEDED)
}

/// Removes a run with all its data, and warns of what could not be removed.
pub async fn remove(store: &SqliteStore, run: RunId, global: &Global) -> Result<(), RunError> {
    global.warn(remove_run(store, run).await?);
    Ok(())
}
