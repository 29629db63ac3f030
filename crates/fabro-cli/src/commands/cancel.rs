//! `fabro cancel`.

use fabro_engine::{Phase, RunState, read_all};
use fabro_run::{end_family, end_stages_left_behind, root};
use fabro_store::{Inbox as _, Message, SqliteStore, StoreError};
use fabro_types::RunId;

use crate::cli::CancelArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::wiring::now_ms;

/// Ends a run: through its driver, or, when it has none, by an event of our own.
pub async fn cancel(args: &CancelArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    if let Some(status) = ended(&store, run).await? {
        return Err(error::usage(
            format!("run {run} is over: {status}"),
            "there is nothing to cancel; `fabro ps` lists the runs",
        ));
    }
    // A sub-workflow is at work under the lock of its parent.
    match store.lock(root(&store, run).await?) {
        Ok(_lock) => {
            end_stages_left_behind(&store, run).await?;
            end_family(&store, run, now_ms(), &args.reason).await?;
            output::stdout(&format!("run {run} canceled\n"))?;
        }
        Err(StoreError::Driven { .. }) => {
            store.post(run, &Message::Cancel { reason: args.reason.clone() }).await?;
            output::stdout(&format!("run {run} is being ended by its driver\n"))?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(exit::SUCCEEDED)
}

async fn ended(store: &SqliteStore, run: RunId) -> anyhow::Result<Option<fabro_types::RunStatus>> {
    let state = RunState::replay(run, &read_all(store, run).await?);
    Ok(match state.phase {
        Phase::Ended(status, _) => Some(status),
        _ => None,
    })
}
