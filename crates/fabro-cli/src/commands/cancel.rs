//! `fabro cancel`.

use fabro_engine::{Phase, RunState};
use fabro_report::load;
use fabro_sandbox::end_leftovers;
use fabro_store::{Batch, Inbox as _, Message, RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_types::RunId;

use crate::cli::CancelArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::wiring::now_ms;

/// Ends a run: through its driver, or, when it has none, by an event of our own.
pub fn cancel(args: &CancelArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run)?;
    if let Some(status) = ended(&store, run)? {
        return Err(error::usage(
            format!("run {run} is over: {status}"),
            "there is nothing to cancel; `fabro ps` lists the runs",
        ));
    }
    match store.lock(run) {
        Ok(_lock) => {
            end_stages_left_behind(&store, run)?;
            end_family(&store, run, &args.reason)?;
            output::stdout(&format!("run {run} canceled\n"))?;
        }
        Err(StoreError::Driven { .. }) => {
            store.post(run, &Message::Cancel { reason: args.reason.clone() })?;
            output::stdout(&format!("run {run} is being ended by its driver\n"))?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(exit::SUCCEEDED)
}

/// Ends the logs of a run and of its sub-workflows that are not over. The caller has the run's lock.
pub fn end_family(store: &SqliteStore, run: RunId, reason: &str) -> anyhow::Result<()> {
    for member in family(store, run)? {
        if ended(store, member)?.is_none() {
            let last = store.last_seq(member)?;
            let event = fabro_engine::cancel(member, last, now_ms(), reason.to_owned());
            store.append(member, last, &Batch::of(&[event]))?;
        }
    }
    Ok(())
}

/// Ends what a driver that died left running, sub-workflows' scripts too. Blocks while it waits.
pub fn end_stages_left_behind(store: &SqliteStore, run: RunId) -> anyhow::Result<()> {
    let family = family(store, run)?;
    let ended: usize =
        family.iter().map(|id| end_leftovers(("FABRO_RUN_ID", &id.to_string()))).sum();
    if ended > 0 {
        tracing::info!(ended, "ended processes that an earlier driver left");
    }
    Ok(())
}

/// A run and the runs of its sub-workflows, oldest first.
pub fn family(store: &SqliteStore, run: RunId) -> anyhow::Result<Vec<RunId>> {
    let mut members = vec![run];
    let runs = store.list()?;
    // Sub-workflows may nest; each round finds those one deeper.
    loop {
        let before = members.len();
        for summary in runs.iter().rev() {
            let is_child = summary.parent.is_some_and(|parent| members.contains(&parent));
            if is_child && !members.contains(&summary.id) {
                members.push(summary.id);
            }
        }
        if members.len() == before {
            return Ok(members);
        }
    }
}

fn ended(store: &SqliteStore, run: RunId) -> anyhow::Result<Option<fabro_types::RunStatus>> {
    let state = RunState::replay(run, &load(store, run)?);
    Ok(match state.phase {
        Phase::Ended(status, _) => Some(status),
        _ => None,
    })
}
