//! `fabro rm`.

use fabro_run::RunError;
use fabro_store::Runs as _;

use crate::cli::RmArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Removes runs. All of them are looked up first, so that `latest` keeps its meaning, and a typo
/// removes nothing.
pub async fn rm(args: &RmArgs, global: &Global) -> anyhow::Result<Exit> {
    drop(global.store_to_read()?);
    let store = global.store()?;
    let mut runs = Vec::new();
    for text in &args.runs {
        let run = store.find(text).await?;
        let root = fabro_run::root(&store, run).await?;
        if root != run {
            return Err(error::run(RunError::SubWorkflow { run, root }, global));
        }
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    for run in runs {
        store.delete(run).await?;
        output::stdout(&format!("removed {run}\n"))?;
    }
    Ok(exit::SUCCEEDED)
}
