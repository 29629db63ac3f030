//! `fabro rm`.

use fabro_store::Runs as _;

use crate::cli::RmArgs;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Removes runs. All of them are looked up before the first one goes, so that `latest` means what
/// it meant, and a slip removes nothing.
pub async fn rm(args: &RmArgs, global: &Global) -> anyhow::Result<Exit> {
    drop(global.store_to_read()?);
    let store = global.store()?;
    let mut runs = Vec::new();
    for text in &args.runs {
        let (_, run) = global.whole_run_to_change(text, "rm").await?;
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
